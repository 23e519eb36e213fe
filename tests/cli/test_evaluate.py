"""nmt-eval: the figures of the sacrebleu command, files that do not fit, options, JSON."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import urllib.error
from pathlib import Path
from typing import Any

import pytest
import torch
from sacrebleu.dataset import DATASETS
from safetensors.torch import save_file

from nmt.config import load_config
from nmt.data.whitespace import WhitespaceTokenizer
from nmt.evaluating.command import main
from nmt.models import build_model

WORDS = ["The", "dog", "can't", "see", "3,5", "Häuser", "(red)", "—", "über", "“quoted”", "a", "u.s.", "日本", "E-Mail"]


def sentences(seed: int, *, count: int = 40) -> list[str]:
    """Lines with punctuation, accents and numbers, on which the tokenizers differ."""
    source = random.Random(seed)
    return [" ".join(source.choices(WORDS, k=source.randint(1, 14))) + source.choice(".!?,") for _ in range(count)]


def noisy(lines: list[str], *, seed: int, share: float = 0.3) -> list[str]:
    """The lines with some words replaced and some letters lower-cased."""
    source = random.Random(seed)
    replaced = ([source.choice(WORDS) if source.random() < share else word for word in line.split()] for line in lines)
    return [" ".join(word.lower() if source.random() < 0.2 else word for word in words) for words in replaced]


def write(path: Path, lines: list[str]) -> str:
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    """A system, a weaker baseline and two sets of references."""
    folder = tmp_path_factory.mktemp("texts")
    first = sentences(1)
    hypotheses = noisy(first, seed=2)
    # Not ends of lines, though some tools think so; then trailing blanks, and an empty line on either side.
    first[3], first[5], hypotheses[7] = first[3] + "  ", "", ""
    first[9] = "left \u2028 middle \x0b end \x85 ."
    hypotheses[9] = "left \u2028 middle end \x1c ."
    return {
        "hyp": write(folder / "hyp.txt", hypotheses),
        "baseline": write(folder / "baseline.txt", noisy(first, seed=3, share=0.7)),
        "first": write(folder / "ref.0", first),
        "second": write(folder / "ref.1", noisy(first, seed=4, share=0.5)),
    }


def sacrebleu(*arguments: str, **environment: str) -> Any:
    """What the sacrebleu command prints."""
    command = [sys.executable, "-m", "sacrebleu", *arguments, "--width", "15"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def nmt_eval(capsys, *arguments: str) -> list[dict[str, Any]]:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_figures_and_signatures_of_the_sacrebleu_command(files, capsys):
    expected = {
        entry["name"]: entry
        for entry in sacrebleu(files["first"], files["second"], "-i", files["hyp"], "-m", "bleu", "chrf", "ter")
    }
    found = nmt_eval(capsys, "--hyp", files["hyp"], "--ref", files["first"], files["second"])
    assert [entry["name"] for entry in found] == ["BLEU", "chrF2", "TER"]
    for entry in found:
        assert entry["score"] == pytest.approx(expected[entry["name"]]["score"], abs=1e-12)
        assert entry["signature"] == expected[entry["name"]]["signature"]
        assert 0 < entry["score"] < 100


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (["-tok", "intl"], ["--tokenize", "intl"]),
        (["-tok", "char", "-lc"], ["--tokenize", "char", "--lowercase"]),
        (["-tok", "none", "-lc", "--smooth-method", "none"], ["--metrics", "bleu_tok_lc"]),
    ],
    ids=["intl", "char-lc", "tok-lc"],
)
def test_tokenizers_of_the_sacrebleu_command(files, capsys, theirs, ours):
    expected = sacrebleu(files["first"], files["second"], "-i", files["hyp"], *theirs)
    arguments = ["--hyp", files["hyp"], "--ref", files["first"], files["second"]]
    (found,) = nmt_eval(capsys, *arguments, *(ours if "--metrics" in ours else [*ours, "--metrics", "bleu"]))
    assert found["score"] == pytest.approx(expected["score"], abs=1e-12)
    assert found["signature"] == expected["signature"]


def test_tokenizers_give_different_figures(files, capsys):
    arguments = ["--hyp", files["hyp"], "--ref", files["first"], "--metrics", "bleu", "--tokenize"]
    scores = {nmt_eval(capsys, *arguments, name)[0]["score"] for name in ("13a", "intl", "char", "none")}
    assert len(scores) == 4


def test_baseline_has_the_figures_of_the_paired_test(files, capsys):
    systems = [files["first"], "-i", files["baseline"], files["hyp"]]
    weak, strong = sacrebleu(*systems, "--paired-bs", "--paired-bs-n", "100", SACREBLEU_SEED="5")
    ours = ["--hyp", files["hyp"], "--ref", files["first"], "--metrics", "bleu", "--baseline", files["baseline"]]
    (found,) = nmt_eval(capsys, *ours, "--samples", "100", "--seed", "5")
    (against,) = found["baselines"]
    assert strong["BLEU"] == {"score": found["score"], **{key: against[key] for key in ("p_value", "mean", "ci")}}
    assert against["baseline"] == files["baseline"]
    assert against["baseline_score"] == weak["BLEU"]["score"]
    assert "seed:5" in against["signature"] and "bs:100" in against["signature"]


def test_precisions_and_chrf_with_words_are_those_of_the_sacrebleu_command(files, capsys):
    bleu, chrf = sacrebleu(files["first"], "-i", files["hyp"], "-m", "bleu", "chrf", "--chrf-word-order", "2")
    arguments = ["--hyp", files["hyp"], "--ref", files["first"], "--metrics", "bleu", "chrf++"]
    found = nmt_eval(capsys, *arguments)
    assert (found[1]["name"], found[1]["score"], found[1]["signature"]) == (
        "chrF2++",
        pytest.approx(chrf["score"], abs=1e-12),
        chrf["signature"],
    )
    parts = found[0]
    verbose = "/".join(f"{precision:.1f}" for precision in parts["precisions"])
    verbose += f" (BP = {parts['brevity_penalty']:.3f} ratio = {parts['ratio']:.3f} hyp_len = {parts['length']:d} "
    assert bleu["verbose_score"] == verbose + f"ref_len = {parts['reference_length']:d})"
    assert parts["brevity_penalty"] < 1


def test_confidence_has_the_figures_of_the_sacrebleu_command(files, capsys):
    theirs = sacrebleu(
        files["first"],
        "-i",
        files["hyp"],
        "-m",
        "bleu",
        "ter",
        "--confidence",
        "--confidence-n",
        "90",
        SACREBLEU_SEED="3",
    )
    arguments = ["--hyp", files["hyp"], "--ref", files["first"], "--metrics", "bleu", "ter", "--confidence"]
    found = nmt_eval(capsys, *arguments, "--samples", "90", "--seed", "3")
    for ours, expected in zip(found, theirs, strict=True):
        single = 1e-7 if ours["name"] == "TER" else 1e-12  # whose resampled scores are fp32, and so is their mean
        assert ours["confidence"]["mean"] == pytest.approx(expected["confidence_mean"], rel=single)
        assert ours["confidence"]["ci"] == pytest.approx(expected["confidence_var"], abs=1e-12)
        assert ours["confidence"]["signature"] == expected["signature"]
    assert main(arguments) == 0
    assert "mean, 95% interval" in capsys.readouterr().out


def test_several_systems_have_the_figures_of_approximate_randomisation(files, capsys):
    systems = [files["baseline"], files["hyp"], files["second"]]
    theirs = sacrebleu(
        files["first"],
        "-i",
        *systems,
        "-m",
        "bleu",
        "chrf",
        "ter",
        "--paired-ar",
        "--paired-ar-n",
        "150",
        SACREBLEU_SEED="5",
    )
    arguments = ["--hyp", *systems, "--ref", files["first"], "--significance", "approximate", "--samples", "150"]
    found = nmt_eval(capsys, *arguments, "--seed", "5")
    assert [entry["system"] for entry in found] == systems
    assert all("baselines" not in metric for metric in found[0]["metrics"])
    compared = 0
    for ours, expected in zip(found[1:], theirs[1:], strict=True):
        for metric in ours["metrics"]:
            (against,) = metric["baselines"]
            assert against["baseline"] == files["baseline"] and against["test"] == "approximate"
            assert metric["score"] == expected[metric["name"]]["score"]
            assert against["p_value"] == expected[metric["name"]]["p_value"]
            assert "ar:150" in against["signature"] and "mean" not in against
            compared += 1
    assert compared == 6
    assert main([*arguments, "--by-length"]) == 0
    output = capsys.readouterr().out
    assert (
        "paired approximate randomisation, 150 trials:" in output and "scores (higher is better; TER: lower):" in output
    )
    assert output.count("by words in the first reference, ") == 3
    assert max(map(len, output.split("\n"))) <= 80 or len(str(systems[0])) > 24


def test_the_baseline_of_several_systems_can_be_named(files, capsys):
    systems = ["--hyp", files["hyp"], files["second"], "--ref", files["first"], "--metrics", "bleu", "--samples", "30"]
    found = nmt_eval(capsys, *systems, "--baseline", files["baseline"], files["second"])
    names = [[against["baseline"] for against in entry["metrics"][0]["baselines"]] for entry in found]
    assert names == [[files["baseline"], files["second"]], [files["baseline"]]], "not compared with itself"
    (found,) = nmt_eval(capsys, "--hyp", files["hyp"], *systems[3:], "--baseline", files["hyp"])
    assert found["baselines"][0]["p_value"] == 1, "where nothing else is asked for, it is"


def test_formats(files, capsys):
    arguments = ["--hyp", files["hyp"], "--ref", files["first"], "--metrics", "bleu", "--format"]
    printed = {}
    for name in ("text", "latex", "markdown", "json"):
        assert main([*arguments, name]) == 0
        printed[name] = capsys.readouterr().out
    (entry,) = json.loads(printed["json"])
    for text in printed.values():
        assert entry["signature"] in text
    score = f"{entry['score']:.2f}"
    assert f"\nBLEU    {score}  higher\n" in printed["text"]
    assert f"| BLEU | {score} | higher |" in printed["markdown"]
    assert rf"BLEU & {score} & higher \\" in printed["latex"]
    assert main([*arguments, "text", "--json"]) == 2
    assert "--json: not allowed with argument --format" in capsys.readouterr().err


@pytest.fixture
def folder(tmp_path_factory, monkeypatch) -> Path:
    """sacreBLEU's folder, which nothing is fetched into."""
    found = tmp_path_factory.mktemp("sacrebleu")

    def refused(*given, **named):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr("urllib.request.urlopen", refused)
    for name in ("sacrebleu.dataset.base", "sacrebleu.utils"):
        monkeypatch.setattr(f"{name}.SACREBLEU_DIR", str(found))
    for name in ("wmt14", "wmt15", "wmt19", "wmt22"):
        monkeypatch.setattr(DATASETS[name], "_outdir", str(found / name))
        monkeypatch.setattr(DATASETS[name], "_rawdir", str(found / name / "raw"))
    return found


