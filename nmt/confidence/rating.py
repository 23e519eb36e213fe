"""Confidence in translations: the estimate that nmt-confidence has stored beside a model, and how it is applied."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from nmt.errors import CheckpointError, ConfigError, missing, printable
from nmt.files import LARGEST_RECORD, digest_of, is_file, model_folder, open_model_file, reason
from nmt.interop.run_layout import CONFIDENCE, WEIGHTS
from nmt.light.pretrained import located
from nmt.light.results import Hypothesis, Result
from nmt.registry import RATERS

DETAIL: Final = "confidence"
NOTE: Final = "unlike_training"
FORMAT: Final = 1
FEATURES: Final = ("mean", "lowest", "target_length", "source_length", "unknown")
"""Of a translation: the mean and the lowest log-probability of its tokens, the logarithms of how many tokens it and,
with the end symbol, its source have, and the share of its source tokens that are not in the vocabulary."""
ORDER: Final = 4
"""Letters of the longest n-grams; the ends of a word count as one each."""
USUAL_LETTERS: Final = 10
"""So many letters of usual text are added to each line, as a few letters tell little of its language."""
_UNSEEN: Final = 1e-3
"""What a letter that training never had gets of the probability that is left for new ones."""
_WORD: Final = re.compile(r"[^\W\d_]+")


def place_of(model: Path) -> Path:
    """Where the estimate of a model lies: in its directory, that of the run for a checkpoint, or beside its file."""
    file = Path(located(model))  # a name of a model of the package is its file
    return file.with_suffix(f".{CONFIDENCE}") if file.is_file() else model_folder(model / WEIGHTS) / CONFIDENCE


def digest_of_weights(model: Path) -> str:
    """The SHA-256 of the weights for which an estimate holds."""
    file = Path(located(model))
    with file.open("rb") if file.is_file() else open_model_file(model / WEIGHTS) as stream:
        return digest_of(stream)


def features(source_tokens: int, unknown: int, best: Hypothesis) -> list[float]:
    """FEATURES of a translation that has `token_scores`."""
    scores = best.token_scores or ()
    lengths = math.log(max(1, len(scores))), math.log(source_tokens + 1)
    return [math.fsum(scores) / len(scores), min(scores), *lengths, unknown / max(1, source_tokens)]


class Letters:
    """How usual text is: n-grams of letters within words, without case, with Witten-Bell smoothing (IEEE Trans. on
    Information Theory 37, 1991)."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        """`counts`: how often the training text has each n-gram of ORDER letters, and the shorter ones that begin
        words."""
        self.counts = counts
        seen: Counter[str] = Counter()
        for gram, count in counts.items():
            for place in range(len(gram)):
                seen[gram[place:]] += count
        self._seen = seen
        self._after: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        for gram, count in seen.items():
            self._after[gram[:-1]] += count
            self._kinds[gram[:-1]] += 1
        self._known: dict[str, float] = {}

    @staticmethod
    def counted(lines: Iterable[str]) -> dict[str, int]:
        """The `counts` of a text."""
        words = Counter(word for line in lines for word in _WORD.findall(line.casefold()))
        counts: Counter[str] = Counter()
        for word, number in words.items():
            for gram in _grams(word):
                counts[gram] += number
        return dict(counts)

    def score(self, line: str) -> tuple[float, int]:
        """The log-probability of the letters of a line in nats, and how many they are, the ends of words counted."""
        grams = [gram for word in _WORD.findall(line.casefold()) for gram in _grams(word)]
        return math.fsum(map(self._log, grams)), len(grams)

    def _log(self, gram: str) -> float:
        found = self._known.get(gram)
        if found is None:
            probability = _UNSEEN
            for begin in range(len(gram) - 1, -1, -1):  # with ever more letters before the last one
                context = gram[begin:-1]
                if context not in self._after:
                    break
                kinds = self._kinds[context]
                probability = (self._seen.get(gram[begin:], 0) + kinds * probability) / (self._after[context] + kinds)
            found = math.log(probability)
            if len(self._known) < 100_000:
                self._known[gram] = found
        return found


def _grams(word: str) -> Iterator[str]:
    """The n-gram that ends with each letter of a word, and with its end."""
    word = f" {word} "
    return (word[max(0, end - ORDER) : end] for end in range(2, len(word) + 1))


class Usual(NamedTuple):
    """What is usual of text like that of training."""

    letters: Letters
    mean: float
    """Log-probability of a letter of the development text, in nats."""
    least: float
    """Of a line, below which it is noted."""

    def of(self, line: str) -> float | None:
        """The mean log-probability of a letter of `line` with USUAL_LETTERS more; None for a line without letters."""
        total, letters = self.letters.score(line)
        return (total + USUAL_LETTERS * self.mean) / (letters + USUAL_LETTERS) if letters else None

    def has(self, line: str) -> bool:
        """Whether a line is like training text, as far as its letters tell."""
        found = self.of(line)
        return found is None or found >= self.least


class Estimate:
    """What nmt-confidence has stored for a model."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        """Raises KeyError, TypeError or ValueError for a record of another form."""
        if record["format"] != FORMAT:
            raise ValueError(f"format {record['format']!r}")
        self.weights = [_finite(record["weights"][name]) for name in ("intercept", *FEATURES)]
        self.digest = str(record["model"])
        letters = record["letters"]
        self.usual: Usual | None = None
        if letters is not None:
            counts = {str(gram): int(count) for gram, count in letters["counts"].items()}
            self.usual = Usual(Letters(counts), _finite(letters["mean"]), _finite(letters["least"]))

    def of(self, result: Result) -> float | None:
        """The probability that the best translation is good; 0 where there is none, None for an empty line."""
        scores = result.best.token_scores
        if result.score == -math.inf or (scores and min(scores) == -math.inf):
            return 0.0
        if not scores or math.isnan(sum(scores)):
            return None
        values = features(result.source_tokens, result.unknown, result.best)
        total = self.weights[0] + math.fsum(w * value for w, value in zip(self.weights[1:], values, strict=True))
        return 1 / (1 + math.exp(-total)) if total > -500 else 0.0


def _finite(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return float(value)


@RATERS.register("fitted")
class Rater:
    """Adds confidence and notes to translations, where there is an estimate for the model."""

    def __init__(self, models: Sequence[Path]) -> None:
        """`models`: the directories of the weights, or files for the engine; several are an ensemble, which has none.

        Nothing is read before it is needed.
        """
        self._models = models

    @cached_property
    def _estimate(self) -> Estimate | None:
        """None for an ensemble and where none is stored; CheckpointError for one that is damaged."""
        place = place_of(self._models[0])
        if len(self._models) != 1 or not is_file(place):
            return None
        try:
            with open_model_file(place) as stream:
                content = stream.read(LARGEST_RECORD + 1)
            if len(content) > LARGEST_RECORD:
                raise ValueError(f"more than {LARGEST_RECORD:,} bytes")
            return Estimate(json.loads(content.decode("utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            problem = reason(error) if isinstance(error, OSError) else repr(error)[:200]
            what = f"cannot be used ({printable(problem)}); delete it, and nmt-confidence makes it anew"
            raise CheckpointError(f"{place}: {what}") from error

    @cached_property
    def _is_of_these_weights(self) -> bool:
        assert self._estimate is not None
        return self._estimate.digest == digest_of_weights(self._models[0])

    def needs(self, details: Collection[Any]) -> tuple[Any, ...]:
        """The details that a translator must give for these; ConfigError if they name a confidence that is unknown."""
        if DETAIL not in details:
            return tuple(details)
        if len(self._models) != 1:
            raise ConfigError(f"{DETAIL}: is fitted for one model, not for an ensemble of {len(self._models)}")
        place = place_of(self._models[0])
        if self._estimate is None:
            raise ConfigError(f"{DETAIL}: {missing(place)}; nmt-confidence makes it")
        if not self._is_of_these_weights:
            raise ConfigError(f"{DETAIL}: {place} is for other weights; nmt-confidence fits it anew")
        return tuple(dict.fromkeys((*(name for name in details if name != DETAIL), "scores")))

    def rated(self, results: list[Result], details: Collection[Any]) -> list[Result]:
        """`results`, which have the details that are needed, with those that were asked for, and with NOTE."""
        if self._estimate is None:
            return results
        return [self._rated(result, details, self._estimate) for result in results]

    def _rated(self, result: Result, details: Collection[Any], estimate: Estimate) -> Result:
        changes: dict[str, Any] = {}
        if estimate.usual is not None and not estimate.usual.has(result.source):
            changes["notes"] = (*result.notes, NOTE)
        if DETAIL in details:
            changes["confidence"] = estimate.of(result)
            if "scores" not in details:
                changes["n_best"] = [dataclasses.replace(one, token_scores=None) for one in result.n_best]
        return dataclasses.replace(result, **changes) if changes else result
