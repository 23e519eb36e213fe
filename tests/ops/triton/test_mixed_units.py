"""Whole models with another unit in the encoder than in the decoder, on their kernels: values and all gradients."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from nmt.models import decoder as decoders
from nmt.models import encoder as encoders
from nmt.ops import dispatch
from nmt.ops.scan import ScanUnit
from nmt.ops.unit import UNITS
from tests.models.small_model import ARCHITECTURES, PAIRS, everything, make_model
from tests.models.two_cells import check
from tests.ops.units import by_triton


def cases() -> list[Any]:
    """One by default: in Triton's interpreter a model takes seconds."""
    every = [(*pair, architecture) for architecture in ("plain", "deepnmt") for pair in PAIRS]
    return [pytest.param(*case, marks=() if case == ("sru", "lrn", "plain") else pytest.mark.slow) for case in every]


@pytest.mark.parametrize(("encoder", "decoder", "architecture"), cases())
def test_kernels_find_what_the_reference_finds(
    encoder: str, decoder: str, architecture: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model("gru", encoder_cell=encoder, decoder_cell=decoder, **ARCHITECTURES[architecture]).to(device)
    with dispatch.selected("reference"):
        wanted = everything(copy.deepcopy(model).double())
    for module in (decoders, encoders):
        monkeypatch.setattr(module, "live_rows", lambda *given, **options: pytest.fail("a loop was written out"))
    with by_triton(monkeypatch) as used:
        check(everything(model), wanted, tolerance=2e-5)
    found = {tuple(operation.split()[:2]) for operation in used}
    wide = architecture == "plain"
    pairs = "sequence pair" if issubclass(UNITS[decoder], ScanUnit) else "one_to_one"
    assert ("conditional", decoder) in found
    assert (("bidirectional", encoder) in found) is wide
    assert wide or any(operation.startswith(pairs) for operation in used)
    assert (("sequence", decoder) in found) is wide  # in the second layer of the decoder