def prepared(folder: Path, files: dict[str, str], pair: str = "en-de", name: str = "wmt14") -> None:
    (folder / name).mkdir(exist_ok=True)
    for field, source in (("src", "hyp"), ("ref", "first")):
        (folder / name / f"{name}.{pair}.{field}").write_bytes(Path(files[source]).read_bytes())


def test_a_published_test_set(files, model, folder, capsys, tmp_path):
    prepared(folder, files)
    expected = nmt_eval(capsys, "--hyp", files["hyp"], "--ref", files["first"])
    assert nmt_eval(capsys, "--hyp", files["hyp"], "-t", "wmt14", "-l", "en-de") == expected
    prepared(folder, files, name="wmt15")
    twice = write(tmp_path / "twice", Path(files["hyp"]).read_text(encoding="utf-8").split("\n")[:-1] * 2)
    found = nmt_eval(capsys, "--hyp", twice, "--test-set", "wmt14,wmt15", "--language-pair", "en-de")
    assert [entry["score"] for entry in found] == pytest.approx([entry["score"] for entry in expected])
    scored = nmt_eval(capsys, str(model), "-t", "wmt14", "-l", "en-de", "--metrics", "chrf")
    assert scored == nmt_eval(
        capsys, str(model), "--source", files["hyp"], "--ref", files["first"], "--metrics", "chrf"
    )


