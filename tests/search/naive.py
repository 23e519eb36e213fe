"""Oracles: Zero's beam search, greedy search and exhaustive search, written with lists and loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from tests.search.table_model import EOS, PAD, TableModel

Scored = tuple[float, list[int]]


@dataclass
class Sentence:
    """One sentence of the joint search; alive hypotheses are (log-probability, ids)."""

    source: list[int]
    limit: int
    power: bool = False
    alive: list[Scored] = field(default_factory=lambda: [(0.0, [])])
    finished: list[Scored] = field(default_factory=list)

    def is_settled(self, alpha: float) -> bool:
        if not self.finished or not self.alive:
            return bool(self.finished)
        return min(score for score, _ in self.finished) > self.alive[0][0] / penalty(
            self.limit, alpha, power=self.power
        )


def penalty(length: int, alpha: float, *, power: bool = False) -> float:
    return float(length**alpha if power else ((5 + length) / 6) ** alpha)


def log_probabilities(model: TableModel, source: list[int], ids: list[int], *, zeros: Sequence[int]) -> list[float]:
    """Over the word after `ids`; at the steps `zeros` the zero vector was fed instead of the last token."""
    history: list[int | None] = [None, *ids]
    for place in zeros:
        history[place] = None
    return model.next_logits(source, history).log_softmax(0).tolist()


def zero_beam_search(
    model: TableModel,
    sources: list[list[int]],
    *,
    beam_size: int,
    alpha: float,
    offset: int,
    pad_allowed: bool = True,
    power: bool = False,
    factor: float = 1.0,
) -> list[list[Scored]]:
    """What tests/golden/README.md says of beam search, line by line: joint stopping, feeding and length rules."""
    sentences = [Sentence(source, max(1, int(factor * len(source)) + offset), power) for source in sources]
    zeros: list[int] = [0]
    t = 0
    while True:
        if all(s.is_settled(alpha) for s in sentences) or all(t >= s.limit for s in sentences):
            break
        if t > 0 and all(ids[-1] == PAD for s in sentences for _, ids in s.alive):
            zeros.append(t)
        divisor = penalty(t + 1, alpha, power=power)
        for s in sentences:
            pool = []
            for beam, (total, ids) in enumerate(s.alive):
                for token, value in enumerate(log_probabilities(model, s.source, ids, zeros=zeros)):
                    if t == 0 and token == EOS:
                        value -= 1e8
                    if token == PAD and not pad_allowed:
                        continue
                    pool.append((-(total + value), beam, token, [*ids, token]))
            best = [(-negative, ids) for negative, _, _, ids in sorted(pool)[: 2 * beam_size]]
            ended = [ids[-1] == EOS or t >= s.limit for _, ids in best]
            s.alive = [item for item, end in zip(best, ended, strict=True) if not end][:beam_size]
            newly = [(total / divisor, ids) for (total, ids), end in zip(best, ended, strict=True) if end]
            s.finished = sorted(s.finished + newly, key=lambda item: -item[0])[:beam_size]
        t += 1
    last = penalty(t, alpha, power=power)
    return [s.finished or [(total / last, ids) for total, ids in s.alive] for s in sentences]


def greedy(model: TableModel, source: list[int], *, alpha: float, offset: int) -> Scored:
    """The most probable token after a full pass over the history, again and again."""
    ids: list[int] = []
    total = 0.0
    while len(ids) < len(source) + offset and (not ids or ids[-1] != EOS):
        values = log_probabilities(model, source, ids, zeros=[0])
        values[PAD] = -math.inf
        if not ids:
            values[EOS] -= 1e8
        token = max(range(len(values)), key=values.__getitem__)
        ids, total = [*ids, token], total + values[token]
    return total / ((5 + len(ids)) / 6) ** alpha, ids


def exhaustive(model: TableModel, source: list[int], *, alpha: float, limit: int) -> Scored:
    """The best of all sequences of 2 to `limit` tokens that end with EOS and have no PAD."""
    best: Scored = (-math.inf, [])
    stack: list[tuple[float, list[int]]] = [(0.0, [])]
    while stack:
        total, ids = stack.pop()
        for token, value in enumerate(log_probabilities(model, source, ids, zeros=[0])):
            length = len(ids) + 1
            if token == EOS and ids:
                best = max(best, ((total + value) / ((5 + length) / 6) ** alpha, [*ids, EOS]))
            elif token not in (PAD, EOS) and length < limit:
                stack.append((total + value, [*ids, token]))
    return best


def strip(source: torch.Tensor) -> list[list[int]]:
    """Rows without their padding."""
    return [[token for token in row if token != PAD] for row in source.tolist()]


def cut(ids: list[int]) -> list[int]:
    """Before the first EOS or PAD."""
    ends = [place for place, token in enumerate(ids) if token in (EOS, PAD)]
    return ids[: ends[0]] if ends else ids
