"""Validation: the loss by tokens, metrics of real translations of every line, samples."""

from __future__ import annotations

import dataclasses
import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt.config import load_config
from nmt.data.batching import collate
from nmt.data.corpus import Corpus
from nmt.data.prepare import PreparedData, prepare
from nmt.interop.model_dir import load_model
from nmt.interop.run_layout import read_facts
from nmt.models.base import Seq2Seq
from nmt.registry import METRICS
from nmt.search.values import ScoredText, Translation
from nmt.training.distributed import World
from nmt.training.run import build_updater
from nmt.training.state import InterruptedValidationError
from nmt.training.task import task_of
from nmt.training.validation import Validator, batch_losses, mean_loss, rows_by_length
from tests.tiny_training import events, nmt_train, write_config, write_corpus

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


def prepared(folder: Path, **changes: dict[str, Any]) -> tuple[Any, PreparedData]:
    config = load_config(write_config(folder, **changes))
    return config, prepare(config, folder / "run", progress=False)


def nothing() -> None:
    """A check that never breaks off."""


def corpus_loss(model: Seq2Seq, corpus: Corpus, *, cells: int = 4096) -> float:
    return mean_loss(batch_losses(model, corpus, rows_by_length(corpus, cells=cells), device=CPU, check=nothing))


def test_loss_is_the_mean_over_tokens_not_over_batches(folder: Path) -> None:
    """With weights so large that batches differ in their mean: then the mean of these is another number."""
    config, data = prepared(folder, model={"init_range": 2.0})
    model, dev = build_updater(task_of(config), data.tokenizer, device=CPU).model.eval(), data.dev[""].corpus
    assert dev is not None
    batch = collate(dev, np.arange(len(dev)))
    losses = model.token_losses(batch.source, batch.target)
    expected = (losses.sum() / (batch.target != 0).sum()).item()
    assert corpus_loss(model, dev) == pytest.approx(expected, rel=1e-6)
    assert corpus_loss(model, dev, cells=24) == pytest.approx(expected, rel=1e-6)
    found = batch_losses(model, dev, rows_by_length(dev, cells=24), device=CPU, check=nothing)
    of_batches = sum(total / tokens for total, tokens in found) / len(found)
    assert len(found) > 2 and of_batches != pytest.approx(expected, rel=1e-2), "else this test could not fail"


def test_loss_batches_hold_every_row_once_within_the_limit(folder: Path) -> None:
    _, data = prepared(folder)
    batches = list(rows_by_length(data.train, cells=30))
    assert sorted(np.concatenate(batches)) == list(range(len(data.train)))
    longest = np.maximum(data.train.source_lengths, data.train.target_lengths)
    assert all(len(rows) == 1 or len(rows) * longest[rows].max() <= 30 for rows in batches)
    assert len(batches) < len(data.train)


def validator(data: PreparedData, translated: list[str], **fields: Any) -> Validator:
    """A validator whose search copies the source."""

    def copy(model: Seq2Seq, lines: Sequence[str]) -> Iterator[Translation]:
        translated.extend(lines)
        yield from (Translation(line, [ScoredText(line, 0.0)]) for line in lines)

    options: dict[str, Any] = {"max_sentences": None, "samples": 2, "metrics": [METRICS.get("chrf")()]} | fields
    dev = data.dev[""]
    assert dev.corpus is not None
    texts = {"sources": dev.text.source, "references": dev.references}
    return Validator(corpus=dev.corpus, translate=copy, device=CPU, **texts, **options)


def test_every_line_counts_also_the_empty_ones(folder: Path) -> None:
    for language in ("en", "de"):
        path = folder / f"dev.{language}"
        path.write_text("\n" + path.read_text() + "\n")
    config, data = prepared(folder)
    model = build_updater(task_of(config), data.tokenizer, device=CPU).model.eval()
    translated: list[str] = []
    result = validator(data, translated).validate(model, check=nothing)
    assert len(translated) == 10 and translated[0] == translated[-1] == ""
    assert result.scores["chrf"] == METRICS.get("chrf")().compute(translated, [data.dev[""].text.target]).score
    assert result.signatures["chrf"].startswith("chrF2 nrefs:1|")
    assert [sample.keys() for sample in result.samples] == [{"source", "reference", "translation"}] * 2
    assert all(sample["source"] == sample["translation"] for sample in result.samples)