def test_an_unpacked_test_set_is_read_as_sacrebleu_reads_it(files, folder, capsys, tmp_path):
    raw = folder / "wmt14" / "raw"
    (raw / "test").mkdir(parents=True)
    (raw / "wmt14.test-filtered.tgz").write_bytes(b"unpacked")
    lines = Path(files["first"]).read_text(encoding="utf-8").split("\n")[:3]
    for name in ("src.en", "ref.de"):
        text = "".join(f'<seg id="{n}">{line}</seg>\n' for n, line in enumerate(lines))
        (raw / "test" / f"newstest2014-deen-{name}.sgm").write_text(f'<doc docid="a" origlang="en">\n{text}</doc>\n')
    hyp = write(tmp_path / "hyp", lines)
    found = nmt_eval(capsys, "--hyp", hyp, "-t", "wmt14", "-l", "en-de", "--metrics", "bleu")
    assert found[0]["score"] == pytest.approx(100)


def test_the_tokenizer_of_a_test_set_is_that_of_its_language(files, folder, capsys):
    prepared(folder, files, name="wmt14")
    arguments = ["--hyp", files["hyp"], "--metrics", "bleu"]
    (plain,) = nmt_eval(capsys, *arguments, "-t", "wmt14", "-l", "en-de")
    assert "tok:13a" in plain["signature"]
    (chosen,) = nmt_eval(capsys, *arguments, "-t", "wmt14", "-l", "en-de", "--tokenize", "char")
    assert "tok:char" in chosen["signature"]
    prepared(folder, files, name="wmt19", pair="en-zh")
    for options, tokenizer in (([], "zh"), (["--tokenize", "char"], "char")):
        (found,) = nmt_eval(capsys, *arguments, "-t", "wmt19", "-l", "en-zh", *options)
        assert f"tok:{tokenizer}|" in found["signature"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-t", "wmt1", "-l", "en-de"], 2, "test set 'wmt1': sacreBLEU does not know it. Did you mean 'wmt"),
        (["-t", "wmt14"], 2, "test set wmt14: needs a language pair. Allowed: cs-en, de-en, en-cs, en-de,"),
        (["-t", "wmt14", "-l", "en-zh"], 2, "test set wmt14: has no language pair 'en-zh'. Allowed: cs-en,"),
        (
            ["-t", "wmt14", "-l", "en-de", "--ref", "x"],
            2,
            "--ref: the test set wmt14 already provides it; give one of the two",
        ),
        ([], 2, "no references; give --ref FILE, or -t SET"),
        (["-t", "wmt14", "-l", "en-de"], 1, "wmt14 as wmt14.en-de.src and wmt14.en-de.ref"),
        (["-t", "wmt22", "-l", "en-de"], 1, "raw as wmt22.v1.1.tar.gz, and unpacked"),
    ],
)
def test_test_sets_that_cannot_be_used(files, folder, capsys, arguments, code, message):
    found, line = failure(capsys, "--hyp", files["hyp"], *arguments)
    assert found == code and message in line
    if code == 1:
        assert "cannot be fetched (<urlopen error no network>); it" in line and str(folder) in line


