"""A linear-chain conditional random field (Lafferty et al., ICML 2001) over scores of labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nmt.cells import as_initializer


class LinearChain(nn.Module):
    """Scores of label sequences: of each label at its word, of each pair of neighbours, of the first and the last.

    Letters: B sentences of T words, padded at the right, K labels, which are numbered from 0. Everything is computed
    in the type of the scores; the only loop is over time.
    """

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.empty(labels, labels))
        """[K, K], from the label of the row to that of the column"""
        self.first = nn.Parameter(torch.empty(labels))
        self.last = nn.Parameter(torch.empty(labels))

    def reset_parameters(self, init_range: Any) -> None:
        """Pairs by the initializer, ends 0."""
        as_initializer(init_range).matrix_(self.transitions)
        nn.init.zeros_(self.first)
        nn.init.zeros_(self.last)

    def losses(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Negative log-probabilities [B] of labels [B, T] by scores [B, T, K]; mask [B, T] is true at words.

        Each sentence has a word at least. Labels at padding are not looked at, but must be from 0 to K - 1.
        """
        return self.log_partition(scores, mask) - self.score(scores, labels, mask)

    def score(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """The sum of the scores of labels [B, T]: [B]."""
        at_words = scores.gather(2, labels.unsqueeze(2)).squeeze(2) * mask
        between = self.transitions[labels[:, :-1], labels[:, 1:]] * mask[:, 1:]
        end = labels.gather(1, mask.sum(1, keepdim=True) - 1).squeeze(1)
        return at_words.sum(1) + between.sum(1) + self.first[labels[:, 0]] + self.last[end]

    def log_partition(self, scores: Tensor, mask: Tensor) -> Tensor:
        """The logarithm [B] of the sum over all sequences of exp of their score: the forward algorithm."""
        transitions = self.transitions.to(scores.dtype)
        alpha = scores[:, 0] + self.first
        for t in range(1, scores.size(1)):
            new = torch.logsumexp(alpha.unsqueeze(2) + transitions, 1) + scores[:, t]
            alpha = torch.where(mask[:, t : t + 1], new, alpha)
        return torch.logsumexp(alpha + self.last, 1)

    @torch.no_grad()
    def best(self, scores: Tensor, mask: Tensor) -> Tensor:
        """The labels [B, T] whose sequence has the highest score (Viterbi); 0 at padding."""
        count, length, _ = scores.shape
        stay = torch.arange(scores.size(2), device=scores.device).expand(count, -1)
        best, before = scores[:, 0] + self.first, []
        for t in range(1, length):
            found, from_label = (best.unsqueeze(2) + self.transitions).max(1)
            live = mask[:, t : t + 1]
            best = torch.where(live, found + scores[:, t], best)
            before.append(torch.where(live, from_label, stay))
        label = (best + self.last).argmax(1, keepdim=True)
        labels = [label]
        for pointers in reversed(before):
            label = pointers.gather(1, label)
            labels.append(label)
        return torch.cat(labels[::-1], 1) * mask
