"""Precision, recall and F1 of words, by how often the training text has them."""

from __future__ import annotations

import argparse
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nmt.data.text import Undecodable, find_pairs, read_lines
from nmt.errors import ConfigError, DataError, missing
from nmt.evaluating.groups import FREQUENCY
from nmt.evaluation import Metric, Score, build_metric
from nmt.evaluation.report import Group, Groups, Result
from nmt.interop.engine.opened import are_engine_files
from nmt.registry import GROUPINGS

TIMES = (1, 2, 3, 4, 5, 10, 100, 1000)
"""How often the words of each group but the first come at least; these are compare-mt's groups."""


class Frequency(NamedTuple):
    """The words that occur `first` to `last` times in the training text."""

    first: int
    last: int | None
    """None: no upper limit."""
    words: int
    """In the references."""
    written: int
    """In the translations."""
    both: int
    """In both."""

    @property
    def times(self) -> str:
        """The range: `0`, `5-9`, `1,000+`."""
        if self.last is None:
            return f"{self.first:,}+"
        return f"{self.first:,}" if self.first == self.last else f"{self.first:,}-{self.last:,}"

    @property
    def precision(self) -> float:
        """How many of the written words are right, in percent; 0 where none is written."""
        return 100 * self.both / self.written if self.written else 0.0

    @property
    def recall(self) -> float:
        """How many of the words of the references are written, in percent; 0 where there are none."""
        return 100 * self.both / self.words if self.words else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall, in percent; 0 where none is right."""
        return 200 * self.both / (self.words + self.written) if self.both else 0.0


@GROUPINGS.register(FREQUENCY)
def by_frequency(
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    counts: Mapping[str, int],
    *,
    least: Sequence[int] = TIMES,
) -> list[Frequency]:
    """Of the words of translations against one set of references, by how often `counts` has each, as compare-mt does.

    Words match as often as a pair of lines has them on both sides. `least`: of each group but the first, ascending.
    """
    starts = (0, *least)
    totals = [[0, 0, 0] for _ in starts]
    for line, reference in zip(hypotheses, references, strict=True):
        found, wanted = Counter(line), Counter(reference)
        for column, words in enumerate((wanted, found, found & wanted)):
            for word, number in words.items():
                totals[bisect_right(starts, counts.get(word, 0)) - 1][column] += number
    ends = [start - 1 for start in least]
    return [
        Frequency(first, last, *numbers) for first, last, numbers in zip(starts, [*ends, None], totals, strict=True)
    ]


def of_words(
    metrics: Sequence[Metric],
    systems: Mapping[str, Sequence[str]],
    reference: Sequence[str],
    training: Sequence[Path],
    *,
    language: str,
) -> dict[str, list[Result]]:
    """Of each system precision, recall and F1 of all words, and of those of each frequency in the text `training`.

    Words are those of `bleu` among the `metrics`, or else those that it has in this language. The results are shown
    beside the scores of metrics, but have no intervals and no tests of significance.
    """
    bleu = next((metric for metric in metrics if metric.name == "bleu"), None)
    scorer: Any = (bleu or build_metric("bleu", language=language or None)).scorer()

    def words(lines: Iterable[str]) -> Iterator[list[str]]:
        return (scorer._preprocess_segment(line).split() for line in lines)

    counts: Counter[str] = Counter()
    for path in training:  # a word that is not UTF-8 cannot occur in the test set
        for line in words(read_lines(path, undecodable=Undecodable("replace"))):
            counts.update(line)
    title = f"words by how often {' '.join(path.name for path in training)} has them"
    case = "lc" if scorer.lowercase else "mixed"
    signature = f"nrefs:1|case:{case}|tok:{scorer.tokenizer.signature()}|training words:{counts.total()}"
    right, results = list(words(reference)), {}
    for system, lines in systems.items():
        found = by_frequency(list(words(lines)), right, counts)
        parts = [part for part in found if part.words or part.written]
        whole = Frequency(0, None, *(sum(part[column] for part in parts) for column in (2, 3, 4)))
        own = results[system] = list[Result]()
        for label, name in (("precision", "precision"), ("recall", "recall"), ("F1", "f1")):
            rows = []
            for part in parts:
                keys = {"first": part.first, "last": part.last, "written": part.written}
                rows.append(Group(part.times, part.words, getattr(part, name), keys))
            groups = {FREQUENCY: Groups(title, ("times", "words"), rows)}
            own.append(Result(Score(label, getattr(whole, name), signature, True), groups=groups))
    return results


def training_text(arguments: argparse.Namespace) -> list[Path]:
    """The files whose words are counted: --frequency-of, or the training text of the first model.

    Raises DataError for files that are missing, ConfigError for a model that does not say what it was trained on.
    """
    if arguments.frequency_of is not None:
        if not Path(arguments.frequency_of).is_file():
            raise DataError(f"--frequency-of: {missing(arguments.frequency_of)}")
        return [Path(arguments.frequency_of)]
    from nmt.config import load_saved  # late, as they import torch
    from nmt.data.prepare import trained_on
    from nmt.interop.model_dir import config_file, find_model

    model = arguments.systems[0][0]
    if are_engine_files([model]):
        raise ConfigError(f"--by {FREQUENCY}: {model} does not say what it was trained on; give --frequency-of FILE")
    config = load_saved(config_file(find_model(model, checkpoint=arguments.checkpoint)), arguments.plugins)
    languages = config.data.source_language, config.data.target_language
    try:
        return [target for _, target in find_pairs(trained_on(config), *languages, key="data.train")]
    except (ConfigError, DataError) as error:
        raise DataError(f"--by {FREQUENCY}: {model}: {error}; give --frequency-of FILE") from None
