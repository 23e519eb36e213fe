"""The plugin fading.py, for the tests of what its cell runs by."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.cells.base import Cell
from nmt.config import import_plugins
from nmt.ops.unit import UNITS
from nmt.registry import CELLS


@contextlib.contextmanager
def plugin() -> Iterator[Any]:
    """Its cell, registered as long as this lasts."""
    import_plugins([Path(__file__).with_name("fading.py")])
    try:
        yield CELLS.get("fading")
    finally:
        del sys.modules[CELLS._members.pop("fading").__module__], UNITS["fading"]


def cell_results(cell: Cell[Any], x: Tensor, mask: Tensor | None, *, reverse: bool) -> list[Tensor]:
    """Outputs and last state of a cell over x [B, T, D], then the gradients of x and of its parameters."""
    x = x.detach().requires_grad_()
    outputs, state = cell.sequence(cell.project(x), None, mask, reverse=reverse)
    results = outputs, *state
    upstream = [torch.linspace(-1, 1, part.numel()).view(part.shape).to(part) for part in results]
    return [*results, *torch.autograd.grad(results, [x, *cell.parameters()], upstream)]
