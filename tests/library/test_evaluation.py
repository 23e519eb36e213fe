"""nmt.evaluate gives the numbers of nmt-eval, for lists and files, translations and models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.dataset import DATASETS

import nmt
from nmt.evaluating import command
from tests.library.conftest import SENTENCES

SYSTEM = ["the cat sat on a mat", "a dog ran away", "two birds sing"]
REFERENCE = ["the cat sat on the mat", "the dog ran away", "two birds sing"]
OTHER = ["a cat was on the mat", "a dog has run away", "birds sing"]


def written(folder: Path, **texts: list[str]) -> list[str]:
    """Files of the texts."""
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [str(folder / name) for name in texts]


def test_it_gives_what_the_command_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hypotheses, first, second, base = written(tmp_path, hyp=SYSTEM, ref=REFERENCE, other=OTHER, base=OTHER)
    arguments = ["--hyp", hypotheses, "--ref", first, second, "--baseline", base, "--by-length", "--lowercase"]
    assert command.main([*arguments, "--json", "--samples", "50"]) == 0
    wanted = json.loads(capsys.readouterr().out)
    options: dict[str, Any] = {"lowercase": True, "by_length": True, "samples": 50}
    found = nmt.evaluate(SYSTEM, [REFERENCE, OTHER], baselines={base: OTHER}, **options)
    assert found.as_json() == wanted
    assert nmt.evaluate(hypotheses, [Path(first), Path(second)], baselines={base: base}, **options).as_json() == wanted
    assert found["bleu"] == found.scores["bleu"].score == wanted[0]["score"]
    assert repr(found).startswith("Evaluation(BLEU ")
    assert command.main(["--hyp", hypotheses, "--ref", first]) == 0
    assert str(nmt.evaluate(SYSTEM, REFERENCE)) + "\n" == capsys.readouterr().out


def test_several_systems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, reference = written(tmp_path, first=OTHER, second=SYSTEM, ref=REFERENCE)
    arguments = ["--hyp", first, second, "--ref", reference, "--samples", "40", "--confidence", "--json"]
    assert command.main([*arguments, "--significance", "approximate", "--metrics", "bleu", "chrf++"]) == 0
    options: dict[str, Any] = {"samples": 40, "confidence": True, "significance": "approximate"}
    found = nmt.evaluate({first: OTHER, second: second}, REFERENCE, metrics=["bleu", "chrf++"], **options)
    assert found.as_json() == json.loads(capsys.readouterr().out)
    assert list(found.systems) == [first, second]
    compared = {name: [base for base, _ in results["bleu"].comparisons] for name, results in found.measured.items()}
    assert compared == {first: [], second: [first]}
    one = found.systems[second]
    assert one["chrf++"] == nmt.evaluate(SYSTEM, REFERENCE, metrics=["chrf++"])["chrf++"]
    assert one.scores["bleu"].breakdown is not None and one.scores["bleu"].breakdown.ratio == 12 / 12
    assert "$\\pm$" in found.as_table("latex") and "| system |" in found.as_table("markdown")
    with pytest.raises(nmt.ConfigError, match="there are 2 systems: choose one, as in evaluation.systems"):
        found["bleu"]


def test_a_published_test_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: nmt.Translator) -> None:
    monkeypatch.setattr(DATASETS["wmt14"], "_outdir", str(tmp_path))
    for field, lines in (("src", OTHER), ("ref", REFERENCE)):
        (tmp_path / f"wmt14.en-de.{field}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    pair: dict[str, Any] = {"test_set": "wmt14", "language_pair": "en-de"}
    assert nmt.evaluate(SYSTEM, **pair).as_json() == nmt.evaluate(SYSTEM, REFERENCE).as_json()
    found = nmt.evaluate(model=local, **pair)
    assert found.translations is not None and len(found.translations) == len(REFERENCE)
    assert found.as_json() == nmt.evaluate(model=local, source=OTHER, references=REFERENCE).as_json()


def test_a_given_tokenizer_goes_before_that_of_the_test_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DATASETS["wmt19"], "_outdir", str(tmp_path))
    for field, lines in (("src", OTHER), ("ref", REFERENCE)):
        (tmp_path / f"wmt19.en-zh.{field}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for given, used in (({}, "zh"), ({"tokenize": "char"}, "char")):
        found = nmt.evaluate(SYSTEM, test_set="wmt19", language_pair="en-zh", metrics=["bleu"], **given)  # type: ignore
        assert f"|tok:{used}|" in found.scores["bleu"].signature


def test_a_model_translates_first(tiny_run: Path, local: nmt.Translator) -> None:
    references = ["x y"] * 7 + ["t@@ u"]
    found = [
        nmt.evaluate(model=model, source=SENTENCES, references=references, beam_size=2) for model in (local, tiny_run)
    ]
    assert found[0].as_json() == found[1].as_json()
    assert found[0].translations is not None and len(found[0].translations) == len(SENTENCES)
    texts = [result.text for result in local.translate(SENTENCES, beam_size=2)]
    assert nmt.evaluate(texts, ["x y"] * 7 + ["tu"]).as_json() == found[0].as_json()


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({}, nmt.ConfigError, "nothing to score; give hypotheses, or a model and the source"),
        (
            {"hypotheses": SYSTEM, "model": "run", "source": SYSTEM},
            nmt.ConfigError,
            "nothing to score; give hypotheses",
        ),
        ({"hypotheses": SYSTEM, "beam_size": 3}, nmt.ConfigError, "beam_size: allowed only with a model"),
        (
            {"hypotheses": SYSTEM[:2]},
            nmt.DataError,
            "hypotheses: 2 sentences, but references: 3; their numbers must be",
        ),
        (
            {"hypotheses": SYSTEM, "baselines": {"old": OTHER[:2]}},
            nmt.DataError,
            "hypotheses: 3 sentences, but baseline old: 2; their numbers must be",
        ),
        ({"hypotheses": []}, nmt.DataError, "hypotheses: 0 sentences, but references: 3"),
        ({"hypotheses": [], "references": []}, nmt.DataError, "hypotheses: has no sentence"),
        ({"hypotheses": "missing"}, nmt.DataError, "missing: "),
        ({"hypotheses": [b"a"] * 3}, TypeError, "hypotheses[0] must be a string, not bytes"),
        ({"hypotheses": SYSTEM, "references": 3}, TypeError, "references must be a file or a list of strings, not int"),
        ({"hypotheses": SYSTEM, "metrics": ["bleurt"]}, nmt.ConfigError, "'bleurt' is not a known metric."),
        (
            {"hypotheses": SYSTEM, "metrics": ["ter"], "tokenize": "13a"},
            nmt.ConfigError,
            "tokenize: no requested metric",
        ),
        ({"hypotheses": SYSTEM, "baselines": [OTHER]}, TypeError, "baselines must be a mapping"),
        ({"hypotheses": {}}, nmt.ConfigError, "hypotheses: has no system"),
        ({"hypotheses": SYSTEM, "significance": "approximate"}, nmt.ConfigError, "significance: needs something to"),
        ({"hypotheses": SYSTEM, "significance": "t"}, nmt.ConfigError, "significance: 't' is not a known test."),
        (
            {"hypotheses": SYSTEM, "test_set": "wmt14"},
            nmt.ConfigError,
            "the test set wmt14 already has source and references",
        ),
        (
            {"hypotheses": SYSTEM, "language_pair": "ende"},
            nmt.ConfigError,
            "language_pair: 'ende' is not a language pair. Allowed: two codes, such as en-de.",
        ),
        ({"model": "run"}, nmt.ConfigError, "nothing to score; give hypotheses"),
        ({"hypotheses": SYSTEM, "samples": 0, "baselines": {}}, nmt.ConfigError, "samples and seed must be 1 or more"),
    ],
)
def test_mistakes_are_one_line(arguments: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        nmt.evaluate(**{"references": REFERENCE, **arguments})
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
