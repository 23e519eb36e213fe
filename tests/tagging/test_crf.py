"""The linear-chain random field against all label sequences one by one, in fp64."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from nmt.tagging.model import LinearChain

LABELS = 3
LENGTHS = (4, 1, 3)


def case() -> tuple[LinearChain, Tensor, Tensor, Tensor]:
    """A field, scores [3, 4, K], labels and mask."""
    torch.manual_seed(3)
    chain = LinearChain(LABELS).double()
    for weight in chain.parameters():
        torch.nn.init.normal_(weight)
    scores = torch.randn(3, 4, LABELS, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(4) < torch.tensor(LENGTHS).unsqueeze(1)
    return chain, scores, torch.randint(0, LABELS, (3, 4)) * mask, mask


def all_scores(chain: LinearChain, scores: Tensor, length: int) -> dict[tuple[int, ...], Tensor]:
    """Of every sequence of one sentence, by the definition."""
    found = {}
    for sequence in product(range(LABELS), repeat=length):
        total = chain.first[sequence[0]] + chain.last[sequence[-1]]
        for t, label in enumerate(sequence):
            total = total + scores[t, label]
            if t:
                total = total + chain.transitions[sequence[t - 1], label]
        found[sequence] = total
    return found


def test_losses_and_all_gradients_are_those_of_the_sum_over_sequences() -> None:
    chain, scores, labels, mask = case()
    losses = []
    for row, length in enumerate(LENGTHS):
        every = all_scores(chain, scores[row], length)
        partition = torch.logsumexp(torch.stack(list(every.values())), 0)
        losses.append(partition - every[tuple(labels[row, :length].tolist())])
    expected, found = torch.stack(losses), chain.losses(scores, labels, mask)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weights = torch.tensor([1.0, 0.3, 2.0], dtype=torch.float64)
    wanted = torch.autograd.grad((expected * weights).sum(), (scores, *chain.parameters()))
    gradients = torch.autograd.grad((found * weights).sum(), (scores, *chain.parameters()))
    for gradient, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-11, atol=1e-12)
    assert (gradients[0][~mask] == 0).all()


def test_the_best_sequence_is_the_best_of_all() -> None:
    chain, scores, _, mask = case()
    found = chain.best(scores, mask)
    for row, length in enumerate(LENGTHS):
        every = all_scores(chain, scores[row], length)
        assert tuple(found[row, :length].tolist()) == max(every, key=lambda sequence: every[sequence].item())
    assert (found[~mask] == 0).all()


@pytest.mark.parametrize("size", [30.0, 3000.0])
def test_large_scores_stay_finite(size: float) -> None:
    chain, scores, labels, mask = case()
    losses = chain.float().losses((scores * size).float(), labels, mask)
    assert losses.isfinite().all() and (losses >= 0).all()