def test_a_broken_download_is_one_line(files, folder, capsys, monkeypatch):
    monkeypatch.setattr("urllib.request.urlopen", lambda *given: io.BytesIO(b"not what it should be"))
    code, line = failure(capsys, "--hyp", files["hyp"], "-t", "wmt14", "-l", "en-de")
    assert code == 1 and "cannot be fetched (" in line and "MD5 sum of downloaded file was incorrect" in line


def test_table_for_people(files, capsys):
    assert main(["--hyp", files["hyp"], "--ref", files["first"], "--by-length"]) == 0
    output = capsys.readouterr().out
    for text in ("BLEU", "chrF2", "TER", "tok:13a", "lower", "version:", "words"):
        assert text in output


def test_translations_from_standard_input(files, capsys, monkeypatch):
    class Stdin:
        buffer = io.BytesIO(Path(files["hyp"]).read_bytes())

    from_file = nmt_eval(capsys, "--hyp", files["hyp"], "--ref", files["first"])
    monkeypatch.setattr("sys.stdin", Stdin)
    assert nmt_eval(capsys, "--hyp", "-", "--ref", files["first"]) == from_file


def test_windows_line_ends_change_nothing(files, capsys, tmp_path):
    carriage = tmp_path / "crlf.txt"
    carriage.write_bytes(Path(files["hyp"]).read_bytes().replace(b"\n", b"\r\n"))
    plain = nmt_eval(capsys, "--hyp", files["hyp"], "--ref", files["first"])
    assert nmt_eval(capsys, "--hyp", str(carriage), "--ref", files["first"]) == plain


