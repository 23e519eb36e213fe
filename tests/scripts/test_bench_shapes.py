"""scripts/bench_shapes.py: what its tables compare."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def bench_shapes() -> ModuleType:
    sys.path.insert(0, str(REPOSITORY / "scripts"))
    try:
        import bench_shapes as module
    finally:
        sys.path.remove(str(REPOSITORY / "scripts"))
    return module


def test_ratios_are_of_the_same_search(bench_shapes: ModuleType) -> None:
    results = {
        "LRN, greedy": [{"batch": 300.0, "alone_ms": 1.0}, {"batch": 500.0, "alone_ms": 3.0}],
        "LRN, beam 5": [{"batch": 10.0, "alone_ms": 8.0}],
        "CTranslate2 4+1, greedy": [{"batch": 200.0, "alone_ms": 3.0}],
        "LRN, long": [{"long_ms": [1.0, 2.0]}],
    }
    found = bench_shapes.report(results)
    assert "| LRN, greedy | 400 | 2.00 |  |  | 2.000 | 1.50 |  |  |" in found
    assert "| LRN, beam 5 | 10 |  |  |  | 8.000 |  |  |  |" in found
    assert "| LRN, long | 1.0 | 2.0 |  |  |" in found


def test_the_published_column(bench_shapes: ModuleType) -> None:
    found = bench_shapes.wmt14_report({"lrn": [{"batch_ms": 32.0, "alone_ms": 70.0}]})
    assert found[-2].startswith("| LRN | 32.0 | 70.0 |") and found[-2].endswith("| 36.5 |")
