"""Every pair of units, of encoder and decoder, through the commands: trained, killed, resumed, checked, translated."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from nmt.cells.base import InputGatedCell
from nmt.cli import translate
from nmt.config import load_saved
from nmt.registry import CELLS
from nmt.run_check import command as check
from tests.models.small_model import PAIRS
from tests.tiny_training import before_step, nmt_train, same, training_state, write_config, write_corpus

UNITS = [encoder for encoder, _ in PAIRS]


def cases() -> list[Any]:
    """By default pairs of different units, in which each unit is once the encoder's and once the decoder's.

    Those of units whose gates look at the input alone are in one architecture.
    """
    found = []
    for architecture, encoder, decoder in itertools.product(("deepnmt", "rnnsearch"), UNITS, UNITS):
        alike = any(issubclass(CELLS.get(unit), InputGatedCell) for unit in (encoder, decoder))
        chosen = (encoder, decoder) in PAIRS and (architecture == "deepnmt" or not alike)
        found.append(pytest.param(architecture, encoder, decoder, marks=() if chosen else pytest.mark.slow))
    return found


def crash() -> None:
    """As if the process were killed: nothing is saved any more."""
    raise RuntimeError("killed")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small corpus, whose encoded form the runs of all tests share."""
    folder = tmp_path_factory.mktemp("units")
    write_corpus(folder, train=40, dev=4)
    return folder


@pytest.mark.parametrize(("architecture", "encoder", "decoder"), cases())
def test_trained_resumed_and_translated(
    prepared: Path, tmp_path: Path, architecture: str, encoder: str, decoder: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """An update after a checkpoint is lost with the process; the run still ends with the bits of an undisturbed one."""
    layers = {"encoder_layers": 2, "decoder_layers": 2} if architecture == "deepnmt" else {}
    config = write_config(
        prepared,
        model={"architecture": architecture, "cell": encoder, "decoder_cell": decoder, **layers},
        data={"cache_dir": str(prepared / "cache")},
        training={"max_steps": 4, "validate_every": 4, "save_every": 2},
        evaluation={"metrics": []},
    )
    straight, resumed = tmp_path / "straight", tmp_path / "resumed"
    assert nmt_train(config, "--set", f"run_dir={straight}") == 0
    units = encoder if encoder == decoder else f"encoder {encoder}, decoder {decoder}"
    assert f"model {architecture} {units}, {2 if layers else 1} + " in capsys.readouterr().err
    with monkeypatch.context() as patch:
        before_step(patch, 3, crash)
        assert nmt_train(config, "--set", f"run_dir={resumed}") == 1
    assert nmt_train(config, "--set", f"run_dir={resumed}") == 0
    files = [run / "checkpoints/step-4/model.safetensors" for run in (straight, resumed)]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert same(training_state(straight, 4), training_state(resumed, 4))
    before, after = (load_file(resumed / f"checkpoints/step-{step}/model.safetensors") for step in (2, 4))
    for side in ("encoder.", "decoder."):
        weights = [name for name in before if name.startswith(side) and name.endswith("input_weight")]
        assert weights and not any(before[name].equal(after[name]) for name in weights)
    saved = load_saved(resumed / "config.yaml").model
    assert [saved.unit_of(side).name for side in ("encoder", "decoder")] == [encoder, decoder]
    assert check.main([str(resumed)]) == 0
    source, output = str(prepared / "dev.en"), tmp_path / "out"
    for options in (["--beam-size", "1"], ["--beam-size", "3"], ["--beam-size", "3", "--precision", "int8"]):
        assert translate.main([str(resumed), "-i", source, "-o", str(output), *options]) == 0
        assert len(output.read_text().splitlines()) == 4
    shutil.rmtree(tmp_path)
