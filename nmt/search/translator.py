"""From text to text: encode, batch by length, search, decode, and give everything back in input order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nmt.config.schema import DecodingConfig
from nmt.data import EOS, Tokenizer, batch_lines, pad, restore_order
from nmt.data.sentences import Lines
from nmt.data.text import windows
from nmt.data.tokenizer import on_one_line
from nmt.models.base import Seq2Seq
from nmt.ops.dispatch import use_verified
from nmt.search.base import build_search
from nmt.search.constraints import FREE, Constraints, ConstraintsMaker
from nmt.search.coverage import check_attention
from nmt.search.ensemble import as_one, ensemble_mean
from nmt.search.fusion import Fusion
from nmt.search.kept import Keeper, KeptLine
from nmt.search.prepared import PreparedModels, prepare_models
from nmt.search.reading import Reading, read_heads, read_hypotheses
from nmt.search.ruled import RuledModel, adjustments_of, rules_of
from nmt.search.shortlist import RestrictedModel
from nmt.search.source import Parts, Source, source_of
from nmt.search.texts import Chosen, Texts
from nmt.search.values import (
    WINDOW,
    Details,
    Hypothesis,
    Request,
    ScoredText,
    Translation,
    as_request,
    characters_of,
    check_details,
    wants_pieces,
    with_details,
)

FoundParts = list[list[Hypothesis]]
"""The hypotheses found for each part of a line, best first."""

AUTO_BATCH_TOKENS = 16384
"""Beyond it, search on a CPU gets no faster."""
AUTO_CELLS = 1 << 24
"""Most probabilities of a step, rows times vocabulary: 64 MiB in fp32, of which a step holds several."""


def batch_limits(decoding: DecodingConfig, *, vocabulary: int) -> tuple[int, int | None]:
    """Tokens in a batch, and rows (sentences times beam) if these are limited too."""
    if decoding.batch_tokens == "auto":
        return AUTO_BATCH_TOKENS, max(1, AUTO_CELLS // vocabulary)
    return decoding.batch_tokens, None


class Translator:
    """Translates lines of text with a model, or several, which must be in evaluation mode.

    Each line's translation depends on that line alone, not on the other lines of a batch, up to rounding. Empty
    lines, and lines of which the tokenizer makes no token, are not sent through the model: their
    translation is empty. A line is translated sentence by sentence, where `decoding.split` says so, and a sentence
    of more than `decoding.split_long` tokens in parts, so that time and memory grow no faster than its length. The
    translation is that of the parts with the white space that was between them: the i-th best from the i-th best of
    each part, or the last where a part has fewer, with the sum of their scores.

    A line may be a `Request` with wishes of its own. Those that no translation could fulfil raise DataError, which
    names the request, before anything of its window is translated. A prefix is the beginning of the first sentence,
    and of an empty line the whole translation. No sentence has a forbidden phrase. A required phrase is in the sentence
    whose score it lowers least, and sentences of a line with required phrases are not cut.
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
        before_step: Callable[[], object] | None = None,
        on_batch: Callable[[int], object] | None = None,
        prepared: PreparedModels | None = None,
        fusion: Fusion | None = None,
        lines: Lines | None = None,
    ) -> None:
        """`others` are models over the same vocabularies whose probabilities are averaged with those of `model`.

        `device` is where all of them are; by default the first parameter of `model` says so.

        The weights are taken over as they are now, in the number format `precision`. Without `scores` greedy
        search is faster and gives NaN for them. `before_batch` is called before each batch, `before_step` before each
        step of a search; what they raise ends the work. `on_batch` is then told how many sentences the batch has.
        `prepared` are these models as another translator has them (`Translator.prepared`), in the number format that
        `decoding` asks for; they are not converted again. `fusion` is the language model that `decoding` names, where
        that has been loaded already.
        `lines` says what the model was trained on; without it, `decoding.split: auto` splits no line.

        Raises DataError for a shortlist or a glossary that cannot be used, ConfigError for a search or a model that
        cannot do what `decoding` asks for, and for weights of another number of models, CheckpointError for a language
        model that cannot be loaded.
        """
        self._tokenizer = tokenizer
        self._decoding = decoding
        if prepared is None:
            prepared = prepare_models([model, *others], precision=decoding.precision, device=device)
        self.prepared = prepared
        self.precision = prepared.precision
        mean = ensemble_mean(decoding, models=len(prepared.models))
        self._model = as_one(prepared.models, mean=mean)
        self._graphed = as_one(prepared.graphed, mean=mean)
        self._window = window
        self._search = build_search(decoding)
        self.hypotheses = self._search.hypotheses(decoding)
        """Hypotheses of a sentence that the search computes at once."""
        self._limits = batch_limits(decoding, vocabulary=prepared.vocabulary)
        for key in ("coverage_penalty", "placeholders", "glossary", "replace_unknown"):
            if getattr(decoding, key):
                check_attention(prepared.models, key=f"decoding.{key}")
        self._scores = scores
        self._before_batch = before_batch
        self._before_step = before_step
        self._on_batch = on_batch
        self._adjustments, self._rules = adjustments_of(decoding), rules_of(decoding)
        self._constraints = ConstraintsMaker(tokenizer, decoding)
        self._keeper = Keeper(tokenizer, decoding) if decoding.placeholders or decoding.glossary is not None else None
        self._texts = Texts(tokenizer, self._constraints, replace_unknown=decoding.replace_unknown)
        self._shortlist = None if decoding.shortlist is None else prepared.shortlist(decoding.shortlist, tokenizer)
        self._parts = Parts(tokenizer, decoding, lines)
        self._fusion = fusion if fusion is not None else prepared.fusion(decoding, tokenizer)

    def calling(
        self, *, before_batch: Callable[[], object] | None, before_step: Callable[[], object] | None
    ) -> Translator:
        """This translator for one call, with the functions called between pieces of its work.

        All is shared but the search, of which one of a plugin may remember something.
        """
        other = copy(self)
        other._search = copy(self._search)
        other._before_batch, other._before_step = before_batch, before_step
        return other

    def translate(self, lines: Iterable[str | Request]) -> Iterator[str]:
        """The best translation of each line, in order."""
        for translation in self.translations(lines):
            yield translation.best

    def translations(self, lines: Iterable[str | Request], *, details: Details = ()) -> Iterator[Translation]:
        """The n best translations of each line, in order, window by window as `lines` delivers.

        `details`: see `translate_window`.
        """
        for window in windows(lines, size=self._window, length=characters_of):
            yield from self.translate_window(window, details=details)

    def translate_window(self, lines: Sequence[str | Request], *, details: Details = ()) -> list[Translation]:
        """The n best translations of some lines, all at once.

        With `details` each has these, too (see `ScoredText`); all but the tokens take another run of the decoder over
        what was found. Raises ConfigError for the attention or the alignment of a model that does not tell it.
        """
        if details:
            check_details(details)
        if not {"attention", "heads", "alignment"}.isdisjoint(details):
            check_attention(self.prepared.models, key="the attention of a translation")
        requests = [as_request(line) for line in lines]
        wanted = {
            place: self._constraints.of(request)
            for place, request in enumerate(requests)
            if request.prefix or request.required or request.forbidden
        }
        sources = self._sources(requests)
        if wanted:
            found = iter(self._best_found(_flat(sources), self._constraints_of(sources, wanted)))
        else:
            found = iter(self.search(_flat(sources)))
        usable: dict[int, FoundParts] = {place: [] for place in sources}
        for place, source in sources.items():
            for _ in source.parts:
                # A plugin's search may say by the score alone that a hypothesis is not finite.
                usable[place].append(
                    [one for one in next(found) if one.is_finite and (not self._scores or math.isfinite(one.score))]
                )
        may_read = details or self._keeper is not None or self._decoding.replace_unknown
        readings = self._readings(sources, usable, details) if may_read else {}
        return [
            self._translation(request, sources[place], usable[place], readings.get(place), details)
            if place in sources
            else self._untranslated(request, details)
            for place, request in enumerate(requests)
        ]

    def parts(self, lines: Sequence[str | Request]) -> list[list[int]]:
        """The tokens of each part in which each line would be translated."""
        sources = self._sources([as_request(line) for line in lines])
        return [
            [len(part.ids) for part in sources[place].parts] if place in sources else [] for place in range(len(lines))
        ]

    def _sources(self, requests: Sequence[Request]) -> dict[int, Source]:
        """What of the lines is sent through the model, by their places."""
        filled = {place: request for place, request in enumerate(requests) if request.text.strip()}
        kept: dict[int, KeptLine] = {}
        if self._keeper is not None:
            every = {place: self._keeper.kept_of(request) for place, request in filled.items()}
            kept = {place: own for place, own in every.items() if own is not None}
        texts = [kept[place].text if place in kept else request.text for place, request in filled.items()]
        cut = self._parts.of(texts, whole=[bool(request.required) for request in filled.values()])
        return {
            place: source_of(requests[place].text, line, kept.get(place), self._tokenizer)
            for place, line in zip(filled, cut, strict=True)
            if line.parts and (place not in kept or kept[place].has_words)
        }

    def _constraints_of(self, sources: Mapping[int, Source], wanted: Mapping[int, Constraints]) -> list[Constraints]:
        """What the parts of the lines keep to, as `_flat` has them; `wanted` is that of each line that asks for any.

        Of a line in several sentences, each is searched with none of the required phrases and with each of them; a
        phrase then belongs to the sentence whose best score it lowers least.
        """
        found = {
            place: [wanted.get(place, FREE).of_part(number) for number, _ in enumerate(source.parts)]
            for place, source in sources.items()
        }
        several = {place: sources[place] for place, own in found.items() if len(own) > 1 and own[0].required}
        phrases = {place: found[place][0].required for place in several}
        best: dict[int, list[list[float]]] = {place: [] for place in several}  # [phrases, the first none][parts]
        for number in range(1 + max(map(len, phrases.values()), default=-1)):
            now = {place: source for place, source in several.items() if number <= len(phrases[place])}
            asked = [
                replace(one, required=phrases[place][number - 1 : number][:number])
                for place in now
                for one in found[place]
            ]
            scores = iter(self.search(_flat(now), asked))
            for place, source in now.items():
                best[place].append([_best_score(next(scores)) for _ in source.parts])
        for place, (free, *each) in best.items():
            gains = [
                [own - max(without, _LOWEST) for own, without in zip(scores, free, strict=True)] for scores in each
            ]
            chosen = [max(range(len(free)), key=own.__getitem__) for own in gains]
            found[place] = [
                replace(one, required=tuple(p for p, own in zip(phrases[place], chosen, strict=True) if own == number))
                for number, one in enumerate(found[place])
            ]
        return [one for own in found.values() for one in own]

    def _best_found(
        self, sources: Sequence[Sequence[int]], constraints: Sequence[Constraints]
    ) -> list[list[Hypothesis]]:
        """`search`; a prefix that ends within a word is also tried as one whose word is complete.

        In a single beam the few probable ends of the word would push out the many possible next words.
        """
        both = [one.completed for one in constraints]
        if not self._scores or self._decoding.chosen_search != "beam" or not any(both):
            return self.search(sources, constraints)
        second = [(source, one) for source, one in zip(sources, both, strict=True) if one is not None]
        found = self.search([*sources, *(source for source, _ in second)], [*constraints, *(one for _, one in second)])
        others = iter(found[len(sources) :])
        return [
            own if one is None else _merged(own, next(others), n_best=self._decoding.n_best)
            for own, one in zip(found[: len(sources)], both, strict=True)
        ]

    def search(
        self, sources: Sequence[Sequence[int]], constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        """The n best hypotheses of each source in ids, EOS included, in order; `constraints`: of each source."""
        if constraints is None:
            constraints = [FREE] * len(sources)
        batches = self._batches(sources, constraints)
        results = []
        with self.precision.autocast():  # once for all batches: it keeps what it has cast until it is left
            for batch in batches:
                source = pad([sources[place] for place in batch]).to(self.precision.device)
                results.append(self._search_batch(source, [constraints[place] for place in batch]))
        return restore_order(batches, results)

    def _batches(self, sources: Sequence[Sequence[int]], constraints: Sequence[Constraints]) -> list[list[int]]:
        """Places of the sources in batches.

        One whose limit must grow is alone: a search has one offset for a batch. Those with required phrases are apart
        from the others, which have a faster search.
        """
        tokens, rows = self._limits
        kinds: dict[bool, list[int]] = {False: [], True: []}
        alone: list[int] = []
        for place, one in enumerate(constraints):
            of_kind = alone if one is not FREE and self._longer(sources[place], one) else kinds[bool(one.required)]
            of_kind.append(place)
        batches = [[place] for place in alone]
        for places in kinds.values():
            lengths = [len(sources[place]) for place in places]
            for batch in batch_lines(lengths, batch_tokens=tokens, copies=self.hypotheses, batch_rows=rows):
                batches.append([places[i] for i in batch])
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
        decoding = self._decoding
        model, words = self._model_for(source, constraints)
        rules, offset = self._rules, decoding.max_length_offset
        further: dict[str, Any] = {}  # what the search is given besides, where it is needed and the search accepts it
        if decoding.coverage_penalty:
            further["coverage_penalty"] = decoding.coverage_penalty
        if "decode" in self._search.accepts:
            ids = None if words is None else words.tolist()
            further["decode"] = lambda found: self._texts.decoded(
                found if ids is None else [ids[place] for place in found]
            )
        if constraints.count(FREE) < len(constraints):
            rules = [*rules, *self._constraints.rules(constraints, words=words, device=source.device)]
            required = self._constraints.required(constraints, words=words, device=source.device)
            if required is not None:
                further["required"] = required
            offset += self._longer(source[0].tolist(), constraints[0])  # more than 0 only for a sentence alone
        found = self._search.search(
            RuledModel(
                model,
                adjustments=self._adjustments,
                rules=rules,
                words=words,
                fusion=self._fusion,
                before_step=self._before_step,
            ),
            source,
            beam_size=decoding.beam_size,
            length_penalty=decoding.length_penalty,
            max_length_offset=offset,
            n_best=decoding.n_best,
            scores=self._scores,
            **further,
        )
        return found if words is None else model.with_ids(found)

    def _model_for(self, source: Tensor, constraints: Sequence[Constraints]) -> tuple[Any, Tensor | None]:
        """What a batch is searched with, and with a shortlist the ids of its words."""
        model: Any = self._graphed if use_verified("decoding_step", source) else self._model
        if self._shortlist is None:
            return model, None
        model = RestrictedModel(model, self._shortlist.words(source, also=[one.words for one in constraints]))
        return model, model.ids

    def _readings(
        self, sources: Mapping[int, Source], found: Mapping[int, FoundParts], details: Details
    ) -> dict[int, list[list[Reading]]]:
        """How the model reads the hypotheses of the lines for which that must be known, part by part."""
        places = [
            place for place, source in sources.items() if self._texts.needs_reading(source, found[place], details)
        ]
        parts = [[*part.ids, EOS] for place in places for part in sources[place].parts]
        hypotheses = [own for place in places for own in found[place]]
        read = iter(self._read(parts, hypotheses, details))
        return {place: [next(read) for _ in sources[place].parts] for place in places}

    def _read(
        self, sources: Sequence[Sequence[int]], hypotheses: Sequence[Sequence[Hypothesis]], details: Details
    ) -> list[list[Reading]]:
        """How the model reads the hypotheses of each source, end symbol included, in order."""
        tokens, rows = self._limits
        lengths = [
            max(len(source), *(len(one.ids) + 1 for one in own))
            for source, own in zip(sources, hypotheses, strict=True)
        ]
        batches = batch_lines(lengths, batch_tokens=tokens, copies=self._decoding.n_best, batch_rows=rows)
        with self.precision.autocast():
            results = [
                self._read_batch(
                    pad([sources[i] for i in batch]).to(self.precision.device), [hypotheses[i] for i in batch], details
                )
                for batch in batches
            ]
        return restore_order(batches, results)

    @torch.inference_mode()
    def _read_batch(
        self, source: Tensor, hypotheses: Sequence[Sequence[Hypothesis]], details: Details
    ) -> list[list[Reading]]:
        if self._before_batch is not None:
            self._before_batch()
        # What was found is in the list of a shortlist, also where it was not for its source words.
        found = [Constraints(prefix=tuple(token for one in own for token in one.ids)) for own in hypotheses]
        model, words = self._model_for(source, found)
        attends = all(member.tells_attention for member in self.prepared.models)
        adjusted = RuledModel(model, adjustments=self._adjustments, words=words)
        readings = read_hypotheses(
            model if adjusted.is_plain else adjusted,
            source,
            hypotheses,
            words=words,
            attends=attends,
            entropies="entropies" in details,
        )
        if "heads" not in details:
            return readings
        heads = read_heads(self.prepared.models, source, hypotheses)
        return [
            [reading._replace(heads=found) for reading, found in zip(own, of_each, strict=True)]
            for own, of_each in zip(readings, heads, strict=True)
        ]

    def _untranslated(self, request: Request, details: Details) -> Translation:
        """A line that is not sent through the model: empty, or of nothing but placeholders, which stay."""
        stays = self._keeper is not None and bool(request.text.strip()) and self._keeper.kept_of(request) is not None
        text = on_one_line(request.text) if stays else self._constraints.with_prefix(request, "")
        alignment = tuple((place, place) for place, _ in enumerate(text.split())) if stays else ()
        pieces = () if wants_pieces(details) else None
        missing = self._constraints.missing(request, text)
        return Translation(
            request.text, [with_details(text, details, alignment)], missing=missing, source_pieces=pieces
        )

    def _translation(
        self,
        request: Request,
        source: Source,
        found: FoundParts,
        readings: Sequence[Sequence[Reading]] | None,
        details: Details,
    ) -> Translation:
        """What became of a line, from what was found for its parts, and read again where that was wanted."""
        is_finite = all(found)
        if is_finite:
            texts = self._joined(request, source, found, readings, details)
        else:
            texts = [replace(with_details("", details), score=-math.inf)]
        return Translation(
            request.text,
            texts,
            source_tokens=sum(len(part.ids) for part in source.parts),
            unknown=source.unknown,
            parts=len(source.parts),
            sentences=len({part.part.sentence for part in source.parts}),
            several=source.several,
            longest_part=max(len(part.ids) for part in source.parts),
            has_ended=all(part[0].has_ended for part in found if part),
            is_finite=is_finite,
            missing=self._constraints.missing(request, texts[0].text) if request.required else 0,
            source_pieces=source.pieces if details and wants_pieces(details) else None,
        )

    def _joined(
        self,
        request: Request,
        source: Source,
        found: FoundParts,
        readings: Sequence[Sequence[Reading]] | None,
        details: Details,
    ) -> list[ScoredText]:
        """The translations of a line, best first, from those of its parts."""
        texts = []
        for rank in range(max(map(len, found))):
            chosen = []
            for place, (part, own) in enumerate(zip(source.parts, found, strict=True)):
                i = min(rank, len(own) - 1)
                chosen.append(Chosen(part, own[i], None if readings is None else readings[place][i]))
            texts.append(self._texts.scored(source, chosen, request=request, details=details))
        return texts


def _flat(sources: Mapping[int, Source]) -> list[list[int]]:
    """The parts of some lines as a search takes them."""
    return [[*part.ids, EOS] for source in sources.values() for part in source.parts]


def _merged(first: Sequence[Hypothesis], second: Sequence[Hypothesis], *, n_best: int) -> list[Hypothesis]:
    """The best of two searches, each once."""
    known = {tuple(one.ids) for one in first}
    both = [*first, *(one for one in second if tuple(one.ids) not in known)]
    usable = [one for one in both if one.is_finite]
    return sorted(usable, key=lambda one: one.score, reverse=True)[:n_best] or [*first]


_LOWEST = -1e9
"""A score below that of any translation with a finite probability."""


def _best_score(found: Sequence[Hypothesis]) -> float:
    """-infinity where there is none, or none of finite probability; 0 where scores are not wanted."""
    best = next((one for one in found if one.is_finite), None)
    return -math.inf if best is None else 0.0 if math.isnan(best.score) else best.score
