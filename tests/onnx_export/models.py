"""ONNX graphs of small random models, run by ONNX Runtime."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nmt.interop.engine.lowering import lower
from nmt.models.base import Seq2Seq

onnx = pytest.importorskip("onnx", reason="the extra [onnx] is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

Feed = dict[str, NDArray[Any]]


def graphs(model: Seq2Seq, *, precision: Any = "fp32") -> tuple[Any, Any]:
    """The two graphs of a model, which pass ONNX's own check."""
    from nmt.onnx_export.export import models_of

    found = models_of(
        lower(model, precision="fp32", equations=True), precision=precision, vocabulary=model.target_vocab_size
    )
    for each in found:
        # shapes cannot be inferred for operators of ONNX Runtime's own
        onnx.checker.check_model(each, full_check=precision == "fp32")
    return found


class Runner:
    """The graphs of a model in ONNX Runtime."""

    def __init__(self, encoder: bytes, step: bytes) -> None:
        self.encoder, self.step = _session(encoder), _session(step)

    def start(self, source: NDArray[Any]) -> Feed:
        """What the first step of sentences [B, S] reads."""
        return {**_run(self.encoder, {"source": source}), "tokens": np.zeros(len(source), np.int64)}

    def scored(self, feed: Feed) -> Feed:
        """What a step puts out."""
        return _run(self.step, feed)


def runner(model: Seq2Seq, *, precision: Any = "fp32") -> Runner:
    """The graphs of a model, loaded."""
    encoder, step = graphs(model, precision=precision)
    return Runner(encoder.SerializeToString(), step.SerializeToString())


def followed(feed: Feed, results: Feed, tokens: NDArray[Any]) -> Feed:
    """What the next step reads after these words."""
    return {**{name: results.get(f"next_{name}", value) for name, value in feed.items()}, "tokens": tokens}


def example(folder: Path) -> Any:
    """`translate` of the example in the card of an exported folder, which is the working directory."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", (folder / "README.md").read_text("utf-8"), flags=re.M | re.S)
    assert len(code.splitlines()) <= 45
    names: dict[str, Any] = {}
    exec(code, names)
    return names["translate"]


def _session(content: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _run(graph: Any, feed: Feed) -> Feed:
    names = [each.name for each in graph.get_outputs()]
    return dict(zip(names, graph.run(names, feed), strict=True))
