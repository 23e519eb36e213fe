"""nmt-distill and nmt-backtranslate: what they write is what nmt-translate says, and a student trains on it."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from torch import Tensor

import nmt
from nmt.cli import train, translate
from nmt.data import EOS
from nmt.interop.model_dir import load_model
from nmt.search.values import AT_LIMIT
from nmt.synthetic import backtranslate, corpus, distill
from nmt.synthetic.texts import SIMILARITIES
from tests.tiny_run import change_weights, make_run

SOURCE = ["a b c", "", "d", "long@@ er b", "a c d b", "b", "c c", "d a", "a"]
TARGET = ["x y", "z", "t@@ w", "x", "u t@@ v", "y", "z z", "v u", ""]
MONO = ["a d", "b c a", "d d d"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    change_weights(make_run(tmp_path / "run"), ends_sooner)
    (tmp_path / "text").mkdir()
    (tmp_path / "text/train.en.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in SOURCE).encode()))
    (tmp_path / "text/train.de").write_text("".join(f"{line}\n" for line in TARGET))
    (tmp_path / "text/mono.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in MONO).encode()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ends_sooner(weights: dict[str, Tensor]) -> None:
    """Most translations of this model of random weights would reach the length limit."""
    weights["embeddings.target"][EOS].neg_()


def written(prefix: str) -> list[tuple[str, str]]:
    sides = [Path(f"{prefix}.{language}").read_text(encoding="utf-8").split("\n") for language in ("en", "de")]
    assert [side.pop() for side in sides] == ["", ""]
    return list(zip(*sides, strict=True))


def tokens_of(lines: list[str], *options: str) -> list[list[str]]:
    """What nmt-translate finds for each line, as the tokens of the model; empty where the length limit has cut it."""
    Path("lines").write_text("".join(f"{line}\n" for line in lines))
    asked = ["--format", "jsonl", "--with", "tokens", "-o", "found", "-q"]
    assert translate.main(["run", "-i", "lines", *asked, *options]) in (0, 1)
    records = [json.loads(line) for line in Path("found").read_text().splitlines()]
    return [
        [
            "" if AT_LIMIT in record.get("notes", ()) else " ".join(t for t in one.get("tokens", ()) if t != "<eos>")
            for one in record["translations"]
        ]
        for record in records
    ]


def test_the_best_translation_of_each_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text for a tokenizer of words is subwords again."""
    assert distill.main(["run", "-o", "made/best", "--train", "text/train", "--source", "text/mono.gz"]) == 0
    expected = [found[0] for found in tokens_of([*SOURCE, *MONO])]
    assert written("made/best") == list(zip([*SOURCE, *MONO], expected, strict=True))
    said = capsys.readouterr().err
    assert re.search(r"nmt-distill: run/checkpoints/step-10 on cpu, beam 3, ", said)
    assert re.search(r"nmt-distill: 12 lines in [\d.]+ s \([\d.]+ a second\)\n", said)
    assert "nmt-distill: 12 pairs in made/best.en and made/best.de; 1 pair with an empty side, which " in said
    record = json.loads(Path("made/best.manifest.json").read_text())
    assert [text["lines"] for text in record["texts"]] == [9, 3] and record["models"] == ["run/checkpoints/step-10"]


def test_all_translations_and_the_references(folder: Path) -> None:
    options = ["--n-best", "2", "--length-penalty", "1.0"]
    assert distill.main(["run", "-o", "made/all", "--train", "text/train", "--keep-original", *options]) == 0
    expected = []
    for source, target, found in zip(SOURCE, TARGET, tokens_of(SOURCE, *options), strict=True):
        expected += [(source, text) for text in [*found, ""][:2]] + [(source, target)]
    assert written("made/all") == expected


