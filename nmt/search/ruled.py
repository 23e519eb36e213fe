"""A model as a search sees it: what it must have, its distribution over the next word, adjusted, fused with another,
masked by rules; and the rules of all searches.

N rows of hypotheses, sentence-major, of B sentences; V words, t words so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from nmt.cells import reorder_state
from nmt.data import EOS, Tokenizer
from nmt.models.decoder import States
from nmt.ops.matrices.best_words import BestWords, Choice, best_words, log_probabilities
from nmt.registry import TASKS

if TYPE_CHECKING:
    from nmt.config.schema import DecodingConfig

S = TypeVar("S", bound="SearchState")


class SearchState(Protocol):
    """What a model carries from step to step: rows of recurrent states, sentence-major, and B memories."""

    def expand(self: S, k: int, /) -> S:
        """Repeat the rows of each sentence k times."""

    def reorder(self: S, rows: Tensor, /) -> S:
        """Row i continues the former row rows[i]; every row stays with its sentence."""

    def keep(self: S, sentences: Tensor, /) -> S:
        """Drop all sentences but these."""


class SearchModel(Protocol[S]):
    """A conditional distribution over the next token."""

    def start(self, source: Tensor) -> S:
        """State before the first token of `source` [B, S], with one row for each sentence."""

    def best(self, tokens: Tensor | None, state: S, choice: Choice) -> tuple[BestWords, S]:
        """The best words after feeding `tokens` [N]; None feeds the zero vector, as before the first token.

        A model that computes logits [N, V] leaves the rest to `nmt.ops.matrices.best_words.best_words`.
        """

    def step(self, tokens: Tensor | None, state: S) -> tuple[Tensor, S]:
        """Logits [N, V] of all words instead, which may be log-probabilities."""


class Step(NamedTuple):
    """Where the hypotheses stand whose next words are asked for."""

    history: Tensor  # words so far, as the search calls them [N, t]: ids, or places in the list of a shortlist
    lines: Tensor  # which sentence of the batch, as `start` was given it, each row belongs to [N]
    hypotheses: int  # rows of each sentence, N / B
    words: Tensor | None  # ids of the V words; None where these are all the ids there are


Adjustment = Callable[[Tensor, Step], Tensor]
"""A change of the logits before they are normalised, such as a temperature: other logits [N, V]; those given, in at
least fp32, may be overwritten."""


class Rule(Protocol):
    """A change of the log-probabilities, such as a word that must not be next."""

    def __call__(self, log_probs: Tensor, step: Step, *, original: Tensor) -> None:
        """Change `log_probs` [N, V] in place; `original` are those before any rule."""


class Fusion(Protocol):
    """A language model that takes part in a search; see `nmt.language_models.fusion`."""

    def add_to(self, log_probs: Tensor, tokens: Tensor | None, before: States | None, words: Tensor | None) -> States:
        """Add to log-probabilities [N, V], in place, and return the states after `tokens` [N]; None: the first step.

        Among `words` [U], ids, the log-probabilities are [N, U] and the tokens are places.
        """


@dataclass(frozen=True)
class RuledState(Generic[S]):
    """The model's own state, the words so far, and what a language model remembers of them."""

    inner: S
    history: Tensor  # [N, t]
    lines: Tensor  # places in the batch of the sentences that are still there [B]
    language: States | None = None  # states of the N rows; None before the first word, and without a language model

    @property
    def hypotheses(self) -> int:
        """Rows of each sentence."""
        return len(self.history) // max(1, len(self.lines))

    def expand(self, k: int) -> RuledState[S]:
        every = torch.arange(len(self.history), device=self.history.device).repeat_interleave(k)
        return self._with(self.inner.expand(k), every, self.lines)

    def reorder(self, rows: Tensor) -> RuledState[S]:
        return self._with(self.inner.reorder(rows), rows, self.lines)

    def keep(self, sentences: Tensor) -> RuledState[S]:
        places = torch.arange(self.hypotheses, device=sentences.device)
        rows = (sentences.unsqueeze(1) * self.hypotheses + places).flatten()
        return self._with(self.inner.keep(sentences), rows, self.lines.index_select(0, sentences))

    def _with(self, inner: S, rows: Tensor, lines: Tensor) -> RuledState[S]:
        language = None if self.language is None else tuple(reorder_state(state, rows) for state in self.language)
        return RuledState(inner, self.history.index_select(0, rows), lines, language)