def failure(capsys, *arguments: str) -> tuple[int, str]:
    """Exit code and the one line on stderr."""
    code = main(list(arguments))
    lines = capsys.readouterr().err.strip().split("\n")
    assert len(lines) == 1, lines
    return code, lines[0]


def test_line_counts_must_match(files, capsys, tmp_path):
    short = write(tmp_path / "short.txt", sentences(1)[:-1])
    code, line = failure(capsys, "--hyp", files["hyp"], "--ref", files["first"], short)
    assert code == 1
    assert f"{files['hyp']} has 40 lines but {short} has 39" in line
    code, line = failure(capsys, "--hyp", files["hyp"], "--ref", files["first"], "--baseline", short)
    assert code == 1 and f"{short} has 39" in line


def test_empty_files(capsys, tmp_path):
    empty = write(tmp_path / "empty.txt", [])
    assert failure(capsys, "--hyp", empty, "--ref", empty) == (1, f"nmt-eval: {empty}: no line to score")


def test_missing_file(files, capsys, tmp_path):
    code, line = failure(capsys, "--hyp", str(tmp_path / "nothing"), "--ref", files["first"])
    assert code == 1 and "nothing" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metrics", "belu"], "'belu' is not a known metric. Did you mean 'bleu'?"),
        (["--tokenize", "13b"], "'13b' is not a known tokenizer of sacreBLEU. Did you mean '13a'?"),
        (["--metrics", "chrf", "--tokenize", "13a"], "--tokenize: no requested metric"),
        (["--beam-size", "4", "-o", "out.txt"], "--beam-size, --output: allowed only with MODEL"),
        (["--source", "text.en"], "--source: none of the metrics looks at it"),
        (["--checkpoint", "77", "--device", "cuda"], "--checkpoint, --device: allowed only with MODEL"),
        (["--samples", "7"], "--samples: needs --confidence, or something to compare with: several systems, or --base"),
        (["--samples", "7", "--seed", "3"], "--samples, --seed: needs --confidence, or something to compare with"),
        (["--baseline", "-", "--ref", "-"], "- (standard input) can stand for one file only"),
        (
            ["--significance", "approximate"],
            "--significance: needs something to compare with: several systems, or --base",
        ),
        (["--baseline", "x", "x"], "--baseline x: given twice; each file is one system"),
    ],
)
def test_usage_errors_are_one_line(files, capsys, arguments, message):
    code, line = failure(capsys, "--hyp", files["hyp"], "--ref", files["first"], *arguments)
    assert code == 2
    assert message in line


