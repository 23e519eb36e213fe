"""Several models given to nmt-translate, nmt-eval and nmt-score: what comes out, and one line where they do not fit."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from nmt.cli import translate
from nmt.data import Vocabulary
from nmt.data.whitespace import WhitespaceOptions, WhitespaceTokenizer
from nmt.evaluating import command as evaluate
from nmt.interop.model_dir import load_model, load_models, tokenizer_difference
from nmt.scoring import command as score
from nmt.search.reading import score_pairs
from nmt.search.translator import Translator
from tests.tiny_run import SOURCE_WORDS, TARGET_WORDS, make_run

TEXT = ["a b c", "", "d", "a b unknown", "long@@ er c a", "c c"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Three runs of other weights, of which the first has settings of its own."""
    folder = tmp_path_factory.mktemp("runs")
    found = [make_run(folder / name, steps=steps, best=steps[:1]) for name, steps in RUNS.items()]
    for path in (found[0] / "config.yaml", *found[0].glob("checkpoints/*/config.yaml")):
        path.write_text(path.read_text().replace("beam_size: 3", "beam_size: 2"))
    return [str(run) for run in found]


RUNS = {"first": (10, 20), "second": (30, 20), "third": (40,)}


@pytest.fixture
def text(tmp_path: Path) -> str:
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in TEXT))
    return str(tmp_path / "text")


def tokenizer(
    source: list[str] = SOURCE_WORDS, target: list[str] = TARGET_WORDS, *, separator: str = "@@"
) -> WhitespaceTokenizer:
    return WhitespaceTokenizer(Vocabulary(source), Vocabulary(target), options=WhitespaceOptions(separator=separator))


