"""The checks that a GPU's kernels must pass before `auto` runs them, in the interpreter."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

from nmt.kernel_check import comparison
from nmt.kernel_check.cases import CHECKS, SMALL
from nmt.ops import dispatch
from nmt.ops.dispatch import Selection

MODULES = (
    "atr", "attention", "both", "conditional", "dropout", "gru", "linear_cross_entropy.chunks", "lrn", "lstm", "olrn",
    "sru",
)  # fmt: skip
TINY = SMALL._replace(sentences=2, target=3, source=4, inputs=6, hidden=8, words=20)


@pytest.mark.parametrize("operation", sorted(dispatch.TRITON_KERNELS))
def test_kernels_pass_their_checks(operation: str, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    used = set()

    def choose(name: str, reference: Any, *, like: torch.Tensor) -> Any:
        choice, verified = dispatch._selected
        if choice == "reference" or name not in verified:
            return reference
        used.add(name)
        return dispatch.load_kernel(dispatch.TRITON_KERNELS[name])

    monkeypatch.setattr(comparison, "TIMES", 1)  # more would be for graphs
    for module in MODULES:
        monkeypatch.setattr(importlib.import_module(f"nmt.ops.{module}"), "choose", choose)
    CHECKS[operation](device, TINY, torch.float32, Selection("auto", frozenset({operation})))
    assert used == {operation}
