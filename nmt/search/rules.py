"""What the words so far change about the next one: least length, no n-gram twice, a penalty for repeats, a prefix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nmt.data.vocabulary import EOS
from nmt.search.ruled import Adjustment, Step

if TYPE_CHECKING:
    from nmt.config.schema import DecodingConfig


class MinimumLength:
    """No end symbol before `tokens` words."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def __call__(self, log_probs: Tensor, step: Step, *, original: Tensor) -> None:
        if step.history.shape[1] < self._tokens:
            log_probs[:, EOS] = -math.inf


class NoRepeatedNgrams:
    """No sequence of n tokens twice in a hypothesis (Paulus et al., ICLR 2018)."""

    def __init__(self, n: int) -> None:
        self._n = n

    def __call__(self, log_probs: Tensor, step: Step, *, original: Tensor) -> None:
        history, n = step.history, self._n
        if history.shape[1] < n:
            return
        ngrams = history.unfold(1, n, 1)  # [N, t - n + 1, n]
        last = history[:, history.shape[1] - n + 1 :].unsqueeze(1)  # [N, 1, n - 1]
        rows, places = (ngrams[:, :, :-1] == last).all(dim=2).nonzero(as_tuple=True)
        log_probs[rows, ngrams[rows, places, n - 1]] = -math.inf


class RepeatPenalty:
    """The logits of the tokens that a hypothesis has are divided by `penalty`, negative ones multiplied with it.

    Keskar et al. (2019), in the form of CTranslate2 and transformers: each token counts once.
    """

    def __init__(self, penalty: float) -> None:
        self._penalty = penalty

    def __call__(self, logits: Tensor, step: Step) -> Tensor:
        seen = logits.gather(1, step.history)  # [N, t]
        return logits.scatter_(1, step.history, torch.where(seen < 0, seen * self._penalty, seen / self._penalty))


def adjustments_of(decoding: DecodingConfig) -> list[Adjustment]:
    """Changes of the logits that the section `decoding` asks for, whatever the search."""
    return [] if decoding.repeat_penalty == 1 else [RepeatPenalty(decoding.repeat_penalty)]


class ForcedPrefix:
    """Each sentence begins with its own words, even if earlier rules exclude them."""

    def __init__(self, prefixes: Sequence[Sequence[int]], *, device: torch.device) -> None:
        """`prefixes`: of each sentence of the batch its first words, as the search calls them; empty for none."""
        self._prefixes = torch.full((len(prefixes), max(map(len, prefixes))), -1)
        for row, words in zip(self._prefixes, prefixes, strict=True):
            row[: len(words)] = torch.tensor(words, dtype=torch.int64)
        self._prefixes = self._prefixes.to(device)

    def __call__(self, log_probs: Tensor, step: Step, *, original: Tensor) -> None:
        place = step.history.shape[1]
        if place >= self._prefixes.shape[1]:
            return
        forced = self._prefixes[step.lines, place].unsqueeze(1)  # [N, 1]
        kept = original.gather(1, forced.clamp(min=0))
        log_probs.masked_fill_(forced >= 0, -math.inf)
        log_probs.scatter_(1, forced.clamp(min=0), torch.where(forced >= 0, kept, log_probs[:, :1]))


class NewWordAfterPrefix:
    """What follows a prefix whose last word is complete begins a word, or ends the translation."""

    def __init__(self, lengths: Sequence[int | None], begins_word: Tensor) -> None:
        """
        Args:
            lengths: of the prefix of each sentence, in words of the search; None where anything may follow.
            begins_word: whether each word may follow [V].
        """
        self._lengths = torch.tensor(
            [-1 if length is None else length for length in lengths], device=begins_word.device
        )
        self._excluded = ~begins_word

    def __call__(self, log_probs: Tensor, step: Step, *, original: Tensor) -> None:
        here = self._lengths[step.lines] == step.history.shape[1]  # [N]
        if bool(here.any()):
            log_probs.masked_fill_(here.unsqueeze(1) & self._excluded, -math.inf)
