"""Which number format a search computes in, on a CPU with bf16 arithmetic and on one without."""

from __future__ import annotations

import pytest
import torch

from nmt.search import ensemble as precision
from nmt.search.ensemble import choose_search_precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("hardware", "requested", "name", "bf16"),
    [
        ("AVX-512", "auto", "bf16", True),
        (None, "auto", "fp32", False),
        ("AVX-512", "int8", "int8", True),
        (None, "int8", "int8", False),
        ("AVX-512", "fp32", "fp32", False),
        ("AVX-512", "bf16", "bf16", True),
        (None, "bf16", "bf16", True),
    ],
)
def test_what_suits_the_cpu_is_taken(
    monkeypatch: pytest.MonkeyPatch, hardware: str | None, requested: precision.PrecisionName, name: str, bf16: bool
) -> None:
    monkeypatch.setattr(precision, "bf16_hardware", lambda device: hardware)
    chosen = choose_search_precision(requested, device=CPU)
    assert (chosen.name, chosen.bf16) == (name, bf16)
    with chosen.autocast():
        assert torch.is_autocast_enabled("cpu") is bf16
    slow = requested == "bf16" and hardware is None
    assert ("slow here" in str(chosen)) is slow
