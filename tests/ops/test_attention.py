"""Additive attention against its equation, written out one head and one query at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nmt.models.attention import AdditiveAttention

HIDDEN, WIDTH, SOURCE = 5, 6, 4


def make(heads: int, layer_norm: bool) -> AdditiveAttention:
    torch.manual_seed(1)
    attention = AdditiveAttention(HIDDEN, WIDTH, heads=heads, layer_norm=layer_norm).double()
    for parameter in attention.parameters():
        torch.nn.init.uniform_(parameter, -1, 1)
    return attention


def by_definition(attention: AdditiveAttention, query: Tensor, memory: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Context and weights of one query [H] over one sentence [S, M], with tanh."""
    heads, width = attention.heads, WIDTH // attention.heads
    queries = attention.query(query).view(heads, width)
    keys = attention.memory(memory).view(-1, heads, width)
    contexts, weights = [], []
    for head in range(heads):
        scores = torch.tanh(queries[head] + keys[:, head]) @ attention.score_weight + attention.score_bias
        weight = torch.softmax(scores + (1 - mask.double()) * -1e8, 0)
        contexts.append(weight @ memory.view(-1, heads, width)[:, head])
        weights.append(weight)
    return torch.cat(contexts), torch.stack(weights)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("heads", [1, 2, 3])
def test_equals_the_equation_for_every_query(heads: int, layer_norm: bool) -> None:
    attention = make(heads, layer_norm)
    memory = torch.randn(2, SOURCE, WIDTH, dtype=torch.float64, requires_grad=True)
    queries = torch.randn(2, 3, HIDDEN, dtype=torch.float64)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    context, weights = attention.attend(queries, attention.prepare(memory, mask))
    for sentence in range(2):
        for beam in range(3):
            wanted = by_definition(attention, queries[sentence, beam], memory[sentence], mask[sentence])
            torch.testing.assert_close(context[sentence, beam], wanted[0], rtol=0, atol=1e-13)
            torch.testing.assert_close(weights[sentence, :, beam], wanted[1], rtol=0, atol=1e-13)
    assert (weights[1, ..., 2:] == 0).all()


def test_gradients_equal_those_of_the_equation() -> None:
    attention = make(2, layer_norm=False)
    memory = torch.randn(1, SOURCE, WIDTH, dtype=torch.float64, requires_grad=True)
    query = torch.randn(1, 1, HIDDEN, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True, True, False]])
    factor = torch.randn(WIDTH, dtype=torch.float64)
    leaves = [memory, query, attention.query.weights[0], attention.memory.weights[0], attention.score_weight]
    ours = torch.autograd.grad((attention.attend(query, attention.prepare(memory, mask))[0] * factor).sum(), leaves)
    wanted = torch.autograd.grad((by_definition(attention, query[0, 0], memory[0], mask[0])[0] * factor).sum(), leaves)
    torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-13)


def test_beams_read_the_memory_of_their_sentence_without_a_copy() -> None:
    attention = make(1, layer_norm=False)
    encoded = torch.randn(2, SOURCE, WIDTH, dtype=torch.float64)
    memory = attention.prepare(encoded, torch.ones(2, SOURCE, dtype=torch.bool))
    assert memory.values.data_ptr() == encoded.data_ptr()
    kept = memory.keep(torch.tensor([1]))
    queries = torch.randn(2, 3, HIDDEN, dtype=torch.float64)
    torch.testing.assert_close(attention.attend(queries[1:], kept)[0], attention.attend(queries, memory)[0][1:])


def test_weights_are_fp32_and_contexts_low_precision_under_autocast() -> None:
    attention = make(1, layer_norm=True).float()
    with torch.autocast("cpu", torch.bfloat16):
        memory = attention.prepare(torch.randn(2, SOURCE, WIDTH), torch.ones(2, SOURCE, dtype=torch.bool))
        context, weights = attention.attend(torch.randn(2, 1, HIDDEN), memory)
    assert memory.keys.dtype == memory.values.dtype == context.dtype == torch.bfloat16
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 1))
