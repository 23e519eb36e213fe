"""What a search is to the translator and to a configuration, from which one of yours derives in a plugin; and the
simplest one, greedy search: the most probable token at every step.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar, final

import torch
from torch import Tensor

from nmt.config.options import component_options
from nmt.data.vocabulary import EOS, PAD, UNK
from nmt.errors import SettingError
from nmt.light.options import OPTIONS
from nmt.ops.matrices.best_words import Choice
from nmt.ops.recurrence import next_size
from nmt.registry import SEARCHES, NoOptions
from nmt.search.ruled import RuledModel
from nmt.search.values import FIRST_EOS_PENALTY, Hypothesis, cut

if TYPE_CHECKING:
    from nmt.config.schema import DecodingConfig

N = TypeVar("N", float, Tensor)


@dataclass(frozen=True)
class Required:
    """What the translations of a batch must contain, in words as the search calls them (ids or places in a list)."""

    phrases: Sequence[Sequence[tuple[int, ...]]]
    """The phrases of each sentence [B]; a repeated phrase counts once."""
    joins_left: Tensor
    """Whether each word begins with a letter that a letter before it makes part of a longer word [V]."""
    joins_right: Tensor
    """Whether it ends with such a letter [V]."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a search is told about a batch: see `Search.search`."""

    beam_size: int = 1
    length_penalty: float
    max_length_offset: int
    length_normalization: str = "gnmt"
    max_length_factor: float = 1.0
    n_best: int | None = None
    """None: as many hypotheses of a sentence as the search has."""
    scores: bool = True
    coverage_penalty: float = 0.0
    required: Required | None = None
    decode: Callable[[Sequence[int]], str] | None = None

    def penalty(self, length: N) -> N:
        """What the log-probability of `length` tokens, the end symbol counted, is divided by, also of a tensor of them:
        ((5 + length) / 6) ** length_penalty (Wu et al., 2016), or length ** length_penalty.
        """
        base: Any = length if self.length_normalization == "power" else (5.0 + length) / 6.0
        found: N = base**self.length_penalty
        return found


def limits_of(source: Tensor, settings: Settings | DecodingConfig) -> Tensor:
    """The longest translations [B] in tokens of source [B, S], the end symbol counted in both; 1 at least.

    The product is rounded to fp32 before it is rounded down, as the engine does.
    """
    lengths = (source != PAD).sum(dim=1).float()
    return ((lengths * settings.max_length_factor).long() + settings.max_length_offset).clamp(min=1)


LENGTHS: Final = frozenset({"length_normalization", "max_length_factor"})
"""Settings of lengths, which a search of a plugin may not have."""


