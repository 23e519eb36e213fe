"""A plugin's unit with kernels of its own: on a CPU its cell runs by the one in C."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from nmt.cells.base import Cell
from nmt.ops import native
from nmt.ops.dispatch import selected
from nmt.ops.scan import NativeScan, Pair
from tests.ops.own_unit import cell_results, plugin
from tests.ops.scan_units import equation, inputs, whole
from tests.ops.triton.comparison import assert_equal, make_mask
from tests.ops.units import needs_native

pytestmark = needs_native

CPU = torch.device("cpu")
BATCH, LENGTH, WIDTH, HIDDEN = 3, 4, 6, 5


@pytest.fixture(scope="module")
def kind() -> Iterator[Any]:
    with plugin() as cell:
        yield cell


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_its_cell_runs_by_its_kernel(kind: Any, opened: bool, reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []

    def kernel(name: str, *arguments: Any, **options: Any) -> Any:
        called.append(name)
        return native.kernel(name, *arguments, **options)

    monkeypatch.setattr("nmt.ops.scan.kernel", kernel)
    cell: Cell[Any] = kind(WIDTH, HIDDEN, options=kind.Options(open=opened))
    x, mask = torch.randn(BATCH, LENGTH, WIDTH), make_mask("holes", BATCH, LENGTH, CPU)
    found = cell_results(cell, x, mask, reverse=reverse)
    assert called == ["fading_forward", "fading_backward"]
    with torch.no_grad():
        stepped = cell.search_step(cell.project(x[:, 0]), cell.initial_state(BATCH, like=x))
    with selected("reference"):
        for ours, right in zip(found, cell_results(cell, x, mask, reverse=reverse), strict=True):
            torch.testing.assert_close(ours, right)
        torch.testing.assert_close(stepped, cell.step(cell.project(x[:, 0]), cell.initial_state(BATCH, like=x)))
    assert len(called) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("opened", [False, True])
def test_its_kernel_is_its_equation(kind: Any, opened: bool, dtype: torch.dtype) -> None:
    cell = kind(1, 1, options=kind.Options(open=opened)).unit().design
    mask = make_mask("holes", BATCH, LENGTH, CPU)
    for unit in (cell, Pair(cell=cell)):
        given = inputs(unit, batch=BATCH, length=LENGTH, hidden=HIDDEN, device=CPU, dtype=dtype)
        ours, right = whole(NativeScan, unit, mask, reverse=False), equation(unit, mask, reverse=False)
        assert_equal(ours, right, given.flat, storage=dtype)
