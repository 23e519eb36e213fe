"""Checkpoints in TensorFlow's own files: one that lies here, and ones that TensorFlow's Saver writes for the test."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt import zero
from nmt.interop.model_dir import load_model
from tests.conftest import REPOSITORY, golden_names
from tests.console import call
from tests.zero.files import (
    convert,
    tiny_hyper_parameters,
    tiny_model,
    write_checkpoint,
    write_golden,
    write_vocabularies,
)
from tests.zero.tensorflow_extra import run_with, tensorflow_folder

FIXTURE = REPOSITORY / "tests" / "fixtures" / "zero_checkpoint"
HYPER = {
    **{"model_name": "deepnmt", "cell": "lrn", "hidden_size": 6, "embed_size": 5, "num_heads": 2, "scope_name": "nmt"},
    **{"num_encoder_layer": 1, "num_decoder_layer": 2, "shared_target_softmax_embedding": False},
}
NEEDED = "TensorFlow is not installed (pip install nmt-recurrent[tensorflow])"


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """The checkpoint that lies here, with hyper-parameters and vocabularies; the options of nmt-convert."""
    shutil.copytree(FIXTURE, tmp_path / "zero")
    (tmp_path / "zero" / "param.json").write_text(json.dumps(HYPER))
    return ["--checkpoint", str(tmp_path / "zero"), *write_vocabularies(tmp_path, (9, 10))]


def assert_weights(model: Path, arrays: Any) -> None:
    """The model has exactly these weights."""
    found = zero.to_arrays(load_model(model).model)
    assert found.keys() == set(arrays.files)
    assert all(np.array_equal(found[name], arrays[name]) for name in arrays.files)


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason=NEEDED)
@pytest.mark.parametrize("path", ["zero", "zero/model-1000", "zero/model-1000.index"])
def test_the_checkpoint_that_lies_here(path: str, options: list[str], tmp_path: Path) -> None:
    options[1] = str(tmp_path / path)
    assert convert(options, tmp_path / "ours") == 0
    assert_weights(tmp_path / "ours", np.load(FIXTURE / "weights.npz"))
    assert convert(options, tmp_path / "averages", "--moving-averages") == 0
    assert_weights(tmp_path / "averages", np.load(FIXTURE / "averages.npz"))


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason=NEEDED)
@pytest.mark.parametrize("part", ["index", "data-00000-of-00001"])
def test_damaged_files(part: str, options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "zero" / f"model-1000.{part}"
    file.write_bytes(file.read_bytes()[:-5000])
    assert convert(options, tmp_path / "ours") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "zero" / "model-1000") in line and "cannot" in line


def test_without_tensorflow(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert convert(options, tmp_path / "ours") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "model-1000: reading TensorFlow's files needs TensorFlow" in line
    assert "pip install nmt-recurrent[tensorflow], or save its variables as FILE.npz" in line


@pytest.fixture(scope="module")
def tensorflow() -> str:
    return tensorflow_folder()


def save(tensorflow: str, arrays: Path, folder: Path) -> None:
    """Write a checkpoint of these arrays with tf.compat.v1.train.Saver."""
    folder.mkdir()
    script = str(REPOSITORY / "tests" / "fixtures" / "write_checkpoint.py")
    done = run_with(tensorflow, script, str(arrays), str(folder))
    assert done.returncode == 0, done.stderr
    assert {"checkpoint", "model-1000.index", "model-1000.meta"} <= {path.name for path in folder.iterdir()}


def convert_with(tensorflow: str, *arguments: str) -> None:
    """nmt-convert zero in a process of its own, which says nothing but what nmt has to say."""
    done = run_with(tensorflow, "-m", "nmt.cli.convert", "zero", *arguments)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if not line.startswith("nmt-convert: ")] == []


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["gru", "sru"])
def test_what_the_saver_writes(cell: str, tensorflow: str, tmp_path: Path) -> None:
    config, arrays = tiny_model(cell=cell)
    _, *vocabularies = write_checkpoint(tmp_path, arrays)[1:]
    save(tensorflow, tmp_path / "model.npz", tmp_path / "zero")
    (tmp_path / "zero" / "param.json").write_text(json.dumps(tiny_hyper_parameters(config)))
    options = ["--checkpoint", str(tmp_path / "zero"), *vocabularies]
    convert_with(tensorflow, *options, "-o", str(tmp_path / "ours"))
    assert_weights(tmp_path / "ours", np.load(tmp_path / "model.npz"))
    convert_with(tensorflow, *options, "-o", str(tmp_path / "averages"), "--moving-averages")
    assert_weights(tmp_path / "averages", np.load(tmp_path / "zero" / "averages.npz"))


@pytest.mark.slow
def test_the_checkpoint_that_lies_here_with_the_extra(tensorflow: str, options: list[str], tmp_path: Path) -> None:
    convert_with(tensorflow, *options, "-o", str(tmp_path / "ours"))
    assert_weights(tmp_path / "ours", np.load(FIXTURE / "weights.npz"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*golden_names("deepnmt_")[::6], *golden_names("rnnsearch_")[::6]])
def test_scores_from_tensorflows_files_are_those_of_zero(
    name: str, tensorflow: str, golden: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, arrays = golden(name)
    _, _, *rest = write_golden(tmp_path, config, arrays)
    np.savez(
        tmp_path / "model.npz", **{k.removeprefix("var/"): arrays[k] for k in arrays.files if k.startswith("var/")}
    )
    save(tensorflow, tmp_path / "model.npz", tmp_path / "zero")
    convert_with(tensorflow, "--checkpoint", str(tmp_path / "zero"), *rest, "-o", str(tmp_path / "ours"))
    source, target = (str(tmp_path / f"{side}.txt") for side in ("source", "target"))
    capsys.readouterr()
    pair = ("--source", source, "--target", target, "--json", "--device", "cpu")
    assert call("nmt-score", str(tmp_path / "ours"), *pair) == 0
    np.testing.assert_allclose(json.loads(capsys.readouterr().out)["scores"], arrays["out/score"], rtol=0, atol=1e-5)
    assert convert(["--checkpoint", str(tmp_path / "model.npz"), *rest], tmp_path / "arrays") == 0
    texts = []
    for model in ("ours", "arrays"):  # what the latter translates is compared with Zero in test_zero_convert.py
        output = tmp_path / f"{model}.txt"
        assert call("nmt-translate", str(tmp_path / model), "-i", source, "-o", str(output), "--device", "cpu") == 0
        texts.append(output.read_text())
    assert texts[0] == texts[1] and len(texts[0].splitlines()) == len(arrays["in/source"])
