"""The coverage penalty: a translation whose words have not attended to all of the source loses in the ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.data.vocabulary import PAD
from nmt.errors import SettingError
from nmt.models.base import Seq2Seq
from nmt.ops.matrices.best_words import BestWords, Choice, best_words
from nmt.search.ruled import SearchState

S = TypeVar("S", bound=SearchState)

_LEAST: Final = 1e-30
"""Attention so small that it has become 0 counts as this much, so that a score is a number."""


@dataclass(frozen=True)
class CoveringState(Generic[S]):
    """The model's own state, and the attention that each source position has had."""

    inner: S
    attention: Tensor  # sums over the steps so far, in at least fp32 [N, S]
    is_token: Tensor  # which source positions are not padding [B, S]

    def expand(self, k: int) -> CoveringState[S]:
        return CoveringState(self.inner.expand(k), self.attention.repeat_interleave(k, dim=0), self.is_token)

    def reorder(self, rows: Tensor) -> CoveringState[S]:
        return CoveringState(self.inner.reorder(rows), self.attention.index_select(0, rows), self.is_token)

    def keep(self, sentences: Tensor) -> CoveringState[S]:
        by_sentence = self.attention.unflatten(0, (len(self.is_token), -1))
        attention = by_sentence.index_select(0, sentences).flatten(0, 1)
        return CoveringState(self.inner.keep(sentences), attention, self.is_token.index_select(0, sentences))


class CoveringModel:
    """A model that also sums the attention of its hypotheses, and computes a penalty for uncovered source tokens.

    For a source of tokens j (with the end symbol, without padding) and the attention a_tj of steps t (with the end
    symbol's step) (Wu et al., 2016, equation 14):

        penalty = strength * sum_j log(min(sum_t a_tj, 1))

    It is 0 or less, so no unfinished hypothesis ends with a score above its log-probability divided by the largest
    length penalty: a search that stops by that bound is correct.
    """

    def __init__(self, model: Any, *, strength: float) -> None:
        """`model` has `start`, and `attending_step`, as `RuledModel` has it; `Seq2Seq.tells_attention` tells whether
        what is below that can.

        From tokens [N], or None for the zero vector, and a state it makes log-probabilities [N, V], the attention
        [N, S], and the state after the tokens. The attention is the one used to predict the next token: the mean over
        attentions and heads and, for an ensemble, over its members. It adds up to 1 over the S source positions.
        """
        self._model = model
        self._strength = strength

    def start(self, source: Tensor) -> CoveringState[Any]:
        """State before the first token of the batch's sentences [B, S]."""
        return CoveringState(self._model.start(source), torch.zeros(source.shape, device=source.device), source != PAD)

    def step(self, tokens: Tensor | None, state: CoveringState[Any]) -> tuple[Tensor, CoveringState[Any]]:
        """Log-probabilities [N, V] after feeding `tokens` [N]; None is the zero vector."""
        log_probs, weights, inner = self._model.attending_step(tokens, state.inner)
        # Columns that are padding in all sentences may be missing at the right.
        weights = F.pad(weights, (0, state.attention.shape[1] - weights.shape[1]))
        return log_probs, CoveringState(inner, state.attention + weights, state.is_token)

    def best(
        self, tokens: Tensor | None, state: CoveringState[Any], choice: Choice
    ) -> tuple[BestWords, CoveringState[Any]]:
        """The best words after feeding `tokens` [N]."""
        log_probs, state = self.step(tokens, state)
        return best_words(log_probs, choice._replace(normalize=False)), state

    def penalties(self, state: CoveringState[Any]) -> Tensor:
        """What each hypothesis would get if it ended with the last step [B, N / B]; 0 or less."""
        covered = state.attention.clamp(min=_LEAST, max=1.0).log().unflatten(0, (len(state.is_token), -1))
        return self._strength * covered.masked_fill(~state.is_token.unsqueeze(1), 0.0).sum(2)


def check_attention(models: Sequence[Seq2Seq], *, key: str) -> None:
    """Raise ConfigError, naming the key that needs it, unless all models report their attention."""
    for model in models:
        if not model.tells_attention:
            raise SettingError((key, f"the decoder {type(model.decoder).__name__} does not report its attention"))
