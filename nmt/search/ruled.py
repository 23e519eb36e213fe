"""A model as a search sees it: what it must have, its distribution over the next word, adjusted, fused with another,
masked by rules; and the rules of all searches.

N rows of hypotheses, sentence-major, of B sentences; V words, t words so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from nmt.data.vocabulary import EOS
from nmt.models.decoder import States
from nmt.ops.matrices.best_words import BestWords, Choice, best_words, log_probabilities
from nmt.search.fusion import Fusion, taken

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


class AttendingModel(Protocol[S]):
    """A model that also returns its attention; `Seq2Seq.tells_attention` tells whether it can."""

    def start(self, source: Tensor) -> S:
        """See `SearchModel`."""

    def attending_step(self, tokens: Tensor | None, state: S) -> tuple[Tensor, Tensor, S]:
        """Logits [N, V] after feeding `tokens` [N], or None for the zero vector, the attention [N, S], and the state.

        The attention is the one used to predict the next token: the mean over attentions and heads and, for an
        ensemble, over its members. It adds up to 1 over the S source positions.
        """


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
    """The model's own state, the words so far, and what a language model remembers of them."""

    inner: S
    history: Tensor
    """[N, t]"""
    lines: Tensor
    """Places in the batch of the sentences that are still there [B]."""
    language: States | None = None
    """States of the N rows; None before the first word, and without a language model."""

    @property
    def hypotheses(self) -> int:
        """Rows of each sentence."""
        return len(self.history) // max(1, len(self.lines))

    def expand(self, k: int) -> RuledState[S]:
        """Each row k times, one below the other."""
        every = torch.arange(len(self.history), device=self.history.device).repeat_interleave(k)
        return RuledState(self.inner.expand(k), self.history[every], self.lines, taken(self.language, every))

    def reorder(self, rows: Tensor) -> RuledState[S]:
        """The rows [N'] in this order, each within its sentence."""
        history = self.history.index_select(0, rows)
        return RuledState(self.inner.reorder(rows), history, self.lines, taken(self.language, rows))

    def keep(self, sentences: Tensor) -> RuledState[S]:
        """Only the sentences [B']."""
        places = torch.arange(self.hypotheses, device=sentences.device)
        rows = (sentences.unsqueeze(1) * self.hypotheses + places).flatten()
        lines, history = self.lines.index_select(0, sentences), self.history.index_select(0, rows)
        return RuledState(self.inner.keep(sentences), history, lines, taken(self.language, rows))


class RuledModel(Generic[S]):
    """Start, best words and log-probabilities of `model` for one batch; passed to every `Search`.

    The logits are adjusted in order, then normalised; then those of a language model are added, and the rules are
    applied in order. So the scores of allowed words are the model's own, whatever the rules exclude.

    Without adjustments, rules and a language model `best` is the model's own, and so is the state.
    """

    def __init__(
        self,
        model: SearchModel[S],
        *,
        adjustments: Sequence[Adjustment] = (),
        rules: Sequence[Rule] = (),
        words: Tensor | None = None,
        fusion: Fusion | None = None,
        before_step: Callable[[], object] | None = None,
    ) -> None:
        """`words` [V]: ids of the words of `model` where these are not all ids, in order.

        `before_step` is called before each step; what it raises ends the search.
        """
        self._model = model
        self._adjustments = tuple(adjustments)
        self._rules = tuple(rules)
        self._words = words
        self._fusion = fusion
        self._before_step = before_step
        self.is_plain = not self._adjustments and not self._rules and fusion is None
        """Whether nothing is changed."""

    def adjusted(self, adjustment: Adjustment) -> RuledModel[S]:
        """The same with one more adjustment, after the existing ones and before the rules."""
        return self._with(adjustments=[*self._adjustments, adjustment])

    def ruled(self, rule: Rule) -> RuledModel[S]:
        """The same with one more rule, after the existing ones."""
        return self._with(rules=[*self._rules, rule])

    def _with(
        self, *, adjustments: Sequence[Adjustment] | None = None, rules: Sequence[Rule] | None = None
    ) -> RuledModel[S]:
        adjustments = self._adjustments if adjustments is None else adjustments
        rules = self._rules if rules is None else rules
        return RuledModel(
            self._model,
            adjustments=adjustments,
            rules=rules,
            words=self._words,
            fusion=self._fusion,
            before_step=self._before_step,
        )

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
            if self._before_step is not None:
                self._before_step()
            return self._model.best(tokens, state, choice)
        log_probs, state = self.step(tokens, state)
        return best_words(log_probs, choice._replace(normalize=False)), state

    def step(self, tokens: Tensor | None, state: Any) -> tuple[Tensor, Any]:
        """Log-probabilities [N, V], in at least fp32, of the next word after `tokens` [N].

        Excluded words have -infinity; the others are not normalised again.
        """
        self._begin_step()
        if self.is_plain:
            logits, state = self._model.step(tokens, state)
            return log_probabilities(logits), state
        logits, inner = self._model.step(tokens, state.inner)
        return self._changed(logits, tokens, replace(state, inner=inner))

    def attending_step(self, tokens: Tensor | None, state: Any) -> tuple[Tensor, Tensor, Any]:
        """As `step`, between log-probabilities and state the attention [N, S]; see `AttendingModel`."""
        model: Any = self._model
        self._begin_step()
        if self.is_plain:
            logits, attention, state = model.attending_step(tokens, state)
            return log_probabilities(logits), attention, state
        logits, attention, inner = model.attending_step(tokens, state.inner)
        log_probs, state = self._changed(logits, tokens, replace(state, inner=inner))
        return log_probs, attention, state

    def _begin_step(self) -> None:
        if self._before_step is not None:
            self._before_step()

    def _changed(self, logits: Tensor, tokens: Tensor | None, state: RuledState[S]) -> tuple[Tensor, RuledState[S]]:
        """Log-probabilities as all of this makes them, and the state after `tokens`; `state` has the words before."""
        history = state.history if tokens is None else torch.cat([state.history, tokens.unsqueeze(1)], dim=1)
        state = replace(state, history=history)
        step = Step(history, state.lines.repeat_interleave(state.hypotheses), state.hypotheses, self._words)
        if self._adjustments:
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
            for adjust in self._adjustments:
                logits = adjust(logits, step)
        log_probs = log_probabilities(logits)
        if self._fusion is not None:
            state = replace(state, language=self._fusion.add_to(log_probs, tokens, state.language, self._words))
        if self._rules:
            original, log_probs = log_probs, log_probs.clone()
            for apply in self._rules:
                apply(log_probs, step, original=original)
        return log_probs, state


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


class Temperature:
    """Logits divided by T: below 1 the distribution is sharper, above 1 flatter."""

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature

    def __call__(self, logits: Tensor, step: Step) -> Tensor:
        return logits.div_(self._temperature)


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


def rules_of(decoding: DecodingConfig) -> list[Rule]:
    """Changes of the log-probabilities that it asks for, whatever the sentence."""
    rules: list[Rule] = [MinimumLength(decoding.min_length)] if decoding.min_length else []
    return [*rules, NoRepeatedNgrams(decoding.no_repeat_ngram)] if decoding.no_repeat_ngram else rules


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
