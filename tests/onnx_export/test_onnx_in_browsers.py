"""ONNX Runtime for browsers, run by node, finds what ONNX Runtime in Python does."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.interop.engine_models import BLOCKS, make_model, section
from tests.onnx_export.models import Runner, followed, graphs

SCRIPT = Path(__file__).parent / "onnx_in_node.js"
SOURCE, TOKENS = [5, 3, 9, 2], [0, 7, 4]
MODELS: list[dict[str, Any]] = [
    {"cell": "lrn"},
    {"cell": "gru", "context_aware_encoder": False, "attention_heads": 4},
    {"architecture": "transformer", "architecture_options": BLOCKS[0]},
    {"architecture": "transformer", "architecture_options": BLOCKS[3], "encoder_cell": "lstm", "decoder_cell": "ssru"},
]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with onnxruntime-web, installed by npm."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs node and npm")
    folder = tmp_path_factory.mktemp("node")
    try:
        command = ["npm", "install", "--no-save", "--prefix", str(folder), "onnxruntime-web"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("npm does not install onnxruntime-web within 5 minutes")
    if done.returncode:
        pytest.skip(f"npm does not install onnxruntime-web: {done.stderr.strip().splitlines()[-1:]}")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_the_graphs_in_browsers(changes: dict[str, Any], precision: str, packages: Path, tmp_path: Path) -> None:
    """In int8 as far as another way of rounding allows: how inputs are rounded depends on the processor."""
    encoder, step = (graph.SerializeToString() for graph in graphs(make_model(section(**changes)), precision=precision))
    (tmp_path / "encoder.onnx").write_bytes(encoder)
    (tmp_path / "step.onnx").write_bytes(step)
    command = ["node", str(SCRIPT), str(tmp_path), json.dumps(SOURCE), json.dumps(TOKENS)]
    done = subprocess.run(command, cwd=packages, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    python = Runner(encoder, step)
    feed = python.start(np.array([SOURCE]))
    for token, one in zip(TOKENS, found, strict=True):
        feed["tokens"] = np.array([token])
        results = python.scored(feed)
        largest = float(np.abs(results["logits"]).max())
        near = 1e-4 if precision == "fp32" else 0.1
        np.testing.assert_allclose(one["logits"], results["logits"][0], rtol=0, atol=near * largest)
        np.testing.assert_allclose(one["attention"], results["attention"][0], rtol=0, atol=near)
        feed = followed(feed, results, feed["tokens"])