def test_seed_of_zero_is_refused(files, capsys):
    arguments = ["--hyp", files["hyp"], "--ref", files["first"], "--baseline", files["baseline"], "--seed", "0"]
    assert main(arguments) == 2
    assert "--seed: '0' is not a whole number from 1 to 4,294,967,295" in capsys.readouterr().err


def test_model_needs_a_source(files, capsys):
    for named in (["runs/x"], ["--model", "runs/x"]):
        assert failure(capsys, *named, "--ref", files["first"]) == (
            2,
            "nmt-eval: MODEL needs --source, the text to translate",
        )


def test_a_model_beside_translations_needs_a_source(files, capsys):
    assert failure(capsys, "runs/x", "--hyp", files["hyp"], "--ref", files["first"]) == (
        2,
        f"nmt-eval: MODEL needs --source, the text to translate; to compare it with --hyp {files['hyp']}, give both",
    )


def test_a_model_after_an_option_that_takes_it_is_missed(files, capsys):
    code, line = failure(capsys, "--source", files["hyp"], "--ref", files["first"], "runs/x")
    assert code == 2
    assert line == (
        "nmt-eval: nothing to score; give --hyp FILE, or a MODEL that translates --source; "
        "write it before the options, because an option with several values would take it"
    )


CONFIG = """
run_dir: unused
model: {cell: gru, hidden_size: 12, embedding_size: 8, tie_embeddings: none}
data: {train: TRAIN, tokenizer: whitespace}
training: {max_steps: 1, batch_sentences: 8}
decoding: {beam_size: 2, max_length_offset: 3}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory, files) -> Path:
    """A self-contained model directory: the source language is `first`, the weights are random."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.yaml").write_text(CONFIG.replace("TRAIN", str(folder / "unused")))
    config = load_config(folder / "config.yaml")
    texts = [Path(files["first"])]
    options = WhitespaceTokenizer.Options(**config.data.tokenizer_options)
    tokenizer = WhitespaceTokenizer.train(texts, texts, options=options, seed=1)
    (folder / "tokenizer").mkdir()
    tokenizer.save(folder / "tokenizer")
    torch.manual_seed(1)
    save_file(
        build_model(config.model, tokenizer.source_size, tokenizer.target_size).state_dict(),
        folder / "model.safetensors",
    )
    return folder


def test_model_gives_the_scores_of_its_translations(files, model, capsys, tmp_path):
    output = tmp_path / "translations.txt"
    arguments = ["--ref", files["first"], files["second"], "--metrics", "bleu", "chrf"]
    found = nmt_eval(capsys, str(model), "--source", files["first"], "-o", str(output), *arguments)
    lines = output.read_text(encoding="utf-8").split("\n")
    assert len(lines) == 41 and lines[40] == ""
    assert lines[5] == "" and any(lines), "the empty source line stays empty, the others do not all"
    assert nmt_eval(capsys, "--hyp", str(output), *arguments) == found


def test_decoding_options_reach_the_search(files, model, tmp_path):
    """One token of output is allowed with offset 0 and a batch of one-token lines."""
    source = write(tmp_path / "words.txt", ["a", "The", "dog"])
    lengths = []
    for offset in ("0", "6"):
        output = tmp_path / f"offset{offset}.txt"
        given = ["--beam-size", "1", "--length-penalty", "0", "--batch-tokens", "99", "--max-length-offset", offset]
        assert main([str(model), "--source", source, "--ref", source, "-o", str(output), *given]) == 0
        lengths.append(max(len(line.split(" ")) for line in output.read_text().splitlines()))
    assert lengths[0] < lengths[1], lengths


