"""Two-step networks: sequences against single steps, masks, directions."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from nmt.models.decoder import AttentionRNN
from nmt.models.encoder import OneToOneRNN
from nmt.models.parts import initialize
from nmt.registry import CELLS

UNITS = ["atr", "gru", "lrn", "lstm", "min_gru", "min_lstm", "olrn", "sru", "ssru"]
B, T, S, D, H, M = 3, 5, 4, 3, 4, 6

MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 0, 1, 1]]).bool()


def maker(unit: str, *, layer_norm: bool = False) -> Any:
    return partial(CELLS.get(unit), hidden_size=H, layer_norm=layer_norm)


def double(network: Any) -> Any:
    torch.manual_seed(3)
    initialize(network, 0.9)
    return network.double()


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def chosen(live: torch.Tensor, new: Any, old: Any) -> Any:
    return type(old)(*(torch.where(live[:, None], after, before) for after, before in zip(new, old, strict=True)))


@pytest.mark.parametrize("unit", UNITS)
def test_attention_sequence_is_its_steps(unit: str) -> None:
    network = double(AttentionRNN(maker(unit), D, M, heads=2))
    memory = network.attention.prepare(random(B, S, M), torch.ones(B, S, dtype=torch.bool))
    x, state = random(B, T, D), network.lower.unpack_state(random(B, network.lower.state_size))
    result = network.sequence(x, memory, state)
    for t in range(T):
        output, context, state, _ = network.step(x[:, t], memory, state)
        torch.testing.assert_close(result.outputs[:, t], output, rtol=0, atol=1e-13)
        torch.testing.assert_close(result.contexts[:, t], context, rtol=0, atol=1e-13)
    torch.testing.assert_close(tuple(result.last), tuple(state), rtol=0, atol=1e-13)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("unit", UNITS)
def test_one_to_one_sequence_is_its_masked_steps(unit: str, reverse: bool) -> None:
    network = double(OneToOneRNN(maker(unit, layer_norm=True), D, M))
    x, memory = random(B, T, D), random(B, T, M)
    state = network.lower.unpack_state(random(B, network.lower.state_size))
    outputs, last = network.sequence(x, memory, state, MASK, reverse=reverse)
    for t in reversed(range(T)) if reverse else range(T):
        state = chosen(MASK[:, t], network.step(x[:, t], memory[:, t], state)[1], state)
        torch.testing.assert_close(outputs[:, t], state.h, rtol=0, atol=1e-13)
    torch.testing.assert_close(tuple(last), tuple(state), rtol=0, atol=1e-13)


def test_no_state_is_zeros_and_no_mask_is_all_real() -> None:
    network = double(OneToOneRNN(maker("lstm"), D, M))
    x, memory = random(B, T, D), random(B, T, M)
    zeros = network.lower.unpack_state(torch.zeros(B, 2 * H, dtype=torch.float64))
    explicit = network.sequence(x, memory, zeros, torch.ones(B, T))
    torch.testing.assert_close(explicit[0], network.sequence(x, memory)[0], rtol=0, atol=0)


def test_masked_positions_get_no_gradient() -> None:
    network = double(AttentionRNN(maker("gru"), D, M))
    memory = network.attention.prepare(random(B, S, M), torch.ones(B, S, dtype=torch.bool))
    x = random(B, T, D).requires_grad_()
    network.sequence(x, memory, mask=MASK).outputs.sum().backward()
    assert x.grad is not None
    assert ((x.grad != 0).any(-1) == MASK).all()
