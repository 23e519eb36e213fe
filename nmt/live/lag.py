"""How far live translations are behind their sources, in words."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, NamedTuple


class Lag(NamedTuple):
    """Measures of one translation, or their means over several."""

    al: float
    """Average lagging (Ma et al., ACL 2019): words behind a speaker and a translator who keep pace, up to the word at
    which all of the source has been read; the length of the translation is that of the reference."""
    laal: float
    """The same with the longer of translation and reference, so that needless words are not rewarded (Papi et al.,
    2022)."""
    ap: float
    """Average proportion of the source that has been read (Cho and Esipova, 2016)."""
    dal: float
    """Differentiable average lagging (Cherry and Foster, 2019): no word is written sooner after the one before than
    words are spoken."""


def lag_of(delays: Sequence[float], *, source: int, reference: int | None = None) -> Lag:
    """The lag of a translation: `delays` are the source words that had been read when each of its words was written.

    `source` and `reference` are their words; without a reference the translation's own length counts. Raises ValueError
    for a translation or a source without words.
    """
    if not delays or source < 1 or (reference is not None and reference < 1):
        raise ValueError("lag_of: a source, a translation and its reference have words")
    length = len(delays) if reference is None else reference
    if delays[0] > source:
        return Lag(delays[0], delays[0], sum(delays) / (source * length), _spaced(delays, source))
    until = next((place for place, delay in enumerate(delays) if delay >= source), len(delays) - 1) + 1
    al, laal = (
        fmean(delay - place * source / longest for place, delay in enumerate(delays[:until]))
        for longest in (length, max(length, len(delays)))
    )
    return Lag(al, laal, sum(delays) / (source * length), _spaced(delays, source))


def _spaced(delays: Sequence[float], source: int) -> float:
    step, last, found = source / len(delays), 0.0, []
    for place, delay in enumerate(delays):
        last = max(delay, last + step) if place else delay
        found.append(last - place * step)
    return fmean(found)


class Heard(NamedTuple):
    """A sentence that has been translated while it was heard."""

    source: str
    text: str
    delays: tuple[int, ...]
    """For each word of the text how many of the source had been read when it was written."""
    milliseconds: float
    """CPU time of this process for each word of the source."""


def hear(translator: Any, sources: Iterable[str], policy: str = "wait_k", **options: Any) -> list[Heard]:
    """Translate sentences word by word, each by a session of its own; arguments and errors are those of `live`."""
    found = []
    for source in sources:
        started, text, delays = time.process_time(), "", list[int]()
        words = source.split()
        with translator.live(policy, **options) as session:
            for count, word in enumerate(words, start=1):
                text += session.feed(f"{word} ")
                delays += [count] * (len(text.split()) - len(delays))
            text += session.end()
            delays += [len(words)] * (len(text.split()) - len(delays))
        spent = 1000 * (time.process_time() - started) / max(1, len(words))
        found.append(Heard(source, text, tuple(delays), spent))
    return found


def mean_lag(heard: Sequence[Heard], references: Sequence[str] | None = None) -> Lag:
    """The mean over the sentences; those without words in source, text or reference are left out.

    Raises ValueError where none is left, and for another number of references.
    """
    lengths = [None] * len(heard) if references is None else [len(line.split()) for line in references]
    lags = [
        lag_of(one.delays, source=len(one.source.split()), reference=length)
        for one, length in zip(heard, lengths, strict=True)
        if one.delays and one.source.split() and length != 0
    ]
    if not lags:
        raise ValueError("mean_lag: no sentence has words in source, translation and reference")
    return Lag(*(fmean(column) for column in zip(*lags, strict=True)))
