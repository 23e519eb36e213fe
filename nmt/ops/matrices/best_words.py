"""The best words of a search step: from the logits, or from the product that makes the logits."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.dispatch import use_native
from nmt.ops.matrices import InferenceMatrix
from nmt.ops.native import kernel
from nmt.ops.recurrence import ALIGNED, product_type

_TILE: Final = 12
"""Rows that are multiplied at a time with a packed matrix, see native.c."""


class Choice(NamedTuple):
    """What a search selects in a step, for each of B hypotheses or groups of P hypotheses."""

    k: int
    """Number of continuations of each group."""
    before: Tensor | None = None  # [B, P], added to the values of each hypothesis; None means P = 1 and 0
    normalize: bool = True
    """Whether values are log-probabilities; else they are logits."""
    banned: int | None = None
    """Id of a word whose value counts as -infinity, but which is part of the normalisation."""
    penalised: int | None = None
    """Id of a word from whose value `penalty` is subtracted."""
    penalty: float = 0.0

    @property
    def hypotheses(self) -> int:
        """P"""
        return 1 if self.before is None else self.before.shape[1]


class BestWords(NamedTuple):
    """The k best continuations of each group, best first."""

    values: Tensor  # [B, k], in at least fp32; -infinity where there are fewer than k
    hypotheses: Tensor
    """Which hypothesis of the group each one continues [B, k]."""
    words: Tensor
    """Ids of its new words [B, k]."""


def best_words(logits: Tensor, choice: Choice) -> BestWords:
    """The best continuations by logits [B * P, V], which may be overwritten.

    Equal values are ordered by hypothesis, then by id, also where the cut is between equal values, so that results do
    not depend on batch or device.
    """
    choose = best_native if use_native(logits) else best_reference
    return _found(*choose(logits, choice), choice, words=logits.shape[1])


def best_of_product(features: Tensor, table: Tensor, choice: Choice) -> BestWords:
    """`best_words` of the product of features [B * P, E] with a table [V, E]; one kernel if the table is packed."""
    if isinstance(table, InferenceMatrix):
        if use_native(features) and table.has_kernel():
            return _found(*best_packed(features, table, choice), choice, words=table.shape[0])
        return best_words(F.linear(features, table), choice)
    if use_native(features):
        return best_words(F.linear(features, table), choice)
    dtype, count = product_type(features), len(table)  # padded with -infinity to a multiple of ALIGNED
    logits = features.new_empty(len(features), count + -count % ALIGNED, dtype=dtype)
    torch.mm(features.detach().to(dtype), table.detach().to(dtype).t(), out=logits[:, :count])
    logits[:, count:] = -math.inf
    return _found(*best_reference(logits, choice), choice, words=count, width=logits.shape[1])


def best_reference(logits: Tensor, choice: Choice) -> tuple[Tensor, Tensor]:
    """Like `best_native`, but with torch; the logits may be overwritten."""
    values, before = log_probabilities(logits) if choice.normalize else logits, choice.before
    if choice.penalised is not None:
        values[:, choice.penalised] -= choice.penalty
    if choice.banned is not None:
        values[:, choice.banned] = -math.inf
    if choice.k == 1 and before is None:
        places = first_maximum(values).unsqueeze(1)
        return values.gather(1, places), places
    return top(values if before is None else values.view(len(before), -1), choice.k, before=before)


def best_native(logits: Tensor, choice: Choice) -> tuple[Tensor, Tensor]:
    """Values and places [B, k] of the best, from a C kernel; logits fp32 or bf16 [B * P, V] on a CPU."""
    logits = logits.contiguous()
    groups, words = logits.shape[0] // choice.hypotheses, logits.shape[1]
    before, *options, values, places = _arguments(groups, words, choice)
    kernel("best", logits.dtype)(logits, before, groups, choice.hypotheses, words, *options, values, places)
    return values, places


def best_packed(features: Tensor, table: InferenceMatrix, choice: Choice) -> tuple[Tensor, Tensor]:
    """Like `best_native` for the logits `F.linear(features, table)`, which never leave the cache."""
    parts, words, threads = choice.hypotheses, table.shape[0], torch.get_num_threads()
    groups, operands = features.shape[0] // parts, table.operands(features)
    at_once = max(1, _TILE // parts)
    shared = groups < 8 * at_once * threads
    room = torch.empty(groups if shared else threads * at_once, parts * words, dtype=torch.float32)
    before, *options, values, places = _arguments(groups, words, choice)
    kernel(f"{table.kind}_best", torch.float32)(
        *operands, room, shared, at_once, *operands[0].shape, words, before, parts, *options, values, places
    )
    return values, places


def _arguments(groups: int, words: int, choice: Choice) -> tuple[Any, ...]:
    """The arguments of both kernels for a choice, and memory for values and places."""
    k = min(choice.k, choice.hypotheses * words)
    before = None if choice.before is None else choice.before.float().contiguous()
    banned = -1 if choice.banned is None else choice.banned
    penalised = -1 if choice.penalised is None else choice.penalised
    found = torch.empty(groups, k, dtype=torch.float32), torch.empty(groups, k, dtype=torch.int64)
    return before, k, choice.normalize, banned, penalised, choice.penalty, *found


def _found(values: Tensor, places: Tensor, choice: Choice, *, words: int, width: int | None = None) -> BestWords:
    """From values and places [B, k]; with `width`, rows have this many places: first the words, then -infinity."""
    k, width = choice.hypotheses * words, width or words
    if k < choice.k:
        values = F.pad(values[:, :k], (0, choice.k - k), value=-math.inf)
        places = F.pad(places[:, :k], (0, choice.k - k))
    found = places % width
    return BestWords(values, places // width, found if width == words else found.clamp_(max=words - 1))


_BLOCK = 64


def top(scores: Tensor, k: int, *, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The k largest values of each row of `scores` [B, N] and their places, both [B, k].

    Largest first; of equal values the one at the smaller place comes first, also where the cut
    falls among equals. That makes results independent of the batch and of the device.

    `before` [B, P], if given, is added to the P equal parts of each row; the sum is computed only for
    values that can be among the largest.
    """
    if scores.is_cuda:
        return ordered_top(scores, k, before=before)
    # The largest values are in the blocks with the largest maxima; a maximum costs far less than a topk.
    blocks, more = _Blocks(scores, before), min(k + 1, scores.shape[1])
    if blocks.count < 2 * more:
        values, places = _totals(scores, before).topk(more, dim=1)
    else:
        totals, places = blocks.inside(blocks.maxima().topk(more, dim=1).indices)
        values, order = totals.topk(more, dim=1)
        places = places.gather(1, order)
    if values.shape[1] > k:
        # One more than needed shows whether the cut is between equal values, which topk orders arbitrarily.
        tied = values[:, k] == values[:, k - 1]
        values, places = values[:, :k], places[:, :k]
        if bool(tied.any()):
            rows = tied.nonzero().squeeze(1)
            totals = _totals(scores[rows], None if before is None else before[rows])
            chosen = _first_places(totals, values[rows, -1:], k)
            places = places.index_copy(0, rows, chosen)
            values = values.index_copy(0, rows, totals.gather(1, chosen))
    places, order = places.sort(dim=1)
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values, places.gather(1, order)


