"""From text to text: encode, batch by length, search, decode, and give everything back in input order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nmt.config.schema import DecodingConfig
from nmt.data import EOS, UNK, Tokenizer, batch_lines, pad, restore_order
from nmt.data.text import is_empty
from nmt.data.tokenizer import on_one_line
from nmt.data.windows import windows
from nmt.models.base import Seq2Seq
from nmt.ops.dispatch import use_verified
from nmt.search.base import build_search
from nmt.search.constraints import FREE, Constraints, ConstraintsMaker
from nmt.search.coverage import check_attention
from nmt.search.ensemble import as_one
from nmt.search.ensemble_mean import ensemble_mean
from nmt.search.hypothesis import Hypothesis
from nmt.search.prepared import PreparedModels, prepare_models
from nmt.search.protocol import SearchModel
from nmt.search.request import Request, as_request, characters_of
from nmt.search.restricted import RestrictedModel
from nmt.search.ruled import RuledModel
from nmt.search.splitting import parts_of

WINDOW = 2000
"""Lines read, sorted by length and translated together; this bounds the memory for input of any length."""


AUTO_BATCH_TOKENS = 16384
"""Beyond it, search on a CPU gets no faster."""
AUTO_CELLS = 1 << 24
"""Most probabilities of a step, rows times vocabulary: 64 MiB in fp32, of which a step holds several."""


@dataclass(frozen=True)
class ScoredText:
    """One translation, a single line, and its length-penalised log-probability."""

    text: str
    score: float


@dataclass(frozen=True)
class Translation:
    """What became of one input line."""

    source: str
    hypotheses: list[ScoredText]
    """Best first, one at least. An empty line has one, empty, with score 0; where there is none that `is_finite`, the
    score is -infinity."""
    source_tokens: int = 0
    """Tokens sent through the model, the end symbol not counted."""
    unknown: int = 0
    """Of these, tokens that the vocabulary lacks."""
    parts: int = 1
    """Parts that a line longer than `decoding.split_long` was translated in."""
    longest_part: int = 0
    """Tokens of the longest of them, the end symbol not counted."""
    has_ended: bool = True
    """False where the best hypothesis, of one part at least, was cut by the limit of its length."""
    is_finite: bool = True
    """False where, for one part at least, no hypothesis has a finite probability; the translation is empty then."""
    missing: int = 0
    """Phrases that the request requires and the best translation lacks."""

    @property
    def best(self) -> str:
        """The best translation."""
        return self.hypotheses[0].text


def batch_limits(decoding: DecodingConfig, *, vocabulary: int) -> tuple[int, int | None]:
    """Tokens in a batch, and rows (sentences times beam) if these are limited too."""
    if decoding.batch_tokens == "auto":
        return AUTO_BATCH_TOKENS, max(1, AUTO_CELLS // vocabulary)
    return decoding.batch_tokens, None


class Translator:
    """Translates lines of text with a model, or several, which must be in evaluation mode.

    Each line's translation depends on that line alone, not on its companions in a batch, but for rounding. Empty
    lines, and lines that the tokenizer makes nothing of, are not sent through the model: their
    translation is empty. No line is too long: one with more than `decoding.split_long` tokens is
    translated in parts, so that time and memory grow no faster than its length. Its translation
    is that of the parts, joined by spaces: the i-th best from the i-th best of each part, or the
    last where a part has fewer, with the sum of their scores.

    A line may be a `Request` with wishes of its own. Those that no translation could fulfil raise DataError, which
    names the request, before anything of its window is translated. A prefix is the beginning of the first part, and
    of an empty line the whole translation.
    """

    def __init__(
        self,
        model: Seq2Seq,
        tokenizer: Tokenizer,
        decoding: DecodingConfig,
        *,
        others: Sequence[Seq2Seq] = (),
        device: torch.device | str | None = None,
        window: int = WINDOW,
        scores: bool = True,
        before_batch: Callable[[], object] | None = None,
        on_batch: Callable[[int], object] | None = None,
        prepared: PreparedModels | None = None,
    ) -> None:
        """`others` are models over the same vocabularies whose probabilities are averaged with those of `model`.

        `device` is where all of them are; by default the first parameter of `model` says so.

        The weights are taken over as they are now, in the number format `precision`. Without `scores` greedy
        search is faster and gives NaN for them. `before_batch` is called before each batch; what it raises ends the
        work. `on_batch` is then told how many sentences the batch has. `prepared` are these models as another
        translator has them (`Translator.prepared`), in the number format that `decoding` asks for; they are not
        converted again.

        Raises DataError for a shortlist that is missing or not this model's, ConfigError for a search that cannot do
        what `decoding` asks for, and for weights of another number of models.
        """
        self._tokenizer = tokenizer
        self._decoding = decoding
        if prepared is None:
            prepared = prepare_models([model, *others], precision=decoding.precision, device=device)
        self.prepared = prepared
        self.precision = prepared.precision
        self._device = prepared.device
        self._vocabulary = prepared.vocabulary
        mean = ensemble_mean(decoding, models=len(prepared.models))
        self._model = as_one(prepared.models, mean=mean)
        self._graphed = as_one(prepared.graphed, mean=mean)
        self._window = window
        self._search = build_search(decoding)
        if decoding.coverage_penalty:
            check_attention(prepared.models, key="decoding.coverage_penalty")
        self._scores = scores
        self._before_batch = before_batch
        self._on_batch = on_batch
        self._constraints = ConstraintsMaker(tokenizer, decoding)
        self._shortlist = None if decoding.shortlist is None else prepared.shortlist(decoding.shortlist, tokenizer)

    def translate(self, lines: Iterable[str | Request]) -> Iterator[str]:
        """The best translation of each line, in order."""
        for translation in self.translations(lines):
            yield translation.best

    def translations(self, lines: Iterable[str | Request]) -> Iterator[Translation]:
        """The n best translations of each line, in order, window by window as `lines` delivers."""
        for window in windows(lines, size=self._window, length=characters_of):
            yield from self.translate_window(window)

    def translate_window(self, lines: Sequence[str | Request]) -> list[Translation]:
        """The n best translations of some lines, all at once."""
        requests = [as_request(line) for line in lines]
        wanted = [self._constraints.of(request) for request in requests]
        filled = [place for place, request in enumerate(requests) if not is_empty(request.text)]
        encoded = self._tokenizer.encode_source([requests[place].text for place in filled])
        sources = {place: self._parts(requests[place], ids) for place, ids in zip(filled, encoded, strict=True) if ids}
        constraints = [
            wanted[place].of_part(number) for place, parts in sources.items() for number, _ in enumerate(parts)
        ]
        found = iter(self.search([[*ids, EOS] for parts in sources.values() for ids in parts], constraints))
        return [
            self._translation(request, sources[place], [next(found) for _ in sources[place]])
            if place in sources
            else self._untranslated(request)
            for place, request in enumerate(requests)
        ]

    def _untranslated(self, request: Request) -> Translation:
        """What becomes of a line that is empty for the model."""
        text = self._constraints.with_prefix(request, "")
        return Translation(request.text, [ScoredText(text, 0.0)], missing=self._constraints.missing(request, text))

    def _parts(self, request: Request, ids: list[int]) -> list[list[int]]:
        """What of a line is translated at once: `ids`, all of it, unless it is too long.

        A line with required phrases is never cut, for none of its parts is the one that must contain them.
        """
        longest = self._decoding.split_long
        if longest is None or len(ids) <= longest or request.required:
            return [ids]
        return parts_of(request.text, self._tokenizer, longest=longest)

    def search(
        self, sources: Sequence[Sequence[int]], constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        """The n best hypotheses of each source in ids, EOS included, in order; `constraints`: of each source."""
        if constraints is None:
            constraints = [FREE] * len(sources)
        batches = self._batches(sources, constraints)
        with self.precision.autocast():  # once for all batches: it keeps what it has cast until it is left
            results = [
                self._search_batch(
                    pad([sources[place] for place in batch]).to(self._device), [constraints[place] for place in batch]
                )
                for batch in batches
            ]
        return restore_order(batches, results)

    def _batches(self, sources: Sequence[Sequence[int]], constraints: Sequence[Constraints]) -> list[list[int]]:
        """Places of the sources in batches.

        One whose limit must grow is alone: a search has one offset for a batch. Those with required phrases are apart
        from the others, which have a faster search.
        """
        tokens, rows = batch_limits(self._decoding, vocabulary=self._vocabulary)
        copies = self._search.hypotheses(self._decoding)
        kinds: dict[bool, list[int]] = {False: [], True: []}
        alone: list[int] = []
        for place, one in enumerate(constraints):
            of_kind = alone if self._longer(sources[place], one) else kinds[bool(one.required)]
            of_kind.append(place)
        batches = [[place] for place in alone]
        for places in kinds.values():
            lengths = [len(sources[place]) for place in places]
            found = batch_lines(lengths, batch_tokens=tokens, copies=copies, batch_rows=rows)
            batches += [[places[i] for i in batch] for batch in found]
        return batches

    def _longer(self, source: Sequence[int], constraints: Constraints) -> int:
        """By how many tokens the limit must grow, so that what must be there does not use it up."""
        limit = len(source) + self._decoding.max_length_offset
        return max(0, constraints.tokens - len(source)) if constraints.tokens > limit else 0

    @torch.inference_mode()
    def _search_batch(self, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
        if self._before_batch is not None:
            self._before_batch()
        if self._on_batch is not None:
            self._on_batch(len(source))
        model: Any = self._graphed if use_verified("decoding_step", source) else self._model
        if self._shortlist is None:
            return self._run(model, source, constraints)
        words = self._shortlist.words(source, also=[one.words for one in constraints])
        restricted: RestrictedModel[Any, Any] = RestrictedModel(model, words)
        return restricted.with_ids(self._run(restricted, source, constraints, words=restricted.ids))

    def _run(
        self, model: SearchModel[Any], source: Tensor, constraints: Sequence[Constraints], words: Tensor | None = None
    ) -> list[list[Hypothesis]]:
        """`words`: ids of the words of `model`, None for all."""
        decoding = self._decoding
        rules = self._constraints.rules(constraints, words=words, device=source.device)
        longer = self._longer(source[0].tolist(), constraints[0])  # more than 0 only for a sentence alone
        return self._search.search(
            RuledModel(model, rules=rules, words=words),
            source,
            beam_size=decoding.beam_size,
            length_penalty=decoding.length_penalty,
            max_length_offset=decoding.max_length_offset + longer,
            n_best=decoding.n_best,
            scores=self._scores,
            **self._further(constraints, words, source),
        )

    def _further(self, constraints: Sequence[Constraints], words: Tensor | None, source: Tensor) -> dict[str, Any]:
        """What the search is given besides, where it is needed and the search accepts it."""
        further: dict[str, Any] = {}
        if self._decoding.coverage_penalty:
            further["coverage_penalty"] = self._decoding.coverage_penalty
        required = self._constraints.required(constraints, words=words, device=source.device)
        if required is not None:
            further["required"] = required
        if "decode" in self._search.accepts:
            ids = None if words is None else words.tolist()
            further["decode"] = lambda found: self._text(found if ids is None else [ids[place] for place in found])
        return further

    def _text(self, ids: Sequence[int]) -> str:
        # A plugin's tokenizer may not know that a translation is one line.
        return on_one_line(self._tokenizer.decode_target(ids))

    def _translation(
        self, request: Request, parts: Sequence[Sequence[int]], found: Sequence[Sequence[Hypothesis]]
    ) -> Translation:
        """What became of a line, from the hypotheses found for each of its parts."""
        usable = [[hypothesis for hypothesis in part if self._is_usable(hypothesis)] for part in found]
        is_finite = all(usable)
        hypotheses = self._joined(request, usable) if is_finite else [ScoredText("", -math.inf)]
        return Translation(
            request.text,
            hypotheses,
            source_tokens=sum(len(ids) for ids in parts),
            unknown=sum(token == UNK for ids in parts for token in ids),
            parts=len(parts),
            longest_part=max(len(ids) for ids in parts),
            has_ended=all(part[0].has_ended for part in usable if part),
            is_finite=is_finite,
            missing=self._constraints.missing(request, hypotheses[0].text),
        )

    def _is_usable(self, hypothesis: Hypothesis) -> bool:
        # A plugin's search may say it by the score alone.
        return hypothesis.is_finite and (not self._scores or math.isfinite(hypothesis.score))

    def _joined(self, request: Request, found: Sequence[Sequence[Hypothesis]]) -> list[ScoredText]:
        """The translations of a line, best first, from those of its parts."""
        texts = [[self._text(hypothesis.ids) for hypothesis in part] for part in found]
        texts[0] = [self._constraints.with_prefix(request, text) for text in texts[0]]
        if len(found) == 1:
            return [ScoredText(text, hypothesis.score) for text, hypothesis in zip(texts[0], found[0], strict=True)]
        chosen = [[min(rank, len(part) - 1) for part in found] for rank in range(max(map(len, found)))]
        return [
            ScoredText(
                " ".join(text for part, i in zip(texts, places, strict=True) if (text := part[i])),
                sum(part[i].score for part, i in zip(found, places, strict=True)),
            )
            for places in chosen
        ]
