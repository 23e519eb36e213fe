"""Placeholders, glossaries and unknown words of lines that the engine translates: nmt.search prepares the lines and
writes the texts, by the tokens and the attention that the engine tells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from nmt.config import DecodingConfig
from nmt.config.options import changed_decoding
from nmt.data import EOS
from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.data.sentences import Lines, lines_of_all
from nmt.interop.engine.opened import text_of
from nmt.library.light import KEPT, of_line
from nmt.library.translator import with_glossary
from nmt.light.errors import EngineError
from nmt.light.options import OPTIONS, as_keys
from nmt.light.results import Request as Asked
from nmt.light.translator import longest_source
from nmt.search.constraints import ConstraintsMaker
from nmt.search.reading import Reading
from nmt.search.source import Sources, keeper_of
from nmt.search.texts import Texts
from nmt.search.values import Details, Hypothesis, Request, Translation

if TYPE_CHECKING:
    from nmt.light.binding import Results
    from nmt.light.translator import Translator


class Keeper:
    """Translates lines of which something is kept."""

    def __init__(self, translator: Translator, options: Mapping[str, Any]) -> None:
        """`options` are those of the call that `nmt.light.options` has for files.

        Raises ConfigError for values that are not allowed, DataError for a glossary that cannot be read.
        """
        self._translator = translator
        usual, (options, glossary) = translator.defaults, with_glossary(options)
        own = DecodingConfig(
            split=OPTIONS["split"].of_number(usual.split),
            split_long=usual.split_long or None,
            target_language={token: code for code, token in translator.languages.items()}.get(usual.target_language),
        )
        taken: dict[str, Any] = {
            name: options[name]
            for name in (*KEPT, "glossary", "split", "split_long", "target_language")
            if name in options
        }
        decoding = changed_decoding(own, as_keys(taken))
        source, target = translator.subwords()
        tokenizer = SentencePieceTokenizer(source, target, options=SentencePieceOptions(joint=source == target))
        lines = lines_of_all([*map(_lines_of, translator.cards())])
        keeper = keeper_of(tokenizer, decoding, glossary=glossary)
        self._sources = Sources(tokenizer, decoding, lines, keeper=keeper)
        constraints = ConstraintsMaker(tokenizer, decoding)
        self._texts = Texts(tokenizer, constraints, keeper)

    def parts(self, requests: Sequence[Request]) -> list[list[int]]:
        """The tokens of each part in which each line would be translated."""
        found = self._sources.of(requests)
        return [
            [len(part.ids) for part in found[place].parts] if place in found else [] for place in range(len(requests))
        ]

    def translations(
        self, requests: Sequence[Request], options: Mapping[str, Any], *, details: Details
    ) -> list[Translation]:
        """What becomes of some lines; `options` are the engine's own."""
        sources = self._sources.of(requests)
        ids: list[list[int]] = []
        asked: list[Asked] = []
        owners: list[Request] = []
        for place, source in sources.items():
            request = requests[place]
            for number, part in enumerate(source.parts):
                ids.append(part.ids)
                asked.append(Asked("", "" if number else request.prefix, request.forbidden))
                owners.append(request)
        try:
            wanted = ("attention", *(name for name in details if name == "entropies"))
            found = self._translator.found_ids(ids, asked, **{**options, "details": wanted})
        except EngineError as error:
            raise of_line(error, owners) from None
        read = iter([_read(found, number, entropies="entropies" in details) for number in range(len(ids))])
        translations = []
        for place, request in enumerate(requests):
            if place not in sources:
                stays = self._sources.kept_of(request) is not None
                translations.append(self._texts.untranslated(request, details, stays=stays))
                continue
            own = [next(read) for _ in sources[place].parts]
            hypotheses, readings = [one[0] for one in own], [one[1] for one in own]
            translations.append(self._texts.translation(request, sources[place], hypotheses, readings, details))
        return translations


def _lines_of(card: dict[str, Any]) -> Lines:
    """What a card says of the training text."""
    share, longest = card.get("sources_of_several_sentences"), longest_source([card])
    return Lines(
        text_of(card, "source_language", ""),
        text_of(card, "target_language", ""),
        share if isinstance(share, int | float) else None,
        0 if longest is None else longest[0],
    )


def _read(found: Results, number: int, *, entropies: bool) -> tuple[list[Hypothesis], list[Reading]]:
    """The hypotheses of a sentence, none where none is finite, and how the model has read them."""
    hypotheses, readings = [], []
    for i in range(found.translations(number)):
        ids, score = found.ids(number, i, 0), found.score(number, i)
        if score > -math.inf or math.isnan(score):
            has_ended = ids[-1:] == [EOS]
            hypotheses.append(Hypothesis(ids[:-1] if has_ended else ids, score, has_ended=has_ended))
            reading = Reading(found.log_probs(number, i, 0), torch.tensor(found.attention(number, i, 0)))
            readings.append(reading._replace(entropies=found.entropies(number, i, 0)) if entropies else reading)
    return hypotheses, readings
