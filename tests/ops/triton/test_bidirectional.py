"""A bidirectional layer in one launch: the same as one direction after the other, and where that is what runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.models.encoder import Bidirectional
from nmt.ops import dispatch
from nmt.ops.sequence import bidirectional
from tests.models.two_cells import maker, started
from tests.ops.triton.comparison import assert_equal, make_mask, randn
from tests.ops.units import by_triton

pytest.importorskip("triton", reason="Triton is not installed")

BATCH, LENGTH, WIDTH, HIDDEN = 3, 4, 5, 6


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("unit", ["atr", "gru", "lrn", "lstm", "min_gru", "min_lstm", "olrn", "sru", "ssru"])
def test_it_is_one_direction_after_the_other(
    unit: str, layer_norm: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = started(Bidirectional(maker(unit, hidden=HIDDEN, layer_norm=layer_norm), WIDTH)).to(device)
    mask = make_mask("holes", BATCH, LENGTH, device)
    names = [name for name, _ in encoder.named_parameters()]

    def run(x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.func.functional_call(encoder, dict(zip(names, weights, strict=True)), (x, mask)))

    def by_kernel(*tensors: Tensor) -> tuple[Tensor, ...]:
        with by_triton(monkeypatch) as used:
            found = run(*tensors)
        words = encoder.forward_rnn.unit().words
        alone = [] if unit in ONE_LAUNCH else [f"sequence {words}"] * 2
        assert used == [f"bidirectional {words}", *alone]
        return found

    x = randn(BATCH, LENGTH, WIDTH, device=device)
    with dispatch.selected("reference"):
        assert_equal(by_kernel, run, [x, *(weight.detach() for weight in encoder.parameters())])


ONE_LAUNCH = ("atr", "lrn", "min_gru", "min_lstm", "olrn", "sru", "ssru")


@pytest.mark.parametrize(
    "options", [{"activation": "output", "gates": "coupled_input"}, {"activation": "candidate", "gates": "coupled"}]
)
def test_designs_of_atr(options: dict[str, str], device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = started(Bidirectional(maker("atr", hidden=HIDDEN, **options), WIDTH)).to(device)
    mask, x = make_mask("padding", BATCH, LENGTH, device), randn(BATCH, LENGTH, WIDTH, device=device)
    with dispatch.selected("reference"):
        wanted = encoder(x, mask)
    with by_triton(monkeypatch):
        torch.testing.assert_close(tuple(encoder(x, mask)), tuple(wanted))


def test_what_is_empty_or_of_two_designs_is_left_to_each_direction(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def direction(**options: Any) -> Any:
        cell = maker("lrn", hidden=2, **options)(2).to(device)
        return cell.unit(), cell.projection()

    mask = torch.ones(1, 3, device=device)
    with by_triton(monkeypatch):
        assert bidirectional(direction(), direction(), torch.zeros(1, 0, 2, device=device), mask=mask[:, :0]) is None
        x = torch.zeros(1, 3, 2, device=device)
        assert bidirectional(direction(), direction(tanh=True), x, mask=mask) is None
        assert bidirectional(direction(), direction(), x, mask=mask) is not None
