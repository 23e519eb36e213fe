"""A plugin's unit with kernels of its own: on a GPU its cell runs by the one in Triton."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from nmt.ops.dispatch import selected
from nmt.ops.scan import Pair
from tests.ops.own_unit import cell_results, plugin
from tests.ops.scan_units import equation, inputs, whole
from tests.ops.triton.comparison import assert_equal, make_mask, randn
from tests.ops.units import by_triton

scan = pytest.importorskip("nmt.ops.scan.triton", reason="Triton is not installed")

BATCH, LENGTH, WIDTH, HIDDEN = 3, 4, 6, 5


@pytest.fixture(scope="module")
def kind() -> Iterator[Any]:
    with plugin() as cell:
        yield cell


@pytest.mark.parametrize("opened", [False, True])
def test_its_cell_runs_by_its_kernel(
    kind: Any, opened: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = kind(WIDTH, HIDDEN, options=kind.Options(open=opened)).to(device)
    x, mask = randn(BATCH, LENGTH, WIDTH, device=device), make_mask("holes", BATCH, LENGTH, device)
    with by_triton(monkeypatch) as used:
        found = cell_results(cell, x, mask, reverse=opened)
    assert used == ["sequence fading open" if opened else "sequence fading"]
    with selected("reference"):
        for ours, right in zip(found, cell_results(cell, x, mask, reverse=opened), strict=True):
            torch.testing.assert_close(ours, right)


def test_its_kernel_is_its_equation_in_a_pair(kind: Any, device: torch.device) -> None:
    unit = Pair(cell=kind(1, 1).unit().design)
    given = inputs(unit, batch=BATCH, length=LENGTH, hidden=HIDDEN, device=device)
    mask = make_mask("holes", BATCH, LENGTH, device)
    kernel, right = whole(scan.TritonScan, unit, mask, reverse=True), equation(unit, mask, reverse=True)
    assert_equal(kernel, right, given.flat)