def test_translations_that_the_length_limit_has_cut_are_no_training_text(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--max-length-offset", "1"]
    assert distill.main(["run", "-o", "made", "--train", "text/train", "--keep-original", *options]) == 0
    expected = [found[0] for found in tokens_of(SOURCE, *options)]
    places = [number for number, (line, text) in enumerate(zip(SOURCE, expected, strict=True), 1) if line and not text]
    assert 1 < len(places) < 6
    assert written("made") == [
        pair for line, text, own in zip(SOURCE, expected, TARGET, strict=True) for pair in ((line, text), (line, own))
    ]
    said = capsys.readouterr().err
    assert f"{len(places)} lines left without a translation, because the search reached the length limit (text" in said
    assert f"train.en.gz, line {places[0]}; " in said


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_the_translation_nearest_to_the_reference(folder: Path, name: str) -> None:
    """Compared as people read them, not as subwords."""
    arguments = ["run", "--train", "text/train", "--n-best", "6", "--max-length-offset", "1"]
    assert distill.main([*arguments, "-o", "near", "--nearest", name]) == 0
    tokenizer = load_model("run").tokenizer
    for source, target, found, (line, text) in zip(
        SOURCE, TARGET, tokens_of(SOURCE, *arguments[3:]), written("near"), strict=True
    ):
        like = SIMILARITIES[name](False)
        scores = [like(tokenizer.joined_target(one), tokenizer.joined_target(target)) for one in found]
        expected = found[scores.index(max(scores))] if target and found else (found or [""])[0]
        assert (line, text) == (source, expected)


def test_searches_of_all_kinds(folder: Path) -> None:
    """MBR and samples; a seed of its own for each line, whatever is translated with it."""
    mbr = ["--search", "mbr", "--search-option", "number=4", "--search-option", "utility=bleu"]
    assert distill.main(["run", "-o", "mbr", "--train", "text/train", *mbr]) == 0
    assert [text for _, text in written("mbr")] == [found[0] for found in tokens_of(SOURCE, *mbr)]
    sample = ["--search", "sample", "--n-best", "2"]
    assert backtranslate.main(["run", "-i", "text/mono.gz", "-o", "drawn", *sample]) == 0
    found = tokens_of(MONO, *sample)
    assert written("drawn") == [(line, text) for line, own in zip(MONO, found, strict=True) for text in own]
    assert any("@@" in text for _, text in written("drawn"))


def test_teachers_are_an_ensemble(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(folder / "other", steps=[30], best=[30])
    assert distill.main(["run", "other", "-o", "both", "--train", "text/train", "--beam-size", "1"]) == 0
    assert "an ensemble of 2 models" in capsys.readouterr().err
    assert distill.main(["run", "-o", "one", "--train", "text/train", "--beam-size", "1"]) == 0
    assert written("both") != written("one")
    facts = json.loads(Path("both.manifest.json").read_text())["facts"]
    assert facts["models"] == 2 and facts["model 1"] != facts["model 2"]


def test_the_training_text_of_the_model_is_the_default(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert distill.main(["run", "-o", "made"]) == 1
    assert "nmt-distill: data.train: neither corpus.en nor corpus.en.gz exists\n" in capsys.readouterr().err
    for language in ("en.gz", "de"):
        os.link(folder / f"text/train.{language}", folder / f"corpus.{language}")
    assert distill.main(["run", "-o", "made"]) == 0
    assert [source for source, _ in written("made")] == SOURCE


def test_a_kill_and_the_same_command_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--train", "text/train", "--source", "text/mono.gz", "--search", "sample", "-o"]
    program = (
        "import os, signal, sys\n"
        "from nmt.synthetic import corpus\n"
        "corpus.WINDOW = 4\n"
        "append = corpus.Writer.append\n"
        "def once(*a, **k):\n"
        "    append(*a, **k)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "corpus.Writer.append = once\n"
        "from nmt.synthetic.distill import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", program, "run", *arguments, "made"], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert json.loads(Path("made.manifest.json").read_text())["done"]["counts"]["lines"] == 4
    monkeypatch.setattr(corpus, "WINDOW", 4)
    assert distill.main(["run", *arguments, "made"]) == 0
    said = capsys.readouterr().err
    assert "nmt-distill: resumes after 4 of 12 lines\n" in said and "nmt-distill: 8 lines in " in said
    assert distill.main(["run", *arguments, "whole"]) == 0
    assert written("made") == written("whole")
    capsys.readouterr()
    assert distill.main(["run", *arguments, "made"]) == 0
    assert "nmt-distill: made: is already complete; --overwrite starts again\n" in capsys.readouterr().err
    assert distill.main(["run", *arguments, "made", "--beam-size", "2"]) == 2
    assert capsys.readouterr().err.count("decoding.beam_size: 3 -> 2") == 1


def test_ctrl_c_says_how_far_it_has_come(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs_of, calls = corpus.pairs_of, iter(range(99))

    def interrupted(*arguments: object, **options: object) -> object:
        if next(calls) == 6:
            raise KeyboardInterrupt
        return pairs_of(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(corpus, "WINDOW", 4)
    monkeypatch.setattr(corpus, "pairs_of", interrupted)
    assert distill.main(["run", "--train", "text/train", "-o", "made"]) == 130
    *_, told, last = capsys.readouterr().err.splitlines()
    assert told == "nmt-distill: 4 of 9 lines are done; the same command resumes after them"
    assert last == "nmt-distill: interrupted"


@pytest.mark.parametrize(
    ("command", "arguments", "said"),
    [
        (
            "distill",
            ["--train", "text/train", "--nearest", "bleu"],
            "--nearest: needs several translations; set n_be",
        ),
        ("distill", ["--source", "text/mono.gz", "--keep-original"], "--keep-original: the text to translate has no"),
        ("distill", ["--source", "text/none"], "text/none: no such file"),
        ("distill", ["--train", "text/none"], "--train: neither text/none.en nor text/none.en.gz exists"),
        (
            "distill",
            ["--train", "text/train", "--n-best", "9", "--search", "greedy", "--beam-size", "1"],
            "--n-best 9: ",
        ),
        ("distill", ["--source", "text/mono.gz", "--placeholders"], "--placeholders: changes translations afterwards"),
        ("backtranslate", ["-i", "text"], "text: is not a regular file"),
    ],
)
def test_mistakes_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, arguments: list[str], said: str
) -> None:
    main = {"distill": distill.main, "backtranslate": backtranslate.main}[command]
    assert main(["run", "-o", "made", *arguments]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"nmt-{command}: {said}")
    assert not list(folder.glob("made*"))


def test_a_student_learns_from_all_of_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The way of the documentation, in small: distilled text beside back-translated text with its tag."""
    assert distill.main(["run", "-o", "distilled", "--train", "text/train", "-q"]) == 0
    assert backtranslate.main(["run", "-i", "text/mono.gz", "-o", "back", "-q"]) == 0
    for language, words in (("en", {*" ".join(SOURCE).split(), "<BT>"}), ("de", {"<unk>"})):
        known = words | {
            word for prefix in ("distilled", "back") for pair in written(prefix) for word in " ".join(pair).split()
        }
        Path(f"vocab.{language}").write_text("\n".join(sorted(known - {"<unk>"})) + "\n")
    config = {"run_dir": "student", "model": {"hidden_size": 8, "embedding_size": 8}, "data": {
        "train": "distilled", "monolingual": "back", "tokenizer": "whitespace", "workers": 1,
        "tokenizer_options": {"source_vocab": "vocab.en", "target_vocab": "vocab.de"},
    }, "training": {"max_steps": 2}}  # fmt: skip
    Path("student.yaml").write_text(yaml.safe_dump(config))
    assert train.main(["student.yaml", "--device", "cpu"]) == 0
    assert "3 pairs of these from data.monolingual, each source after <BT>" in capsys.readouterr().err


def test_from_python_a_line_is_one_pair_unless_asked_otherwise(folder: Path) -> None:
    """Whatever the configuration says of translating."""
    config = folder / "run/checkpoints/step-10/config.yaml"
    config.write_text(config.read_text().replace("n_best: 1", "n_best: 3"))
    with nmt.load("run", device="cpu") as teacher:
        assert len(teacher.translate("a b c").n_best) == 3
        assert nmt.backtranslate(teacher, "text/mono.gz", "back").pairs == len(MONO)


def test_from_python(folder: Path) -> None:
    assert distill.main(["run", "-o", "made", "--train", "text/train", "--n-best", "2", "-q"]) == 0
    seen: list[tuple[int, int]] = []
    with nmt.load("run", device="cpu") as teacher:
        found = nmt.distill(
            teacher, folder / "same", train="text/train", n_best=2, progress=lambda done, all: seen.append((done, all))
        )
        back = nmt.backtranslate(teacher, folder / "text/mono.gz", "back", search="sample")
        again = nmt.distill(teacher, "made", train=["text/train"], n_best=2)
        with pytest.raises(nmt.ConfigError, match="prefix: is not an option here"):
            nmt.distill(teacher, "made", prefix="x")
        with pytest.raises(nmt.ConfigError, match="text: no file is given"):
            nmt.backtranslate(teacher, [], "made")
    assert (found.lines, found.pairs, found.failed, found.skipped) == (9, 18, 0, again.skipped)
    assert seen[0] == (0, 9) and seen[-1] == (9, 9)
    assert written("same") == written("made") and again.pairs == 18
    assert back.files == (Path("back.en"), Path("back.de")) and [source for source, _ in written("back")] == MONO


def test_the_module_that_earlier_pages_name() -> None:
    command = [sys.executable, "-m", "nmt.cli.distill", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"nmt-distill {nmt.__version__}\n")
