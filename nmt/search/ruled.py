"""A model as a search sees it: its distribution over the next word, changed by adjustments and masked by rules.

N rows of hypotheses, sentence-major, of B sentences; V words, t words so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from nmt.ops.matrices.best_words import BestWords, Choice, best_words
from nmt.ops.matrices.top import log_probabilities
from nmt.search.protocol import SearchModel, SearchState

S = TypeVar("S", bound=SearchState)


class Step(NamedTuple):
    """Where the hypotheses stand whose next words are asked for."""

    history: Tensor
    """Words so far, as the search calls them [N, t]: ids, or places in the list of a shortlist."""
    lines: Tensor
    """Which sentence of the batch, as `start` was given it, each row belongs to [N]."""
    hypotheses: int
    """Rows of each sentence, N / B."""
    words: Tensor | None
    """Ids of the V words; None where these are all the ids there are."""


class Adjustment(Protocol):
    """A change of the logits before they are normalised, such as a temperature."""

    def __call__(self, logits: Tensor, step: Step) -> Tensor:
        """Other logits [N, V]; those given, in at least fp32, may be overwritten."""


class Rule(Protocol):
    """A change of the log-probabilities, such as a word that must not be next."""

    def __call__(self, log_probs: Tensor, step: Step, *, original: Tensor) -> None:
        """Change `log_probs` [N, V] in place; `original` are those before any rule."""


@dataclass(frozen=True)
class RuledState(Generic[S]):
    """The model's own state, and the words so far."""

    inner: S
    history: Tensor
    """[N, t]"""
    lines: Tensor
    """Places in the batch of the sentences that are still there [B]."""

    @property
    def hypotheses(self) -> int:
        """Rows of each sentence."""
        return len(self.history) // max(1, len(self.lines))

    def expand(self, k: int) -> RuledState[S]:
        """Each row k times, one below the other."""
        return RuledState(self.inner.expand(k), self.history.repeat_interleave(k, dim=0), self.lines)

    def reorder(self, rows: Tensor) -> RuledState[S]:
        """The rows [N'] in this order, each within its sentence."""
        return RuledState(self.inner.reorder(rows), self.history.index_select(0, rows), self.lines)

    def keep(self, sentences: Tensor) -> RuledState[S]:
        """Only the sentences [B']."""
        by_sentence = self.history.unflatten(0, (len(self.lines), self.hypotheses))
        history = by_sentence.index_select(0, sentences).flatten(0, 1)
        return RuledState(self.inner.keep(sentences), history, self.lines.index_select(0, sentences))


class RuledModel(Generic[S]):
    """Start, best words and log-probabilities of `model` for one batch; what every `Search` is given.

    The logits are adjusted in order, then normalised; then the rules are applied in order. So the scores of the words
    that the rules leave are the model's own, whatever they exclude.

    Without adjustments and rules `best` is the model's own, and so is the state.
    """

    def __init__(
        self,
        model: SearchModel[S],
        *,
        adjustments: Sequence[Adjustment] = (),
        rules: Sequence[Rule] = (),
        words: Tensor | None = None,
    ) -> None:
        """`words` [V]: ids of the words of `model` where these are not all ids, in order."""
        self._model = model
        self._adjustments = tuple(adjustments)
        self._rules = tuple(rules)
        self._words = words

    @property
    def is_plain(self) -> bool:
        """Whether nothing is changed."""
        return not self._adjustments and not self._rules

    def adjusted(self, adjustment: Adjustment) -> RuledModel[S]:
        """The same with one more adjustment, after those that there are and before the rules."""
        return RuledModel(
            self._model, adjustments=[*self._adjustments, adjustment], rules=self._rules, words=self._words
        )

    def ruled(self, rule: Rule) -> RuledModel[S]:
        """The same with one more rule, after those that there are."""
        return RuledModel(self._model, adjustments=self._adjustments, rules=[*self._rules, rule], words=self._words)

    def start(self, source: Tensor) -> Any:
        """State before the first token of the batch's sentences [B, S]."""
        inner = self._model.start(source)
        if self.is_plain:
            return inner
        lines = torch.arange(len(source), device=source.device)
        return RuledState(inner, source.new_empty(len(source), 0), lines)

    def best(self, tokens: Tensor | None, state: Any, choice: Choice) -> tuple[BestWords, Any]:
        """The best words after feeding `tokens` [N]; None is the zero vector."""
        if self.is_plain:
            return self._model.best(tokens, state, choice)
        log_probs, state = self.step(tokens, state)
        return best_words(log_probs, choice._replace(normalize=False)), state

    def step(self, tokens: Tensor | None, state: Any) -> tuple[Tensor, Any]:
        """Log-probabilities [N, V], in at least fp32, of the next word after `tokens` [N].

        What a rule excludes has -infinity; the others are not normalised anew.
        """
        if self.is_plain:
            logits, state = self._model.step(tokens, state)
            return log_probabilities(logits), state
        logits, inner = self._model.step(tokens, state.inner)
        return self._changed(logits, tokens, RuledState(inner, state.history, state.lines))

    def attending_step(self, tokens: Tensor | None, state: Any) -> tuple[Tensor, Tensor, Any]:
        """As `step`, between log-probabilities and state the attention [N, S]; see `AttendingModel`."""
        model: Any = self._model
        if self.is_plain:
            logits, attention, state = model.attending_step(tokens, state)
            return log_probabilities(logits), attention, state
        logits, attention, inner = model.attending_step(tokens, state.inner)
        log_probs, state = self._changed(logits, tokens, RuledState(inner, state.history, state.lines))
        return log_probs, attention, state

    def _changed(self, logits: Tensor, tokens: Tensor | None, state: RuledState[S]) -> tuple[Tensor, RuledState[S]]:
        """Adjusted and ruled log-probabilities, and the state after `tokens`; `state` has the words before them."""
        history = state.history if tokens is None else torch.cat([state.history, tokens.unsqueeze(1)], dim=1)
        state = RuledState(state.inner, history, state.lines)
        step = Step(history, state.lines.repeat_interleave(state.hypotheses), state.hypotheses, self._words)
        if self._adjustments:
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
            for adjust in self._adjustments:
                logits = adjust(logits, step)
        log_probs = log_probabilities(logits)
        if self._rules:
            original, log_probs = log_probs, log_probs.clone()
            for apply in self._rules:
                apply(log_probs, step, original=original)
        return log_probs, state
