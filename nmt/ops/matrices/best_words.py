"""The best words of a search step: from the logits, or from the product that makes the logits."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.dispatch import use_native
from nmt.ops.matrices.inference import InferenceMatrix
from nmt.ops.matrices.top import first_maximum, log_probabilities, top
from nmt.ops.native import kernel
from nmt.ops.recurrence import product_type
from nmt.ops.sizes import ALIGNED

_TILE: Final = 12
"""Rows that are multiplied at a time with a packed matrix, see tiles.h."""


class Choice(NamedTuple):
    """What a search selects in a step, for each of B hypotheses or groups of P hypotheses."""

    k: int
    """Number of continuations of each group."""
    before: Tensor | None = None
    """[B, P], added to the values of each hypothesis; None means P = 1 and 0"""
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

    values: Tensor
    """[B, k], in at least fp32; -infinity where there are fewer than k"""
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
    return _best(partial(choose, logits), choice, words=logits.shape[1])


def best_of_product(features: Tensor, table: Tensor, choice: Choice) -> BestWords:
    """`best_words` of the product of features [B * P, E] with a table [V, E]; one kernel if the table is packed."""
    if isinstance(table, InferenceMatrix):
        if use_native(features) and table.has_kernel():
            return _best(partial(best_packed, features, table), choice, words=table.shape[0])
        return best_words(F.linear(features, table), choice)
    if use_native(features):
        return best_words(F.linear(features, table), choice)
    logits = _aligned_logits(features, table)
    return _best(partial(best_reference, logits), choice, words=len(table), width=logits.shape[1])


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
    before, *options, values, places = _arguments(groups, choice)
    kernel("best", logits.dtype)(logits, before, groups, choice.hypotheses, words, *options, values, places)
    return values, places


def best_packed(features: Tensor, table: InferenceMatrix, choice: Choice) -> tuple[Tensor, Tensor]:
    """Like `best_native` for the logits `F.linear(features, table)`, which never leave the cache."""
    parts, words, threads = choice.hypotheses, table.shape[0], torch.get_num_threads()
    groups, operands = features.shape[0] // parts, table.operands(features)
    at_once = max(1, _TILE // parts)
    shared = groups < 8 * at_once * threads
    room = torch.empty(groups if shared else threads * at_once, parts * words, dtype=torch.float32)
    before, *options, values, places = _arguments(groups, choice)
    run = kernel(f"{table.kind}_best", torch.float32)
    sizes = (*operands[0].shape, words)
    run(*operands, room, shared, at_once, *sizes, before, parts, *options, values, places)
    return values, places


def _arguments(groups: int, choice: Choice) -> tuple[Any, ...]:
    """The arguments of both kernels for a choice, and memory for values and places."""
    before = None if choice.before is None else choice.before.float().contiguous()
    ids = [-1 if word is None else word for word in (choice.banned, choice.penalised)]
    found = torch.empty(groups, choice.k, dtype=torch.float32), torch.empty(groups, choice.k, dtype=torch.int64)
    return before, choice.k, choice.normalize, *ids, choice.penalty, *found


def _aligned_logits(features: Tensor, table: Tensor) -> Tensor:
    """Features [N, E] times a table [V, E], padded with -infinity to a multiple of ALIGNED."""
    dtype, words = product_type(features), len(table)
    logits = features.new_empty(len(features), words + -words % ALIGNED, dtype=dtype)
    torch.mm(features.detach().to(dtype), table.detach().to(dtype).t(), out=logits[:, :words])
    logits[:, words:] = -math.inf
    return logits


def _best(
    choose: Callable[[Choice], tuple[Tensor, Tensor]], choice: Choice, *, words: int, width: int | None = None
) -> BestWords:
    """With `width`, rows have this many places: first the words, then -infinity."""
    k, width = min(choice.k, choice.hypotheses * words), width or words
    values, places = choose(choice._replace(k=k))
    if k < choice.k:
        values = F.pad(values, (0, choice.k - k), value=float("-inf"))
        places = F.pad(places, (0, choice.k - k))
    found = places % width
    return BestWords(values, places // width, found if width == words else found.clamp_(max=words - 1))
