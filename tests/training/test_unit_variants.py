"""Units in all their designs through the commands: training, resuming, translating, in both architectures."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.cli import translate
from nmt.errors import say_once
from nmt.interop.model_dir import load_model
from nmt.ops import native
from tests.tiny_training import nmt_train, same, training_state, write_config, write_corpus

VARIANTS: dict[str, dict[str, Any]] = {
    "atr, coupled": {"cell": "atr", "cell_options": {"gates": "coupled"}},
    "gru, reset after": {"cell": "gru", "cell_options": {"reset": "after"}},
    "lstm, peepholes": {"cell": "lstm", "cell_options": {"peepholes": True, "output_activation": "identity"}},
    "lrn, recurrent dropout": {"cell": "lrn", "cell_options": {}, "recurrent_dropout": 0.3},
    "rnn": {"cell": "rnn", "cell_options": {"recurrent_init": "orthogonal"}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("variants")
    write_corpus(folder)
    return folder


@pytest.mark.parametrize("architecture", ["deepnmt", "rnnsearch"])
@pytest.mark.parametrize("name", VARIANTS)
def test_train_resume_translate(folder: Path, name: str, architecture: str) -> None:
    layers = {} if architecture == "rnnsearch" else {"decoder_layers": 2, "context_aware_encoder": False}
    model = {**VARIANTS[name], "architecture": architecture, **layers}
    limits = {"max_steps": 4, "validate_every": 2}
    config = write_config(folder, model=model, training=limits, evaluation={"metrics": []})
    run = folder / "run"
    say_once.cache_clear()
    assert nmt_train(config, "--overwrite") == 0
    whole = training_state(run, 4)
    shutil.rmtree(run / "checkpoints/step-4")
    assert nmt_train(config) == 0
    assert same(training_state(run, 4), whole)
    output = folder / "out"
    assert translate.main([str(run), "-i", str(folder / "dev.en"), "-o", str(output), "--device", "cpu"]) == 0
    assert len(output.read_text(encoding="utf-8").splitlines()) == 8
    loaded = load_model(run).config.model
    notes = (
        (run / "train.log").read_text(encoding="utf-8").count("there is no kernel for it, slower PyTorch code runs.")
    )
    expected = 0 if model["cell"] == "atr" or not native.usable(torch.empty(1)) else 1
    assert notes == expected
    assert {key: loaded.cell_options[key] for key in model["cell_options"]} == model["cell_options"]
