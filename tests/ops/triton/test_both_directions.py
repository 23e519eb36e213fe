"""A bidirectional layer in one launch: the same as one direction after the other, and where that is what runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.models.encoder import Bidirectional
from nmt.ops import both, dispatch
from tests.models.two_cells import maker, started
from tests.ops.triton.comparison import assert_equal, make_mask, randn

triton = pytest.importorskip("nmt.ops.both.triton", reason="Triton is not installed")

BATCH, LENGTH, WIDTH, HIDDEN = 3, 4, 5, 6
ONE_LAUNCH = {"atr", "lrn", "olrn", "sru"}


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("unit", ["atr", "gru", "lrn", "lstm", "olrn", "sru"])
def test_it_is_one_direction_after_the_other(
    unit: str, layer_norm: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = started(Bidirectional(maker(unit, hidden=HIDDEN, layer_norm=layer_norm), WIDTH)).to(device)
    mask = make_mask("holes", BATCH, LENGTH, device)
    names = [name for name, _ in encoder.named_parameters()]
    written_out = []
    original = Bidirectional._written_out

    def run(x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.func.functional_call(encoder, dict(zip(names, weights, strict=True)), (x, mask)))

    def noted(self: Any, *arguments: Any) -> Any:
        written_out.append(unit)
        return original(self, *arguments)

    def by_kernel(*tensors: Tensor) -> tuple[Tensor, ...]:
        with monkeypatch.context() as patch:
            patch.setattr(both, "choose", lambda *_, like: triton.both_directions_triton)
            patch.setattr(Bidirectional, "_written_out", noted)
            return run(*tensors)

    x = randn(BATCH, LENGTH, WIDTH, device=device)
    with dispatch.selected("reference"):
        assert_equal(by_kernel, run, [x, *(weight.detach() for weight in encoder.parameters())])
    assert bool(written_out) is (unit not in ONE_LAUNCH)


@pytest.mark.parametrize(
    "options", [{"activation": "output", "gates": "coupled_input"}, {"activation": "candidate", "gates": "coupled"}]
)
def test_designs_of_atr(options: dict[str, str], device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = started(Bidirectional(maker("atr", hidden=HIDDEN, **options), WIDTH)).to(device)
    mask, x = make_mask("padding", BATCH, LENGTH, device), randn(BATCH, LENGTH, WIDTH, device=device)
    with dispatch.selected("reference"):
        wanted = encoder(x, mask)
        monkeypatch.setattr(both, "choose", lambda *_, like: triton.both_directions_triton)
        torch.testing.assert_close(tuple(encoder(x, mask)), tuple(wanted))


def test_what_is_empty_or_unknown_is_written_out(device: torch.device) -> None:
    known = both.Direction(*(getattr(maker("lrn", hidden=2)(2), part)() for part in ("unit", "projection")))
    for direction, length in ((both.Direction(None, None), 3), (known, 0)):
        x, mask = torch.zeros(1, length, 2, device=device), torch.ones(1, length, device=device)
        found = triton.both_directions_triton(direction, direction, x, mask=mask, written_out=lambda: "written out")
        assert found == "written out"