def test_lines_without_a_translation_and_those_cut_are_counted(folder: Path) -> None:
    config, data = prepared(folder)
    model = build_updater(task_of(config), data.tokenizer, device=CPU).model.eval()

    def search(model: Seq2Seq, lines: Sequence[str]) -> Iterator[Translation]:
        for place, line in enumerate(lines):
            text = "" if place == 2 else line
            yield Translation(line, [ScoredText(text, 0.0)], is_finite=place != 2, has_ended=place not in (1, 4))

    found = dataclasses.replace(validator(data, []), translate=search).validate(model, check=nothing)
    assert found.faults.counts == {"not_finite": 1, "length_limit": 2}
    assert found.faults.problems == [
        "1 line without a translation with a finite score: 3",
        "2 lines stopped at the length limit: 2, 5",
    ]


def test_scores_are_against_all_sets_of_references(folder: Path) -> None:
    """The translation, which copies the source, is one of them; loss and pairs stay those of the target side."""
    (folder / "second.gz").write_bytes(gzip.compress((folder / "dev.en").read_bytes()))
    config, data = prepared(folder, data={"dev_references": [str(folder / "dev.de"), str(folder / "second.gz")]})
    model = build_updater(task_of(config), data.tokenizer, device=CPU).model.eval()
    result = validator(data, [], max_sentences=5).validate(model, check=nothing)
    assert result.scores["chrf"] == 100 and result.signatures["chrf"].startswith("chrF2 nrefs:2|")
    assert result.samples[0]["reference"] in data.dev[""].text.target
    _, alone = prepared(folder)
    assert result.scores["loss"] == validator(alone, []).validate(model, check=nothing).scores["loss"]