class Search:
    """A way to find good translations of a batch of sentences."""

    Options: ClassVar[type] = NoOptions
    """Frozen dataclass of the search's options, against which `decoding.search_options` is checked."""
    accepts: ClassVar[frozenset[str]] = frozenset()
    """Which of the further arguments of `search` it takes. They are passed if needed; a search that lacks a requested
    argument is refused by name."""
    only_beam_size: ClassVar[int | None] = None
    """The beam size that it needs, which a user who asks for this search need not give; None: any."""
    best_of_n: ClassVar[bool] = False
    """Whether the best translation that it finds depends on `n_best`, as the best of more samples does."""

    def __init__(self, *, options: Any = None) -> None:
        self.options = self.Options() if options is None else options

    @classmethod
    def check(cls, decoding: DecodingConfig) -> list[tuple[str, str]]:
        """What of the section `decoding` this search cannot do, as (key, message), besides what `problems` finds."""
        return []

    @classmethod
    def largest_n_best(cls, decoding: DecodingConfig) -> int:
        """Most hypotheses of a sentence that this search finds with such settings; as many as the beam holds."""
        return decoding.beam_size

    @classmethod
    def hypotheses(cls, decoding: DecodingConfig) -> int:
        """Rows of the model's states per sentence, used to compute the size of batches."""
        return decoding.beam_size

    @classmethod
    def size(cls, decoding: DecodingConfig) -> str:
        """How large the search is, for a line of a log."""
        return f"beam {decoding.beam_size}"

    @classmethod
    @final
    def problems(cls, decoding: DecodingConfig) -> list[tuple[str, str]]:
        """All of the section `decoding` that this search cannot do, as (full key, message)."""
        found = []
        most = cls.largest_n_best(decoding)
        if decoding.n_best > most:
            limit = f"beam_size ({most})" if most == decoding.beam_size else f"{most}, all that this search finds"
            found.append(("decoding", f"n_best ({decoding.n_best}) must not exceed {limit}"))
        for key in cls.further(decoding):
            if key not in cls.accepts:
                message = f"'{decoding.chosen_search}' has none; {searches_that_accept(key)} have"
                found.append((f"decoding.{key}", message))
        reached = max(0, int(limits_of(torch.tensor([[UNK, EOS]]), decoding)) - 2)
        if decoding.min_length > reached:
            by = "max_length_offset and max_length_factor allow for a source of one word"
            found.append(("decoding.min_length", f"{decoding.min_length} must not exceed {reached}, which {by}"))
        if decoding.language_model_weight is not None and decoding.language_model is None:
            message = "has no effect without decoding.language_model, which names a language model"
            found.append(("decoding.language_model_weight", message))
        return found + [(f"decoding.{key}", message) for key, message in cls.check(decoding)]

    @staticmethod
    def further(decoding: DecodingConfig) -> dict[str, Any]:
        """The further arguments of `search` that the section `decoding` asks for."""
        keys = ("coverage_penalty", *sorted(LENGTHS))
        return {key: value for key in keys if (value := getattr(decoding, key)) != OPTIONS[key].default}

    def search(
        self,
        model: RuledModel[Any],
        source: Tensor,
        *,
        beam_size: int,
        length_penalty: float,
        max_length_offset: int,
        n_best: int,
        scores: bool,
        **further: Any,
    ) -> list[list[Hypothesis]]:
        """Translate a batch; called in inference mode. This is what a plugin defines.

        Args:
            model: has `start`, `best` and `step`, in evaluation mode; it keeps to the rules of the batch.
            source: ids [B, S], each row ending with EOS and filled with PAD.
            beam_size, length_penalty, max_length_offset, n_best: as in the section `decoding`.
            scores: if false, scores are not used and may be NaN where that is faster.

        Further keyword arguments, passed if `accepts` names them:
            coverage_penalty: as in the section `decoding`, where it is not 0; the model has `attending_step` then.
            length_normalization, max_length_factor: as there, where they are not the usual ones.
            required: a `Required`, where some sentence of the batch must contain phrases.
            decode: the text of a list of words as the search calls them, ids of the model or places in a shortlist.

        Returns:
            For each sentence one to n_best hypotheses, best first, their ids without EOS and what follows it.
            A hypothesis cut by its limit is marked by `has_ended`, one without finite probabilities by `is_finite`; the
            latter is then the only one.
        """
        settings = Settings(
            beam_size=beam_size,
            length_penalty=length_penalty,
            max_length_offset=max_length_offset,
            n_best=n_best,
            scores=scores,
            **further,
        )
        return self.found(model, source, settings)

    def found(self, model: RuledModel[Any], source: Tensor, settings: Settings) -> list[list[Hypothesis]]:
        """`search` with the settings as one value, as the searches of nmt define it."""
        raise NotImplementedError(f"{type(self).__name__} defines no search")


def searches_that_accept(argument: str) -> str:
    """Their names, to be read by a user."""
    return ", ".join(name for name in SEARCHES.names() if argument in SEARCHES.get(name).accepts)


