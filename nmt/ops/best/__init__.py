"""The best words of a search step: from the logits, or from the product that makes the logits."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.best.native import best_native
from nmt.ops.best.packed import best_packed
from nmt.ops.best.reference import best_reference, log_probabilities
from nmt.ops.dispatch import use_native
from nmt.ops.narrow import NarrowMatrix
from nmt.ops.narrow.native import packs
from nmt.ops.recurrence import product_type
from nmt.ops.sizes import ALIGNED

__all__ = ["Best", "Choice", "best_of_product", "best_words", "log_probabilities"]


class Choice(NamedTuple):
    """What a search wants of a step, for each of B hypotheses or groups of P hypotheses."""

    k: int
    """Continuations of each group."""
    before: Tensor | None = None
    """[B, P], what is added to the values of each hypothesis; None for P = 1 and 0"""
    normalize: bool = True
    """Whether values are log-probabilities; else they are logits."""
    banned: int | None = None
    """Id of a word that counts as -infinity, though it has its part in the normalisation."""
    penalised: int | None = None
    """Id of a word from whose value `penalty` is taken."""
    penalty: float = 0.0

    @property
    def hypotheses(self) -> int:
        """P"""
        return 1 if self.before is None else self.before.shape[1]


class Best(NamedTuple):
    """The k best continuations of each group, best first."""

    values: Tensor
    """[B, k], in at least fp32; -infinity where there are fewer than k"""
    hypotheses: Tensor
    """Which hypothesis of the group each one continues [B, k]."""
    words: Tensor
    """Ids of its new words [B, k]."""


def best_words(logits: Tensor, choice: Choice) -> Best:
    """The best continuations by logits [B * P, V], which may be overwritten.

    Of equal ones first that of the earlier hypothesis, then that of the smaller id, also where the cut falls among
    equals, so that results do not hang on batch or device.
    """
    return _best(best_native if use_native(logits) else best_reference, logits, choice, words=logits.shape[1])


def best_of_product(features: Tensor, table: Tensor, choice: Choice) -> Best:
    """`best_words` by the product of features [B * P, E] with a table [V, E]; by one kernel where that is packed."""
    if isinstance(table, NarrowMatrix) and use_native(features) and packs(table.values.dtype):
        return _best(partial(best_packed, table=table), features, choice, words=len(table))
    if isinstance(table, NarrowMatrix) or use_native(features):
        return best_words(F.linear(features, table), choice)
    logits = _aligned_logits(features, table)
    return _best(best_reference, logits, choice, words=len(table), width=logits.shape[1])


def _aligned_logits(features: Tensor, table: Tensor) -> Tensor:
    """Features [N, E] times a table [V, E], and behind them -infinity up to a multiple of ALIGNED."""
    dtype, words = product_type(features), len(table)
    logits = features.new_empty(len(features), words + -words % ALIGNED, dtype=dtype)
    torch.mm(features.detach().to(dtype), table.detach().to(dtype).t(), out=logits[:, :words])
    logits[:, words:] = -math.inf
    return logits


def _best(
    implementation: Callable[..., tuple[Tensor, Tensor]],
    rows: Tensor,
    choice: Choice,
    *,
    words: int,
    width: int | None = None,
) -> Best:
    """With `width` rows have so many places, of which the first are `words`; what is behind them is -infinity."""
    k, width = min(choice.k, choice.hypotheses * words), width or words
    values, places = implementation(rows, **choice._replace(k=k)._asdict())
    if k < choice.k:
        values = F.pad(values, (0, choice.k - k), value=float("-inf"))
        places = F.pad(places, (0, choice.k - k))
    found = places % width
    return Best(values, places // width, found if width == words else found.clamp_(max=words - 1))