def test_references_that_are_split_into_subwords_are_joined_as_translations_are(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A perfect copy has the perfect score; it had 2 BLEU."""
    words = (folder / "dev.en").read_text(encoding="utf-8")
    (folder / "dev.de").write_text(words.replace("a", "@@ a"), encoding="utf-8")
    references = [str(folder / "dev.de"), str(folder / "dev.en")]
    config, data = prepared(folder, data={"dev_references": references, "test": str(folder / "dev")})
    assert data.dev[""].references == [words.splitlines()] * 2 and data.test[""].references == [words.splitlines()]
    model = build_updater(task_of(config), data.tokenizer, device=CPU).model.eval()
    result = validator(data, [], metrics=[METRICS.get("bleu")()]).validate(model, check=nothing)
    assert result.scores["bleu"] == pytest.approx(100)
    assert all(sample["reference"] == sample["translation"] for sample in result.samples)
    split = sum("a" in line for line in words.splitlines())
    assert nmt_train(write_config(folder, training={"max_steps": 1})) == 0
    said = capsys.readouterr().err
    assert f"dev: {split} of 8 reference lines are split into subwords; they are joined for scoring" in said
    assert nmt_train(write_config(folder, data={"dev": None}), "--overwrite") == 0
    assert "reference lines" not in capsys.readouterr().err


def test_test_text_has_references_of_its_own(folder: Path) -> None:
    references = [str(folder / "dev.de"), str(folder / "dev.en"), str(folder / "dev.de")]
    data = {"test": str(folder / "dev"), "test_references": references}
    assert nmt_train(write_config(folder, data=data, training={"max_steps": 1})) == 0
    (event,) = events(folder / "run", kinds=("test",))
    assert event["signatures"]["bleu"].startswith("BLEU nrefs:3|")


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        ({"dev_references": "DIR/train.de"}, 1, "DIR/train.de has 120 lines, but the text to translate 8;"),
        ({"dev_references": ["DIR/dev.de", "DIR/nothing"]}, 1, "data.dev_references.1: DIR/nothing: no such file"),
        ({"dev_references": []}, 2, "data.dev_references: [] must not be empty"),
        ({"dev": None, "dev_references": "DIR/dev.de"}, 2, "data.dev_references: needs validation data in data.dev"),
        ({"test_references": "DIR/dev.de"}, 2, "data.test_references: needs test data in data.test"),
    ],
)  # fmt: skip
def test_references_that_do_not_fit(
    folder: Path, capsys: pytest.CaptureFixture[str], data: dict[str, Any], code: int, message: str
) -> None:
    def in_folder(value: Any) -> Any:
        if isinstance(value, list):
            return [in_folder(item) for item in value]
        return value.replace("DIR", str(folder)) if isinstance(value, str) else value

    assert nmt_train(write_config(folder, data={key: in_folder(value) for key, value in data.items()})) == code
    said = capsys.readouterr().err
    assert message.replace("DIR", str(folder)) in said
    assert code == 2 or len(said.splitlines()) <= 2


def test_only_the_first_sentences_are_translated_but_the_loss_is_of_all(folder: Path) -> None:
    config, data = prepared(folder)
    model = build_updater(task_of(config), data.tokenizer, device=CPU).model.eval()
    translated: list[str] = []
    few = validator(data, translated, max_sentences=3).validate(model, check=nothing)
    assert len(translated) == 3
    assert few.scores["loss"] == validator(data, []).validate(model, check=nothing).scores["loss"]


def test_without_metrics_nothing_is_translated(folder: Path) -> None:
    config, data = prepared(folder)
    model = build_updater(task_of(config), data.tokenizer, device=CPU).model.eval()
    translated: list[str] = []
    result = validator(data, translated, metrics=[]).validate(model, check=nothing)
    assert result.scores.keys() == {"loss"} and not translated and not result.samples


def test_a_signal_breaks_validation_off(folder: Path) -> None:
    config, data = prepared(folder)
    model = build_updater(task_of(config), data.tokenizer, device=CPU).model.eval()

    def stopped() -> None:
        raise InterruptedValidationError

    with pytest.raises(InterruptedValidationError):
        validator(data, []).validate(model, check=stopped)


def test_validation_measures_what_the_saved_model_does(folder: Path) -> None:
    """With a moving average: the loss logged is that of the weights in the checkpoint, dropout off."""
    config_file = write_config(folder, training={"ema_decay": 0.9, "lr": 0.05})
    assert nmt_train(config_file) == 0
    logged = events(folder / "run", kinds=("validation",))[-1]
    model, _, config, *_ = load_model(folder / "run", checkpoint="last")
    data = prepare(config, folder / "run", progress=False)
    validator = task_of(config).build_validator(data, device=CPU, world=World(CPU))
    assert validator is not None
    result = validator.validate(model, check=nothing)
    assert result.scores["loss"] == pytest.approx(logged["loss"], rel=1e-6)
    assert result.scores["bleu"] == pytest.approx(logged["bleu"])
    assert result.samples == logged["samples"]
    assert (logged["not_finite"], logged["length_limit"]) == (0, result.faults.counts["length_limit"])
    assert read_facts(folder / "run").longest == max(data.train.source_lengths) - 1


def test_weights_of_an_ensemble_are_for_translation_with_several_models_alone(folder: Path) -> None:
    """A configuration that names them for later is trained and validated with its one model."""
    changes = {"training": {"max_steps": 1, "validate_every": 1}, "data": {"test": str(folder / "dev")}}
    weights = {"ensemble_weights": [1.0, 3.0]}
    assert nmt_train(write_config(folder, decoding=weights, **changes)) == 0
    (validation,), (test,) = (events(folder / "run", kinds=(kind,)) for kind in ("validation", "test"))
    assert test["bleu"] == validation["bleu"]
