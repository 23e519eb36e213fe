"""Parts of a model that stay as they are while the others are trained."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.tiny_training import nmt_train, training_state, write_config, write_corpus

PARTS = ["embeddings", "encoder", "initial_states", "decoder", "readout"]
LSTM = {"cell": "lstm", "layer_norm": True, "tie_embeddings": "none"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"step-{step}" / "model.safetensors")


def moved(run: Path, first: int, last: int) -> set[str]:
    """The parts with a weight that differs between two checkpoints."""
    before, after = weights(run, first), weights(run, last)
    return {name.partition(".")[0] for name in before if not torch.equal(before[name], after[name])}


def short(folder: Path, model: dict[str, Any] | None = None, **training: Any) -> Path:
    return write_config(
        folder, model=model or {}, training={"max_steps": 2, "save_every": 1, "validate_every": 9, **training}
    )


@pytest.mark.parametrize(
    ("model", "frozen"),
    [
        ({}, ["embeddings"]),
        ({}, PARTS[1:]),
        (LSTM, ["encoder", "readout"]),
        (LSTM, ["embeddings"]),
        ({"cell": "lrn", "decoder_layers": 2}, PARTS[:2]),
        ({"cell": "lrn", "decoder_layers": 2}, PARTS[3:]),
        ({"architecture": "rnnsearch"}, ["encoder", "decoder"]),
    ],
)
def test_frozen_parts_stay_and_the_others_move(folder: Path, model: dict[str, Any], frozen: list[str]) -> None:
    run, others = folder / "run", {"optimizer": "adamw", "optimizer_options": {"weight_decay": 0.1}}
    assert nmt_train(short(folder, model, freeze=frozen, **others)) == 0
    assert moved(run, 1, 2) == {*PARTS} - {*frozen}
    line = next(line for line in (run / "train.log").read_text().splitlines() if "embeddings " in line)
    said = re.findall(r"(\w+) ([\d,]+)( \(frozen\))?(?:, |$)", line)
    sizes = Counter[str]()
    for name, weight in weights(run, 2).items():
        sizes[name.partition(".")[0]] += weight.numel()
    assert said == [(part, f"{sizes[part]:,}", " (frozen)" * (part in frozen)) for part in PARTS]


@pytest.mark.parametrize("optimizer", ["adam", "adam_tf", "muon", "adafactor", "sgd"])
def test_what_was_frozen_is_trained_on_when_the_run_resumes(folder: Path, optimizer: str) -> None:
    run, others = folder / "run", {"optimizer": optimizer, "ema_decay": 0.5, "keep_last": 9}
    assert nmt_train(short(folder, freeze=["encoder"], **others)) == 0
    assert nmt_train(short(folder, **others, **{"max_steps": 4})) == 0
    assert moved(run, 1, 2) == {*PARTS} - {"encoder"}
    assert moved(run, 2, 4) == {*PARTS}
    assert "training.freeze: ['encoder'] -> []" in (run / "train.log").read_text()
    assert training_state(run, 4)["progress"]["step"] == 4


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["encodr"], "'encodr' is no part of this model. Did you mean 'encoder'? Allowed: embeddings, encoder, "),
        (["source_dropout"], "'source_dropout' is no part of this model."),
        (PARTS, "are all parts of this model; leave one out"),
    ],
)
def test_unknown_parts_and_all_of_them_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], names: list[str], message: str
) -> None:
    for arguments in ([], ["--dry-run"]):
        assert nmt_train(short(folder, freeze=names), *arguments) == 2
        said = capsys.readouterr().err
        assert "training.freeze" in said and message in said
    assert not (folder / "run").exists(), "found before any work"


def test_a_dry_run_counts_no_gradients_of_frozen_parts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wide = {"embedding_size": 2048}  # whose tables are most of the weights
    sizes = []
    for frozen in ([], ["embeddings"]):
        assert nmt_train(short(folder, wide, freeze=frozen), "--dry-run") == 0
        sizes.append(float(capsys.readouterr().out.split(" MiB (weights")[0].rpartition("= ")[2]))
    assert sizes[1] < sizes[0] - 0.5