@dataclass(frozen=True)
class RuledModel(Generic[S]):
    """Start, best words and log-probabilities of `model` for one batch; passed to every `Search`.

    The logits are adjusted in order, then normalised; then those of a language model are added, and the rules are
    applied in order. So the scores of allowed words are the model's own, whatever the rules exclude.

    Without adjustments, rules and a language model `best` is the model's own, and so is the state.
    """

    model: SearchModel[S]
    adjustments: Sequence[Adjustment] = ()
    rules: Sequence[Rule] = ()
    words: Tensor | None = None
    """Ids [V] of the words of `model` where these are not all ids, in order."""
    fusion: Fusion | None = None
    before_step: Callable[[], object] | None = None
    """Is called before each step; what it raises ends the search."""

    @cached_property
    def is_plain(self) -> bool:
        """Whether nothing is changed."""
        return not self.adjustments and not self.rules and self.fusion is None

    def adjusted(self, adjustment: Adjustment) -> RuledModel[S]:
        """The same with one more adjustment, after the existing ones and before the rules."""
        return replace(self, adjustments=[*self.adjustments, adjustment])

    def start(self, source: Tensor) -> Any:
        """State before the first token of the batch's sentences [B, S]."""
        inner = self.model.start(source)
        if self.is_plain:
            return inner
        lines = torch.arange(len(source), device=source.device)
        return RuledState(inner, source.new_empty(len(source), 0), lines)

    def best(self, tokens: Tensor | None, state: Any, choice: Choice) -> tuple[BestWords, Any]:
        """The best words after feeding `tokens` [N]; None is the zero vector."""
        if self.is_plain:
            if self.before_step is not None:
                self.before_step()
            return self.model.best(tokens, state, choice)
        log_probs, state = self.step(tokens, state)
        return best_words(log_probs, choice._replace(normalize=False)), state

    def step(self, tokens: Tensor | None, state: Any) -> tuple[Tensor, Any]:
        """Log-probabilities [N, V], in at least fp32, of the next word after `tokens` [N].

        Excluded words have -infinity; the others are not normalised again.
        """
        logits, inner = self.model.step(tokens, self._begun(state))
        return self._changed(logits, tokens, state, inner)

    def attending_step(self, tokens: Tensor | None, state: Any) -> tuple[Tensor, Tensor, Any]:
        """As `step`, between log-probabilities and state the attention [N, S]; see `CoveringModel`."""
        model: Any = self.model
        logits, attention, inner = model.attending_step(tokens, self._begun(state))
        log_probs, state = self._changed(logits, tokens, state, inner)
        return log_probs, attention, state

    def _begun(self, state: Any) -> Any:
        """The model's own state, where a step begins."""
        if self.before_step is not None:
            self.before_step()
        return state if self.is_plain else state.inner

    def _changed(self, logits: Tensor, tokens: Tensor | None, state: Any, inner: S) -> tuple[Tensor, Any]:
        """Log-probabilities as all of this makes them, and the state after `tokens`; `state` is that before."""
        if self.is_plain:
            return log_probabilities(logits), inner
        history = state.history if tokens is None else torch.cat([state.history, tokens.unsqueeze(1)], dim=1)
        state = replace(state, inner=inner, history=history)
        step = Step(history, state.lines.repeat_interleave(state.hypotheses), state.hypotheses, self.words)
        if self.adjustments:
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
            for adjust in self.adjustments:
                logits = adjust(logits, step)
        log_probs = log_probabilities(logits)
        if self.fusion is not None:
            state = replace(state, language=self.fusion.add_to(log_probs, tokens, state.language, self.words))
        if self.rules:
            original, log_probs = log_probs, log_probs.clone()
            for apply in self.rules:
                apply(log_probs, step, original=original)
        return log_probs, state


@dataclass(frozen=True)
class MinimumLength:
    """No end symbol before `tokens` words."""

    tokens: int

    def __call__(self, log_probs: Tensor, step: Step, *, original: Tensor) -> None:
        if step.history.shape[1] < self.tokens:
            log_probs[:, EOS] = -math.inf


@dataclass(frozen=True)
class NoRepeatedNgrams:
    """No sequence of n tokens twice in a hypothesis (Paulus et al., ICLR 2018)."""

    n: int

    def __call__(self, log_probs: Tensor, step: Step, *, original: Tensor) -> None:
        history, n = step.history, self.n
        if history.shape[1] < n:
            return
        ngrams = history.unfold(1, n, 1)  # [N, t - n + 1, n]
        last = history[:, history.shape[1] - n + 1 :].unsqueeze(1)  # [N, 1, n - 1]
        rows, places = (ngrams[:, :, :-1] == last).all(dim=2).nonzero(as_tuple=True)
        log_probs[rows, ngrams[rows, places, n - 1]] = -math.inf


@dataclass(frozen=True)
class Temperature:
    """Logits divided by T: below 1 the distribution is sharper, above 1 flatter."""

    temperature: float

    def __call__(self, logits: Tensor, step: Step) -> Tensor:
        return logits.div_(self.temperature)


@dataclass(frozen=True)
class RepeatPenalty:
    """The logits of the tokens that a hypothesis has are divided by `penalty`, negative ones multiplied with it.

    Keskar et al. (2019), in the form of CTranslate2 and transformers: each token counts once.
    """

    penalty: float

    def __call__(self, logits: Tensor, step: Step) -> Tensor:
        seen = logits.gather(1, step.history)  # [N, t]
        return logits.scatter_(1, step.history, torch.where(seen < 0, seen * self.penalty, seen / self.penalty))


def fusion_of(
    decoding: DecodingConfig, tokenizer: Tokenizer, *, device: torch.device, loaded: dict[str, Any] | None = None
) -> Fusion | None:
    """The language model of `decoding`, for this tokenizer; None if there is none, or its weight is 0.

    `loaded` are those that have been loaded, by their directories. Errors are those of `nmt.language_models.fusion`.
    """
    if decoding.language_model is None:
        return None
    found: Fusion | None = TASKS.get("language_model").fusion_of(decoding, tokenizer, device=device, loaded=loaded)
    return found
