"""scripts/scaling_model.py: docs/several_gpus.md shows what it prints, and the arithmetic is that of the page."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest

from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def script() -> ModuleType:
    sys.path.insert(0, str(REPOSITORY / "scripts"))
    try:
        return importlib.import_module("scaling_model")
    finally:
        sys.path.remove(str(REPOSITORY / "scripts"))


def test_the_page_shows_what_it_prints(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([]) == 0
    assert capsys.readouterr().out in (REPOSITORY / "docs/several_gpus.md").read_text(encoding="utf-8")


def test_bytes_over_bandwidth_and_a_latency_for_each_piece(script: ModuleType) -> None:
    model = script.Model(parameters=10**8, source=10**7, target=2 * 10**7, bucket=10**8)
    assert model.exchange(1, 1e9) == 0
    assert model.exchange(8, 1e9) == pytest.approx(4e8 * 2 * 7 / 8 / 365e9 + 6 * 23e-6)  # nothing leaves the node
    assert model.exchange(16, 1e9) == pytest.approx(4e8 * 2 * 15 / 16 / 1e9 + 6 * 46e-6)
    assert model.exchange(64, 1e9) == pytest.approx(4e8 * 2 * 63 / 64 / 1e9 + 6 * 66e-6)
    assert model.compute(1000) == pytest.approx(10e-3 + 1000 * 6 * 3e7 / (989e12 / 4))
