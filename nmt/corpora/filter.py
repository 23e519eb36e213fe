"""A part of a corpus: the best pairs by scores of models, without near duplicates and other languages."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from nmt.corpora.faults import Pair, digest_of, new_files, pair_files
from nmt.corpora.prepare import outline
from nmt.corpora.repeats import Repeats
from nmt.data.text import FilePair, nothing_in, read_lines, read_pairs
from nmt.data.work import progress
from nmt.errors import ConfigError, DataError, counted, refused, shown

REASONS: Final = {
    "near_duplicate": "equal to a pair before, apart from case, digits and punctuation",
    "language": "a side is in another language than most of it",
    "score": "not of the best share by the scores",
}
LEAST_LETTERS: Final = 20
"""Letters of a line whose language is asked for; of a shorter one it is hardly known."""

Identify = Callable[[str], str]
"""The code of the language of a line."""


def filtered(
    files: FilePair,
    output: str,
    languages: tuple[str, str],
    *,
    scores: Sequence[Path] = (),
    keep_share: float = 1.0,
    near_duplicates: bool = False,
    identify: Identify | None = None,
    overwrite: bool = False,
) -> dict[str, int]:
    """Write the pairs that are kept to OUTPUT.source and OUTPUT.target, the others to OUTPUT.dropped.jsonl.

    Args:
        scores: files of nmt-score with a number for each pair, lower is better. With two, of models of both directions
            (or of a good and a noisy text), pairs are sorted by |a - b| + (a + b) / 2: dual conditional cross-entropy
            (Junczys-Dowmunt, WMT 2018).
        keep_share: the share of the pairs left by the other rules that has the best scores.
        near_duplicates: leave out pairs whose outlines (`outline`) on both sides are those of a pair before.
        identify: leave out pairs of which a side of LEAST_LETTERS letters or more is not in its language.

    Returns:
        How many pairs there are under `pairs`, `kept`, and under each of REASONS how many are left out for it.

    Raises:
        ConfigError, DataError: as `nmt.corpora.faults.new_files`; the sides are of unequal length or not UTF-8; a file
            of scores has another number of lines, or a line that is no number.
    """
    paths = new_files(output, languages, read=[files], overwrite=overwrite)
    repeats, other = Repeats(), bytearray()
    with progress(f"reading {files.source}", total=0, unit=" pairs") as advance:
        for lines in read_pairs(files):
            repeats.add(digest_of("\n".join(map(outline, lines))) if near_duplicates else None)
            is_other = identify is not None and any(
                sum(map(str.isalpha, line)) >= LEAST_LETTERS and identify(line) != language
                for line, language in zip(lines, languages, strict=True)
            )
            other.append(is_other)
            advance(1)
    count = len(other)
    if not count:
        raise nothing_in([files])
    why = np.zeros(count, dtype=np.int8)  # 0: kept, else the place in REASONS, from 1
    why[np.frombuffer(other, dtype=bool)] = 2
    why[repeats.found()] = 1
    if scores:
        best = _combined([_scores(path, count) for path in scores])
        left = np.flatnonzero(why == 0)
        kept = max(1, math.floor(keep_share * len(left))) if len(left) else 0
        # Equal scores are kept in the order of the text.
        why[left[np.argsort(best[left], kind="stable")[kept:]]] = 3
    names = [*REASONS]
    with pair_files(paths, output=output) as written:
        for number, (pair, reason) in enumerate(zip(map(Pair._make, read_pairs(files)), why, strict=True), start=1):
            if reason:
                written.drop(pair, line=number, reason=names[reason - 1])
            else:
                written.keep(pair)
    found = Counter(why.tolist())
    return {"pairs": count, "kept": found[0], **{name: found[i] for i, name in enumerate(names, start=1)}}


def _scores(path: Path, count: int) -> np.ndarray:
    """The numbers of a file, one a line, [count]."""
    values = array("d")
    for number, line in enumerate(read_lines(path), start=1):
        try:
            value = float(line)
        except ValueError:
            value = math.nan
        if math.isnan(value):
            raise DataError(f"{path}, line {number}: {shown(line)} is not a number; nmt-score writes one a line")
        values.append(value)
    if len(values) != count:
        raise DataError(f"{path} has {counted(len(values), 'score')}, but the corpus has {counted(count, 'pair')}")
    return np.frombuffer(values, dtype=np.float64)


def _combined(scores: Sequence[np.ndarray]) -> np.ndarray:
    if len(scores) == 1:
        return scores[0]
    first, second = scores
    with np.errstate(invalid="ignore"):
        found: np.ndarray = np.abs(first - second) + (first + second) / 2
    return np.where(np.isnan(found), np.inf, found)


def identifier(languages: tuple[str, str]) -> Identify:
    """A function that finds the language of a line, by py3langid; ConfigError where that is not installed, or does not
    know a language."""
    try:
        import py3langid  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise ConfigError("--identify-languages: needs py3langid: pip install 'nmt-recurrent[langid]'") from None
    known = sorted(str(code) for code, _ in py3langid.rank("a"))
    for language in languages:
        if language not in known:
            raise ConfigError(
                f"--identify-languages: {refused('', language, known, problem='is not known to py3langid')}"
            )
    return lambda line: str(py3langid.classify(line)[0])
