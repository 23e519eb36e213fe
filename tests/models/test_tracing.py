"""Tracers see no C kernel: what torch.jit.trace and torch.export make of a model computes with the references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.models.base import Seq2Seq
from nmt.ops import native
from tests.models.small_model import SOURCE, TARGET, make_model

OTHER_SOURCE = torch.tensor([[3, 9, 3, 1, 0], [8, 4, 8, 6, 1], [2, 1, 0, 0, 0]])
"""Of the same shape, but not of the same lengths."""
OTHER_TARGET = torch.tensor([[9, 1, 0, 0], [3, 3, 2, 1], [4, 7, 1, 0]])


def jit(model: Seq2Seq) -> Callable[[Tensor, Tensor], Any]:
    traced: Callable[[Tensor, Tensor], Any] = torch.jit.trace(model, (SOURCE, TARGET), check_trace=False)
    return traced


def export(model: Seq2Seq) -> Callable[[Tensor, Tensor], Any]:
    exported: Callable[[Tensor, Tensor], Any] = torch.export.export(model, (SOURCE, TARGET)).module()
    return exported


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("trace", [jit, export])
@pytest.mark.parametrize(("architecture", "cell"), [("deepnmt", "lrn"), ("rnnsearch", "gru")])
def test_a_traced_model_computes_the_same_on_other_inputs(
    architecture: str, cell: str, trace: Callable[[Seq2Seq], Callable[[Tensor, Tensor], Any]]
) -> None:
    layers: dict[str, Any] = {"decoder_layers": 1, "attention_heads": 1} if architecture == "rnnsearch" else {}
    model = make_model(cell, architecture=architecture, **layers)
    traced = trace(model)
    ours, wanted = traced(OTHER_SOURCE, OTHER_TARGET), model(OTHER_SOURCE, OTHER_TARGET)
    torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-5)


class Own(Tensor):
    """A subclass, which may have no memory."""


@pytest.mark.filterwarnings("ignore")
def test_kernels_are_for_tensors_that_are_computed_now() -> None:
    x = torch.zeros(2)
    assert native.usable(x) == (native.problem() is None)
    assert not native.usable(x.as_subclass(Own))
    seen = []

    def look(y: Tensor) -> Tensor:
        seen.append(native.usable(y))
        return y + 1

    torch.jit.trace(look, (x,), check_trace=False)
    assert seen == [False]
