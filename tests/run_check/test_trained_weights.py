"""nmt-check looks at the trained weights, too, where a checkpoint has their moving average as its weights."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from nmt.run_check import command as check
from nmt.training.run_dir import read_checkpoint, trained_weights, write_arrays
from tests.tiny_training import nmt_train, write_config, write_corpus


def test_nan_among_them_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_corpus(tmp_path)
    assert nmt_train(write_config(tmp_path, training={"ema_decay": 0.9})) == 0
    folder = tmp_path / "run" / "checkpoints" / "step-12"
    loaded = read_checkpoint(folder)
    name, weight = next(iter(trained_weights(loaded.state).items()))
    weight.view(-1)[0] = math.nan
    write_arrays(folder, weights=loaded.weights, state=loaded.state)
    capsys.readouterr()
    assert check.main([str(tmp_path / "run"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    (problem,) = found["problems"]
    assert "step-12/training.pt" in problem and f"{name} contains NaN" in problem
    assert found["resume"] == 6 and found["translate"] == [6, 12]
