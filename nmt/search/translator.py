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
from nmt.data import EOS, Tokenizer
from nmt.data.batching import batch_lines, pad, restore_order
from nmt.data.sentences import Lines
from nmt.data.text import windows
from nmt.data.tokenizer import on_one_line
from nmt.errors import SettingError
from nmt.models.base import Seq2Seq
from nmt.ops.dispatch import use_verified
from nmt.registry import CONTEXTS
from nmt.search.base import build_search, limits_of
from nmt.search.constraints import FREE, Constraints, ConstraintsMaker
from nmt.search.coverage import check_attention
from nmt.search.ensemble import PreparedModels, as_one, ensemble_mean, prepare_models
from nmt.search.reading import Reading, read_hypotheses
from nmt.search.ruled import (
    Adjustment,
    Fusion,
    MinimumLength,
    NoRepeatedNgrams,
    RepeatPenalty,
    Rule,
    RuledModel,
    fusion_of,
)
from nmt.search.shortlist import RestrictedModel, load_shortlist
from nmt.search.source import Source, Sources, keeper_of
from nmt.search.texts import Texts
from nmt.search.values import (
    WINDOW,
    Details,
    Hypothesis,
    Request,
    Translation,
    as_request,
    check_details,
)

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

    context = "none"
    """What a sentence has of those before it."""

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
        fusion: Fusion | None = None,
        lines: Lines | None = None,
        glossary: str | None = None,
    ) -> None:
        """`others` are models over the same vocabularies whose probabilities are averaged with those of `model`.

        `device` is where all of them are; by default the first parameter of `model` says so.

        The weights are taken over as they are now, in the number format `precision`. Without `scores` greedy
        search is faster and gives NaN for them. `before_batch` is called before each batch; what it raises ends the
        work. `on_batch` is then told how many sentences the batch has.
        `prepared` are these models as another translator has them (`Translator.prepared`), in the number format that
        `decoding` asks for; they are not converted again. `fusion` is the language model that `decoding` names, where
        that has been loaded already.
        `lines` says what the model was trained on; without it, `decoding.split: auto` splits no line. `glossary` is the
        text of the one that `decoding` names, where that is no file.

        Raises DataError for a shortlist or a glossary that cannot be used, ConfigError for a search or a model that
        cannot do what `decoding` asks for, and for weights of another number of models, CheckpointError for a language
        model that cannot be loaded.
        """
        if lines is not None and lines.context != self.context:
            raise SettingError(("data.context", f"'{lines.context}' has no place where sentences are translated alone"))
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
        self._limits = batch_limits(decoding, vocabulary=prepared.models[0].target_vocab_size)
        for key in ("coverage_penalty", "placeholders", "glossary", "replace_unknown"):
            if getattr(decoding, key):
                check_attention(prepared.models, key=f"decoding.{key}")
        self._scores = scores
        self._before_batch = before_batch
        self._before_step: Callable[[], object] | None = None
        self._on_batch = on_batch
        self._adjustments: list[Adjustment] = []
        if decoding.repeat_penalty != 1:
            self._adjustments.append(RepeatPenalty(decoding.repeat_penalty))
        self._rules: list[Rule] = [MinimumLength(decoding.min_length)] if decoding.min_length else []
        if decoding.no_repeat_ngram:
            self._rules.append(NoRepeatedNgrams(decoding.no_repeat_ngram))
        self._constraints = ConstraintsMaker(tokenizer, decoding)
        keeper = keeper_of(tokenizer, decoding, glossary=glossary)
        self._texts = Texts(tokenizer, self._constraints, keeper)
        self._shortlist = None
        if decoding.shortlist is not None:
            if decoding.shortlist not in prepared.shortlists:
                prepared.shortlists[decoding.shortlist] = load_shortlist(decoding.shortlist, tokenizer)
            self._shortlist = prepared.shortlists[decoding.shortlist]
        self._sources = Sources(tokenizer, decoding, lines, keeper=keeper)
        if fusion is None:
            place, loaded = self.precision.device, prepared.language_models
            fusion = fusion_of(decoding, tokenizer, device=place, loaded=loaded)
        self._fusion = fusion

    def calling(
        self, *, before_batch: Callable[[], object] | None, before_step: Callable[[], object] | None
    ) -> Translator:
        """This translator for one call, with the functions called before each batch and before each step of a search.

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
        for window in windows(lines, size=self._window, length=lambda line: len(as_request(line).text)):
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
        requests: list[Request] = []
        wanted: dict[int, Constraints] = {}
        for place, line in enumerate(lines):
            request = as_request(line)
            requests.append(request)
            if request.prefix or request.required or request.forbidden:
                wanted[place] = self._constraints.of(request)
        sources = self._sources.of(requests)
        found = iter(self.search_lines(sources, self._constraints_of(sources, wanted) if wanted else None))
        usable: dict[int, list[list[Hypothesis]]] = {}
        """What was found for each part of the lines, best first."""
        for place, source in sources.items():
            usable[place] = []
            for _ in source.parts:
                own = []
                for one in next(found):
                    # A plugin's search may say by the score alone that a hypothesis is not finite.
                    if one.is_finite and (not self._scores or math.isfinite(one.score)):
                        own.append(one)
                usable[place].append(own)
        decoding = self._decoding
        may_read = details or decoding.placeholders or decoding.glossary is not None or decoding.replace_unknown
        readings = self._readings(sources, usable, details) if may_read else {}
        translations = []
        for place, request in enumerate(requests):
            if place in sources:
                found_parts, read = usable[place], readings.get(place)
                translations.append(self._texts.translation(request, sources[place], found_parts, read, details))
            else:
                stays = self._sources.kept_of(request) is not None
                translations.append(self._texts.untranslated(request, details, stays=stays))
        return translations

    def parts(self, lines: Sequence[str | Request]) -> list[list[int]]:
        """The tokens of each part in which each line would be translated."""
        sources = self._sources.of([as_request(line) for line in lines])
        return [
            [len(part.ids) for part in sources[place].parts] if place in sources else [] for place in range(len(lines))
        ]

    def _constraints_of(self, sources: Mapping[int, Source], wanted: Mapping[int, Constraints]) -> list[Constraints]:
        """What the parts of the lines keep to, as `flat` has them; `wanted` is that of each line that asks for any.

        Of a line in several sentences, each is searched with none of the required phrases and with each of them; a
        phrase then belongs to the sentence whose best score it lowers least.
        """
        found = {}
        parts: list[list[int]] = []
        asked: list[Constraints] = []
        for place, source in sources.items():
            own = found[place] = [wanted.get(place, FREE).of_part(number) for number, _ in enumerate(source.parts)]
            if len(own) > 1 and own[0].required:
                for required in ((), *((phrase,) for phrase in own[0].required)):
                    parts += flat({place: source})
                    asked += [replace(one, required=required) for one in own]
        scores: list[float] = []
        for hypotheses in self.search(parts, asked):
            best = next((one.score for one in hypotheses if one.is_finite), -math.inf)
            scores.append(0.0 if math.isnan(best) else best)  # where scores are not wanted
        following = iter(scores)
        for own in found.values():
            if len(own) > 1 and (phrases := own[0].required):
                free = [next(following) for _ in own]
                owners = []
                for _ in phrases:
                    gains = [next(following) - max(without, _LOWEST) for without in free]
                    owners.append(gains.index(max(gains)))
                for number, one in enumerate(own):
                    required = tuple(p for p, owner in zip(phrases, owners, strict=True) if owner == number)
                    own[number] = replace(one, required=required)
        return [one for own in found.values() for one in own]

    def search_lines(
        self, sources: Mapping[int, Source], constraints: Sequence[Constraints] | None
    ) -> list[list[Hypothesis]]:
        """What `search` finds for the parts of lines, of which each is by itself here; `sources`: of their places."""
        return self.search(flat(sources), constraints)

    def search(
        self, sources: Sequence[Sequence[int]], constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        """The n best hypotheses of each source in ids, EOS included, in order; `constraints`: of each source."""
        if constraints is None:
            constraints = [FREE] * len(sources)
        # One whose limit must grow is alone: a search has one offset for a batch. Those with required phrases are apart
        # from the others, which have a faster search.
        batches: list[list[int]] = []
        kinds: dict[bool, list[int]] = {False: [], True: []}
        for place, one in enumerate(constraints):
            if one is not FREE and self._longer(sources[place], one):
                batches.append([place])
            else:
                kinds[bool(one.required)].append(place)
        tokens, rows = self._limits
        for places in kinds.values():
            lengths = [len(sources[place]) for place in places]
            for batch in batch_lines(lengths, batch_tokens=tokens, copies=self.hypotheses, batch_rows=rows):
                batches.append([places[i] for i in batch])
        results = []
        with self.precision.autocast():  # once for all batches: it keeps what it has cast until it is left
            for batch in batches:
                source = pad([sources[place] for place in batch]).to(self.precision.device)
                results.append(self._search_batch(source, [constraints[place] for place in batch]))
        return restore_order(batches, results)

    def _longer(self, source: Sequence[int], constraints: Constraints) -> int:
        """By how many tokens the limit must grow, so that what must be there does not use it up."""
        limit = int(limits_of(torch.tensor([source]), self._decoding))
        return constraints.tokens - limit + self._decoding.max_length_offset if constraints.tokens > limit else 0

    @torch.inference_mode()
    def _search_batch(self, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
        if self._before_batch is not None:
            self._before_batch()
        if self._on_batch is not None:
            self._on_batch(len(source))
        decoding = self._decoding
        model, words = self._model_for(source, constraints)
        rules, offset = self._rules, decoding.max_length_offset
        further = self._search.further(decoding)
        if "decode" in self._search.accepts:
            ids = None if words is None else words.tolist()
            decode = self._tokenizer.decode_target
            further["decode"] = lambda found: on_one_line(
                decode(found if ids is None else [ids[place] for place in found])
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
        self, sources: Mapping[int, Source], found: Mapping[int, list[list[Hypothesis]]], details: Details
    ) -> dict[int, list[list[Reading]]]:
        """How the model reads the hypotheses of the lines for which that must be known, part by part."""
        places: list[int] = []
        parts: list[list[int]] = []
        hypotheses: list[list[Hypothesis]] = []
        for place, source in sources.items():
            if self._texts.needs_reading(source, found[place], details):
                places.append(place)
                parts += flat({place: source})
                hypotheses += found[place]
        lengths = [
            max(len(part), *(len(one.ids) + 1 for one in own)) for part, own in zip(parts, hypotheses, strict=True)
        ]
        tokens, rows = self._limits
        batches = batch_lines(lengths, batch_tokens=tokens, copies=self._decoding.n_best, batch_rows=rows)
        results = []
        with self.precision.autocast():
            for batch in batches:
                ids = pad([parts[i] for i in batch]).to(self.precision.device)
                results.append(self._read_batch(ids, [hypotheses[i] for i in batch], details))
        read = iter(restore_order(batches, results))
        return {place: [next(read) for _ in sources[place].parts] for place in places}

    @torch.inference_mode()
    def _read_batch(
        self, source: Tensor, hypotheses: Sequence[Sequence[Hypothesis]], details: Details
    ) -> list[list[Reading]]:
        if self._before_batch is not None:
            self._before_batch()
        # What was found is in the list of a shortlist, also where it was not for its source words.
        found = [Constraints(prefix=tuple(token for one in own for token in one.ids)) for own in hypotheses]
        model, words = self._model_for(source, found)
        adjusted = RuledModel(model, adjustments=self._adjustments, words=words)
        return read_hypotheses(
            model if adjusted.is_plain else adjusted,
            source,
            hypotheses,
            words=words,
            attends=all(member.tells_attention for member in self.prepared.models),
            entropies="entropies" in details,
            heads_of=self.prepared.models if "heads" in details else (),
        )


def flat(sources: Mapping[int, Source]) -> list[list[int]]:
    """The parts of some lines as a search takes them."""
    parts = []
    for source in sources.values():
        for part in source.parts:
            parts.append([*part.ids, EOS])
    return parts


def translator_of(lines: Lines) -> type[Translator]:
    """What translates by a model that was trained on such lines."""
    return Translator if lines.context == "none" else CONTEXTS.get(lines.context)


_LOWEST = -1e9
"""A score below that of any translation with a finite probability."""