def ordered_top(scores: Tensor, k: int, *, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Like `top`, with stable sorts of a few values: the host does not wait for a GPU, and a graph can record it.

    The first k of all values are in the first k blocks, ordered by their maxima: each of these blocks has a value that
    comes before all values of the other blocks.
    """
    blocks = _Blocks(scores, before)
    if blocks.count < k:
        values, places = _totals(scores, before).sort(dim=1, descending=True, stable=True)
        return values[:, :k], places[:, :k]
    best = blocks.maxima().sort(dim=1, descending=True, stable=True).indices[:, :k]
    totals, places = blocks.inside(best)
    places, order = places.sort(dim=1)
    values, order = totals.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values[:, :k], places.gather(1, order[:, :k])


class _Blocks:
    """Scores [B, P * W] with the addends of their P parts, split into blocks in the order of their places."""

    def __init__(self, scores: Tensor, before: Tensor | None) -> None:
        self.scores = scores
        self.before = scores.new_zeros(len(scores), 1) if before is None else before  # [B, P]
        self.parts = self.before.shape[1]
        self.width = scores.shape[1] // self.parts
        self.in_part = self.width // _BLOCK
        self.count = self.parts * self.in_part
        """The number of full blocks of a row."""

    def maxima(self) -> Tensor:
        """The maxima of the totals in each block, [B, count]."""
        whole = self.scores.view(-1, self.parts, self.width)[:, :, : self.in_part * _BLOCK]
        return whole.unflatten(2, (self.in_part, _BLOCK)).amax(dim=3).add_(self.before.unsqueeze(2)).flatten(1)

    def inside(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Totals and places of all values in the blocks `chosen` [B, n], and of values outside full blocks."""
        scores, before, filled = self.scores, self.before, self.in_part * _BLOCK
        part = chosen.div(self.in_part, rounding_mode="floor")
        first = chosen * _BLOCK + part * (self.width - filled)
        places = (first.unsqueeze(2) + torch.arange(_BLOCK, device=scores.device)).flatten(1)  # [B, n * _BLOCK]
        by_block = scores.gather(1, places).view(*chosen.shape, _BLOCK)
        totals = (by_block + before.gather(1, part).unsqueeze(2)).flatten(1)
        if filled == self.width:
            return totals, places
        rest = torch.arange(filled, self.width, device=scores.device)
        rest = (torch.arange(self.parts, device=scores.device).unsqueeze(1) * self.width + rest).flatten()
        left = (scores.view(-1, self.parts, self.width)[:, :, filled:] + before.unsqueeze(2)).flatten(1)
        return torch.cat([totals, left], 1), torch.cat([places, rest.expand(len(scores), -1)], 1)


def first_maximum(scores: Tensor) -> Tensor:
    """The place [B] of the largest value of each row of `scores` [B, N], the first of equal ones.

    Like argmax(1), but several times as fast on long rows: of all values only maxima of blocks are computed.
    """
    blocks = scores.shape[1] // _BLOCK
    if blocks < 4:
        return scores.argmax(dim=1)
    whole = blocks * _BLOCK
    maxima = scores[:, :whole].unflatten(1, (blocks, _BLOCK)).amax(dim=2)
    block = maxima.argmax(dim=1, keepdim=True)  # [B, 1]
    inside = torch.arange(_BLOCK, device=scores.device)
    best = block.squeeze(1) * _BLOCK + scores.gather(1, block * _BLOCK + inside).argmax(dim=1)
    if whole == scores.shape[1]:
        return best
    value, rest = scores[:, whole:].max(dim=1)
    # A NaN counts as the largest value, as in argmax, so that it does not stay unnoticed.
    is_rest = (value > maxima.gather(1, block).squeeze(1)) | value.isnan()
    return torch.where(is_rest, rest + whole, best)


def _totals(scores: Tensor, before: Tensor | None) -> Tensor:
    """scores [B, N] with `before` [B, P] added to its P parts."""
    if before is None:
        return scores
    return (scores.view(len(scores), before.shape[1], -1) + before.unsqueeze(2)).flatten(1)


def _first_places(scores: Tensor, least: Tensor, k: int) -> Tensor:
    """Places of the k largest, ascending; of values equal to the k-th value `least` [B, 1] the first are taken."""
    above = scores > least
    equal = scores == least
    wanted = k - above.sum(dim=1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(dim=1) <= wanted))
    return chosen.nonzero()[:, 1].view(-1, k)


def log_probabilities(logits: Tensor) -> Tensor:
    """Log-softmax over the last axis, in float32 at least.

    On CPU the fused log-softmax takes half the time of a logsumexp over the same logits, so
    normalising only the winners would gain nothing.
    """
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
