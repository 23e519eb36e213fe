"""A language model in the search from configuration and command line: training, translating, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import nmt
from nmt.cli import translate
from nmt.data import Vocabulary
from nmt.data.whitespace import WhitespaceOptions, WhitespaceTokenizer
from nmt.evaluating import command as evaluate
from tests.tiny_language_model import make_language_model, target_words
from tests.tiny_run import make_run
from tests.tiny_training import events, nmt_train, write_config, write_corpus

TEXT = ["a b c", "d", "a b c d a b", "long@@ er b"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fusion")
    make_run(folder / "run")
    make_language_model(folder / "lm", target_words())
    (folder / "text").write_text("".join(f"{line}\n" for line in TEXT))
    return folder


def translated(folder: Path, *options: str) -> list[str]:
    out = folder / "out"
    assert translate.main([str(folder / "run"), "-i", str(folder / "text"), "-o", str(out), "-q", *options]) == 0
    return out.read_text().splitlines()


def test_everything_that_translates_has_it_by_the_same_options(folder: Path) -> None:
    """Command line, library, and the configuration of the model."""
    plain = translated(folder)
    fused = translated(folder, "--language-model", str(folder / "lm"), "--language-model-weight", "2")
    assert fused != plain == translated(folder, "--language-model", "none")
    options: dict[str, Any] = {"language_model": folder / "lm", "language_model_weight": 2.0}
    with nmt.load(folder / "run") as translator:
        assert [one.text for one in translator.translate(TEXT, **options)] == fused
        assert [one.text for one in translator.translate(TEXT)] == plain
    make_run(folder / "own")
    for path in [folder / "own/config.yaml", *(folder / "own/checkpoints").glob("*/config.yaml")]:
        config = yaml.safe_load(path.read_text())
        config["decoding"] |= {"language_model": str(folder / "lm"), "language_model_weight": 2.0}
        path.write_text(yaml.safe_dump(config))
    with nmt.load(folder / "own") as translator:
        assert [one.text for one in translator.translate(TEXT)] == fused
        assert [one.text for one in translator.translate(TEXT, language_model="none")] == plain


def test_token_scores_are_the_models_own(folder: Path) -> None:
    """Of a translation that both find the tokens score alike; what the search ranks by does not."""
    own = ("--format", "jsonl", "--with", "tokens,scores", "--n-best", "3", "--beam-size", "3")
    plain = [json.loads(line) for line in translated(folder, *own)]
    fused = [json.loads(line) for line in translated(folder, *own, "--language-model", str(folder / "lm"))]
    both = 0
    for one, other in zip(plain, fused, strict=True):
        for mine in one["translations"]:
            for theirs in other["translations"]:
                if mine["tokens"] == theirs["tokens"]:
                    both += 1
                    assert mine["token_scores"] == pytest.approx(theirs["token_scores"], rel=1e-4)
                    assert theirs["score"] < mine["score"]
    assert both > 2


def test_systems_are_evaluated_with_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "reference").write_text("".join(f"{line}\n" for line in ["x y", "z", "u v w", "x"]))
    texts = ["--source", str(folder / "text"), "--ref", str(folder / "reference")]
    assert evaluate.main([str(folder / "run"), *texts, "--language-model", str(folder / "lm")]) == 0
    assert "BLEU" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--language-model", "{0}/none"), 1, "none: no such directory; give a run"),
        (("--language-model", "{0}/run"), 1, "run: is a model of the task translation, but a model of language_model"),
        (("--language-model-weight", "0.3"), 2, "--language-model-weight: has no effect without decoding."),
        (("--language-model", "{0}/lm", "--language-model-weight", "-1"), 2, "'-1' is not a number from 0 to 10"),
    ],
)
def test_mistakes_are_named_in_one_line(
    folder: Path, options: tuple[str, ...], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [option.format(folder) for option in options]
    assert translate.main([str(folder / "run"), "-i", str(folder / "text"), "-q", *arguments]) == code
    said = capsys.readouterr().err
    assert message in said and (code == 2 or len(said.splitlines()) == 1)


def test_training_validates_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_corpus(tmp_path)
    assert nmt_train(write_config(tmp_path)) == 0
    known = Vocabulary.from_file(tmp_path / "run/tokenizer/target.vocab")
    make_language_model(tmp_path / "lm", WhitespaceTokenizer(known, known, options=WhitespaceOptions(joint=True)))
    scores = []
    for name, decoding in (
        ("plain", {}),
        ("fused", {"language_model": str(tmp_path / "lm"), "language_model_weight": 10.0}),
    ):
        config = yaml.safe_load(write_config(tmp_path).read_text())
        config["run_dir"] = str(tmp_path / name)
        config["decoding"] |= decoding
        config["evaluation"]["keep_translations"] = True
        (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(config))
        assert nmt_train(tmp_path / "tiny.yaml") == 0
        scores.append([event["loss"] for event in events(tmp_path / name, kinds=("validation",))])
    assert scores[0] == scores[1]  # of the translation model alone
    first, second = ((tmp_path / name / "validation/step-12.txt").read_text() for name in ("plain", "fused"))
    assert first != second
    capsys.readouterr()
    (tmp_path / "lm/checkpoints").rename(tmp_path / "lm/gone")
    config["run_dir"] = str(tmp_path / "third")
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(config))
    assert nmt_train(tmp_path / "tiny.yaml") == 1
    assert "decoding.language_model: " in capsys.readouterr().err
