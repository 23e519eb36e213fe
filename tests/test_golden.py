"""The reference arrays that the repository carries cover every unit, model family and part, in 4 MB."""

from __future__ import annotations

import pytest

from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "tests/golden"
UNITS = {"atr", "gru", "lrn", "lstm", "olrn", "sru"}
ONE_FOR_EACH_UNIT = ("rnn", "cond_att1", "cond_att2", "cond_one2one", "deepnmt", "rnnsearch", "beam_deepnmt")
SCHEDULES = {"cosine", "epoch", "gnmt", "noam", "score", "vanilla"}


@pytest.mark.parametrize("kind", ONE_FOR_EACH_UNIT)
def test_every_unit(kind: str) -> None:
    found = {path.stem.removeprefix(f"{kind}_").split("_")[0] for path in FOLDER.glob(f"{kind}_*.npz")}
    assert found == UNITS


@pytest.mark.parametrize("model", ["deepnmt", "rnnsearch"])
def test_every_encoder_with_and_without_layer_norm(model: str) -> None:
    found = {path.stem.split("_", 2)[2] for path in FOLDER.glob(f"{model}_*.npz")}
    assert found == {"cae0_ln0", "cae0_ln1", "cae1_ln0", "cae1_ln1"}


def test_the_rest_and_the_size() -> None:
    files = list(FOLDER.iterdir())
    names = {path.stem for path in files if path.suffix == ".npz"}
    assert {name.split("_")[1] for name in names if name.startswith("lr_")} == SCHEDULES
    assert {"bleu", "parameter_counts"} <= names and any(name.startswith("train_") for name in names)
    assert sum(path.stat().st_size for path in files) <= 4_000_000
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"{len(names)} of " in text