@pytest.mark.parametrize(
    "wrong",
    [
        ["--beam-size", "0"],
        ["--beam-size", "x"],
        ["--length-penalty", "-1"],
        ["--batch-tokens", "-5"],
        ["--precision", "int4"],
    ],
)
def test_decoding_options_are_checked(files, model, capsys, wrong):
    assert main([str(model), "--source", files["first"], "--ref", files["first"], *wrong]) == 2
    assert wrong[0] in capsys.readouterr().err


def test_source_and_references_are_compared_before_anything_is_loaded(files, capsys, tmp_path):
    short = write(tmp_path / "short.txt", ["one"])
    code, line = failure(capsys, "nowhere", "--source", short, "--ref", files["first"])
    assert code == 1 and f"{short} has 1 line but {files['first']} has 40" in line


def test_missing_model_and_output_directory(files, model, capsys, tmp_path):
    texts = ["--source", files["first"], "--ref", files["first"]]
    code, line = failure(capsys, str(tmp_path / "nowhere"), *texts)
    assert code == 1 and "nowhere" in line
    code, line = failure(capsys, str(model), *texts, "-o", str(tmp_path / "no" / "out.txt"))
    assert code == 1 and "no directory" in line
    code, line = failure(capsys, str(model), *texts, "-o", files["first"])
    assert code == 2 and "is also the input" in line


def subwords(path: Path, lines: list[str]) -> str:
    return write(path, [line.replace("e", "e@@ ").replace("@@  ", " ") for line in lines])


def test_subwords_are_not_scored_against_words(files, capsys, tmp_path):
    whole = files["second"]
    split = subwords(tmp_path / "split.de", Path(whole).read_text(encoding="utf-8").split("\n")[:-1])
    code, line = failure(capsys, "--hyp", whole, "--ref", split)
    assert code == 1
    assert f"{split}: " in line and f" of 40 lines are split into subwords ('@@ '), but {whole} is not; join" in line
    code, line = failure(capsys, "--hyp", whole, "--ref", whole, "--baseline", split)
    assert code == 1 and split in line
    assert main(["--hyp", split, "--ref", split]) == 0
    said = capsys.readouterr()
    assert "100.00" in said.out and "the scores are those of subwords" in said.err
    few = write(tmp_path / "few", ["a@@ b", *Path(whole).read_text(encoding="utf-8").split("\n")[1:-1]])
    assert main(["--hyp", few, "--ref", whole]) == 0 and not capsys.readouterr().err


def test_references_are_joined_as_the_model_joins(files, model, capsys, tmp_path):
    whole = files["second"]
    split = subwords(tmp_path / "split.de", Path(whole).read_text(encoding="utf-8").split("\n")[:-1])
    arguments = [str(model), "--source", files["first"], "--metrics", "chrf"]
    assert nmt_eval(capsys, *arguments, "--ref", split) == nmt_eval(capsys, *arguments, "--ref", whole)


PLUGIN = '''
"""A metric that sacreBLEU does not know."""
from nmt.evaluation import Metric, Score
from nmt.registry import METRICS

@METRICS.register("exact_plugin")
class Exact(Metric):
    name = "exact_plugin"
    def compute(self, hypotheses, references):
        hits = sum(line in lines for line, *lines in zip(hypotheses, *references))
        return Score("exact", 100 * hits / len(hypotheses), "exact", True)
'''


def test_metric_of_a_plugin(files, capsys, tmp_path):
    plugin = tmp_path / "exact.py"
    plugin.write_text(PLUGIN)
    arguments = ["--ref", files["first"], "--plugin", str(plugin), "--metrics", "exact_plugin"]
    (found,) = nmt_eval(capsys, "--hyp", files["first"], *arguments)
    assert found == {"name": "exact", "score": 100.0, "signature": "exact"}
    code, line = failure(capsys, "--hyp", files["hyp"], *arguments, "--confidence")
    assert code == 2 and "'exact_plugin'" in line and "resampled" in line
    code, line = failure(capsys, "--hyp", files["hyp"], *arguments, "--baseline", files["baseline"])
    assert code == 2 and "'exact_plugin'" in line and "resampled" in line