def build_search(decoding: DecodingConfig) -> Search:
    """The search that the section `decoding` chooses.

    Raises ConfigError for a name that is not registered, options that it does not have, and what it cannot do.
    """
    member = SEARCHES.get(decoding.chosen_search)
    problems = member.problems(decoding)
    if problems:
        raise SettingError(*problems)
    options = component_options(member, decoding.search_options, key="decoding.search_options")
    search: Search = member(options=options)
    return search


def rows_to_keep(active: Tensor) -> Tensor | None:
    """The sentences of a batch to keep, ascending, from `active` [B]; None to keep the batch unchanged.

    The batch shrinks to the sizes 1 to 8, 10, 12, 14, 16, 20, 24, 28, 32, 40 and so on, filled up with finished
    sentences: cutting copies all states and memories, and at each new number of rows the matrix library prepares each
    of its products anew, which can take longer than the product.
    """
    left = int(active.sum())
    size = next_size(left, an_octave=4)
    if size >= len(active):
        return None
    return torch.sort(active.to(torch.uint8), descending=True, stable=True).indices[:size].sort().values


class Path(NamedTuple):
    """The only hypothesis of each of the B sentences searched, of t tokens so far."""

    sentences: Tensor  # places of these sentences in the batch [B]
    active: Tensor  # false for a finished sentence, which stays only until the batch is cut [B]
    limits: Tensor  # longest translations in tokens [B]
    ids: Tensor  # [B, t]
    totals: Tensor  # sums of the values of the chosen tokens [B]: log-probabilities, or logits if scores are not needed

    def select(self, rows: Tensor) -> Path:
        """Some of the sentences."""
        return Path(*(field.index_select(0, rows) for field in self))


@SEARCHES.register("greedy")
class GreedySearch(Search):
    """The most probable token at every step, up to the first end symbol."""

    accepts = LENGTHS
    only_beam_size = 1

    @classmethod
    def check(cls, decoding: DecodingConfig) -> list[tuple[str, str]]:
        if decoding.beam_size == 1:
            return []
        return [("search", f"'greedy' follows one hypothesis: beam_size must be 1, not {decoding.beam_size}")]

    @classmethod
    def largest_n_best(cls, decoding: DecodingConfig) -> int:
        return 1

    def found(self, model: RuledModel[Any], source: Tensor, settings: Settings) -> list[list[Hypothesis]]:
        results: list[list[Hypothesis]] = [[]] * len(source)
        if not results:
            return results
        sentences = torch.arange(len(source), device=source.device)
        path = Path(
            sentences,
            active=torch.ones_like(sentences, dtype=torch.bool),
            limits=limits_of(source, settings),
            ids=source.new_empty(len(source), 0),
            totals=torch.zeros(len(source), device=source.device),
        )
        state = model.start(source)
        for t in itertools.count():
            done = path.active & (t >= path.limits if t == 0 else (path.ids[:, -1] == EOS) | (t >= path.limits))
            if bool(done.any()):
                ended, penalty = path.select(done.nonzero().squeeze(1)), settings.penalty(t)
                for sentence, ids, total in zip(
                    ended.sentences.tolist(), ended.ids.tolist(), ended.totals.tolist(), strict=True
                ):
                    score = total / penalty if settings.scores else math.nan
                    is_finite = math.isfinite(total)
                    results[sentence] = [Hypothesis(cut(ids), score, has_ended=EOS in ids, is_finite=is_finite)]
                path = path._replace(active=path.active & ~done)
                rows = rows_to_keep(path.active)
                if rows is not None:
                    if not len(rows):
                        return results
                    path, state = path.select(rows), state.keep(rows)
            wanted = Choice(
                1, normalize=settings.scores, banned=PAD, penalised=None if t else EOS, penalty=FIRST_EOS_PENALTY
            )
            best, state = model.best(path.ids[:, -1] if t else None, state, wanted)
            longer = torch.cat([path.ids, best.words], dim=1)
            path = path._replace(ids=longer, totals=path.totals + best.values.squeeze(1))
        raise AssertionError("every sentence has a limit")