def test_translations_are_those_of_all_together(
    runs: list[str], text: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert translate.main([*runs, "-i", text, "--format", "jsonl", "--precision", "fp32"]) == 0
    out, err = capfdbinary.readouterr()
    records = [json.loads(line)["translations"][0] for line in out.splitlines()]
    first, *others = [load_model(run) for run in runs]
    translator = Translator(
        first.model, first.tokenizer, first.config.decoding, others=[other.model for other in others]
    )
    expected = [translation.hypotheses[0] for translation in translator.translations(TEXT)]
    assert [record["text"] for record in records] == [found.text for found in expected]
    assert [record["score"] for record in records] == pytest.approx([found.score for found in expected], abs=0.05)
    said = err.decode().splitlines()
    assert f"an ensemble of 3 models ({runs[0]}/checkpoints/step-10, {runs[1]}/checkpoints/step-30, " in said[0]
    assert ", beam 2, " in said[0]
    assert said[-1].split(";")[0].endswith("a second) by 3 models")


def test_settings_of_search_are_the_first_models(runs: list[str], text: str, capfd: pytest.CaptureFixture[str]) -> None:
    for models, options, beam in ((runs, [], 2), (runs[::-1], [], 3), (runs, ["--beam-size", "5"], 5)):
        assert translate.main([*models, "-i", text, *options]) == 0
        assert f", beam {beam}, " in capfd.readouterr().err


def test_a_model_twice_is_that_model(runs: list[str], text: str, capfd: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for models in (runs[:1], [runs[0], f"{runs[0]}/checkpoints/step-10"]):
        assert translate.main([*models, "-i", text, "--format", "moses", "--precision", "fp32"]) == 0
        outputs.append([line.split(" ||| ")[:2] for line in capfd.readouterr().out.splitlines()])
    assert outputs[0] == outputs[1]


def test_a_checkpoint_is_chosen_from_each_run(runs: list[str], text: str, capfd: pytest.CaptureFixture[str]) -> None:
    for checkpoint, steps in (("best", (10, 30)), ("last", (20, 30)), ("20", (20, 20))):
        assert translate.main([*runs[:2], "-i", text, "--checkpoint", checkpoint]) == 0
        said = capfd.readouterr().err.splitlines()[0]
        assert all(f"{run}/checkpoints/step-{step}" in said for run, step in zip(runs, steps, strict=False))
    assert translate.main([*runs[:2], "-i", text, "--checkpoint", "10"]) == 1
    assert capfd.readouterr().err == (f"nmt-translate: {runs[1]}: no checkpoint of step 10; existing: 20, 30\n")


def test_evaluation_translates_with_all(
    runs: list[str], text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert translate.main([*runs, "-i", text]) == 0
    translations = capfd.readouterr().out
    output = tmp_path / "out"
    arguments = ["--source", text, "--ref", text, "-o", str(output), "--metrics", "chrf"]
    assert evaluate.main(["+".join(runs), *arguments]) == 0
    assert output.read_text() == translations
    assert "a second) by 3 models;" in capfd.readouterr().err
    assert evaluate.main([runs[1], *arguments]) == 0
    assert output.read_text() != translations
    assert "a second);" in capfd.readouterr().err


def test_models_beside_each_other_are_compared(
    runs: list[str], text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each with the first one, as files with their translations are."""
    both = f"{runs[0]}+{runs[1]}"
    files = {}
    for name in (runs[0], runs[1], both):
        files[name] = str(tmp_path / f"{len(files)}.txt")
        assert translate.main([name, "-i", text, "-o", files[name]]) == 0
    (tmp_path / "reference").write_text("x y z\n\nv\nx\nlonger\nz z\n")
    arguments = ["--ref", str(tmp_path / "reference"), "--metrics", "chrf", "--samples", "50", "--format", "json"]
    assert evaluate.main(["--hyp", *files.values(), *arguments, "--labels", "a", "b", "c"]) == 0
    expected = capfd.readouterr().out
    assert [system["system"] for system in json.loads(expected)] == ["a", "b", "c"]
    for last in ([both], ["--ensemble", *runs[:2]], ["--hyp", files[both]]):
        assert evaluate.main([*runs[:2], *last, "--source", text, *arguments, "--labels", "a", "b", "c"]) == 0
        out, err = capfd.readouterr()
        assert out == expected
        told = [line for line in err.splitlines() if "are compared" in line]
        advice = f"nmt-eval: 2 models are compared; write {both} for the ensemble of them"
        assert told == ([] if "--ensemble" in last else [advice])
    assert evaluate.main([runs[0], both, "--hyp", files[both], "--source", text, *arguments]) == 0
    out, err = capfd.readouterr()
    first, *others = json.loads(out)
    assert [system["system"] for system in others] == [both, files[both]] and first["system"] == runs[0]
    assert [system["metrics"][0]["score"] for system in others] == [others[0]["metrics"][0]["score"]] * 2
    assert "are compared" not in err


def test_a_model_may_have_a_plus_sign_in_its_name(
    runs: list[str], text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of a file or folder that is there it is a part, else it joins two models."""
    for name in ("c++", f"{tmp_path}/a+b"):
        assert translate.main([name, "-i", text]) == 1
        assert capfd.readouterr().err.startswith(f"nmt-translate: {name}: no such directory")
    (tmp_path / "a").symlink_to(runs[0])
    assert translate.main([f"{tmp_path}/a+{tmp_path}/gone", "-i", text]) == 1
    assert capfd.readouterr().err.startswith(f"nmt-translate: {tmp_path}/gone: no such directory")
    (tmp_path / "a+b").symlink_to(runs[1])
    assert translate.main([f"{tmp_path}/a+b", "-i", text]) == 0
    assert "ensemble" not in capfd.readouterr().err


def test_what_does_not_go_with_several_systems(
    runs: list[str], text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    several = ["--source", text, "--ref", text]
    for given, problem in (
        ([runs[0], runs[0]], f"{runs[0]}: given twice; each MODEL is one system"),
        (
            [*runs[:2], "-o", str(tmp_path / "out")],
            "-o: needs one MODEL; for the ensemble of several write ",
        ),
        ([runs[0], "--hyp", text, "--live", "wait_k"], "--live: needs one MODEL; does not go with --hyp"),
        ([*runs[:2], "--labels", "a"], "--labels: 1 name for 2 systems; give one for each"),
        ([runs[0], "--labels", "a", "--robustness"], "--labels: does not go with --robustness"),
        ([runs[0], "--sentences", "a.tsv", "--live", "wait_k"], "--sentences: does not go with --live"),
        (
            [runs[0], "-o", "a.tsv", "--sentences", "a.tsv"],
            "--sentences a.tsv: is also the output of -o; choose another",
        ),
        ([*runs[:2], "--labels", "a", "a"], "--labels: two names are equal; give each system its own"),
        ([*runs[:2], "--ensemble-weights", "1,2"], "--ensemble-weights: 2 weights for 1 model"),
    ):
        assert evaluate.main([*given, *several]) == 2
        out, err = capfd.readouterr()
        assert out == "" and err.startswith(f"nmt-eval: {problem}") and err.count("\n") == 1
    assert not (tmp_path / "out").exists()
    other = make_run(tmp_path / "other", steps=[10])
    for path in other.rglob("config.yaml"):
        path.write_text(path.read_text().replace("target_language: de", "target_language: fr"))
    assert evaluate.main([runs[0], str(other), *several]) == 2
    assert f"{other}: translates into fr, not into de, as {runs[0]} does" in capfd.readouterr().err


def test_scores_are_those_of_all_together(
    runs: list[str], text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pairs = [("a b", "x y z"), ("c", "v"), ("d d d", "")]
    for side, name in enumerate(("s", "t")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
    files = ["--source", str(tmp_path / "s"), "--target", str(tmp_path / "t")]
    assert score.main([*runs, *files]) == 0
    out, err = capfd.readouterr()
    first, *others = [load_model(run) for run in runs]
    models = [other.model for other in others]
    expected = score_pairs(first.model, first.tokenizer, pairs, batch_tokens=60, others=models)
    assert [float(line) for line in out.splitlines()] == pytest.approx([p.mean_nll for p in expected], abs=2e-6)
    assert "by 3 models" in err
    # What several models expect on average is never less probable than what the least sure of them expects.
    single = [
        [p.mean_nll for p in score_pairs(load_model(run).model, first.tokenizer, pairs, batch_tokens=60)]
        for run in runs
    ]
    assert all(float(line) <= max(row) for line, row in zip(out.splitlines(), zip(*single, strict=True), strict=True))


def test_models_that_do_not_fit(runs: list[str], text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    other = make_run(tmp_path / "other", steps=[10])
    last = other / "checkpoints/step-10"
    (other / "tokenizer/target.vocab").write_text(
        (other / "tokenizer/target.vocab").read_text().replace("\nz\n", "\nq\n")
    )
    message = (
        f"{runs[0]}/checkpoints/step-10 and {last} cannot be one ensemble: "
        "their target vocabularies differ: id 5 is 'z' and 'q'\n"
    )
    for main, arguments in (
        (translate.main, [runs[0], runs[1], str(other), "-i", text]),
        (evaluate.main, ["--source", text, "--ref", text, "--ensemble", *runs[:2], str(other)]),
        (score.main, ["--source", text, "--target", text, "--model", *runs[:2], str(other)]),
    ):
        assert main(arguments) == 1
        out, err = capfd.readouterr()
        assert out == "" and err.partition(": ")[2] == message


def test_what_differs_is_named() -> None:
    same = tokenizer()
    assert tokenizer_difference(same, tokenizer()) is None
    assert tokenizer_difference(same, tokenizer(target=[*TARGET_WORDS, "q"])) == (
        "their target vocabularies have 10 and 11 entries"
    )
    assert tokenizer_difference(same, tokenizer(SOURCE_WORDS[1:])) == "their source vocabularies have 9 and 8 entries"
    assert tokenizer_difference(same, tokenizer(SOURCE_WORDS[::-1])) == (
        "their source vocabularies differ: id 3 is 'a' and 'er'"
    )

    class Letters(WhitespaceTokenizer):
        def fingerprint(self) -> str:
            return "letters"

    letters = Letters(Vocabulary(SOURCE_WORDS), Vocabulary(TARGET_WORDS), options=WhitespaceOptions())
    assert tokenizer_difference(same, letters) == (
        "their vocabularies are equal, but they split text into tokens differently"
    )


def test_models_that_are_not_there(
    runs: list[str],
    text: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found out before any is loaded."""
    monkeypatch.setattr("nmt.interop.model_dir.read_model", lambda *arguments, **options: pytest.fail("loaded"))
    missing = str(tmp_path / "gone")
    assert translate.main([runs[0], missing, "-i", text]) == 1
    assert capfd.readouterr().err.startswith(f"nmt-translate: {missing}: no such directory; give a run")
    assert translate.main(["-i", text]) == 2
    assert "nmt-translate: MODEL is missing" in capfd.readouterr().err
    assert evaluate.main(["--source", text, "--ref", text, "--model"]) == 2
    assert "expected at least one argument" in capfd.readouterr().err


def test_kernels_are_those_of_the_first(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[tuple[str, torch.device]] = []
    monkeypatch.setattr(
        "nmt.interop.model_dir.choose_kernels", lambda choice, *, device: chosen.append((choice, device))
    )
    loaded = [load_model(run) for run in runs[:2]]
    models = iter(
        one._replace(config=dataclasses.replace(one.config, kernels=kernels))
        for one, kernels in zip(loaded, ("reference", "auto"), strict=True)
    )
    monkeypatch.setattr("nmt.interop.model_dir.read_model", lambda path, **options: next(models))
    load_models(runs[:2])
    assert chosen[-1] == ("reference", torch.device("cpu"))
