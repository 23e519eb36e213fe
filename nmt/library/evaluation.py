"""`nmt.evaluate`: what nmt-eval does, for text in memory or in files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nmt.errors import ConfigError, DataError, counted
from nmt.library.environment import before_torch
from nmt.library.loading import load
from nmt.library.paths import path_of
from nmt.library.results import Result
from nmt.library.translator import Translator

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from nmt.evaluation import Score
    from nmt.evaluation.report import Result as Measured
    from nmt.library.options import Options

Text = str | os.PathLike[str] | Sequence[str]
"""A file, by its name, or the sentences themselves."""

_OPTIONS = ("tokenize", "lowercase", "language", "dash_splits")
"""Options of metrics."""


@dataclass(frozen=True)
class Evaluation:
    """Scores with their signatures; `evaluation["bleu"]` is a number, `str()` the table that nmt-eval prints."""

    measured: dict[str, Measured] = field(repr=False)
    """All that was measured, by the names of the metrics."""
    translations: list[Result] | None = field(default=None, repr=False)
    """What the model has made of the source; None where the translations were given."""

    @property
    def scores(self) -> dict[str, Score]:
        """The score of each metric, with `name`, `score`, `signature` and `higher_is_better`."""
        return {name: result.score for name, result in self.measured.items()}

    def as_json(self) -> list[dict[str, Any]]:
        """The objects that `nmt-eval --json` prints, with comparisons and scores by length where asked for."""
        from nmt.evaluation.report import as_json

        found: list[dict[str, Any]] = json.loads(as_json([*self.measured.values()]))
        return found

    def __getitem__(self, metric: str) -> float:
        return self.measured[metric].score.score

    def __str__(self) -> str:
        from nmt.evaluation.report import as_text

        return as_text([*self.measured.values()])

    def __repr__(self) -> str:
        return f"Evaluation({', '.join(f'{score.name} {score.score:.2f}' for score in self.scores.values())})"


def evaluate(
    hypotheses: Text | None = None,
    references: Text | Sequence[Text] = (),
    *,
    model: Translator | str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    source: Text | None = None,
    metrics: Sequence[str] = ("bleu", "chrf", "ter"),
    tokenize: str | None = None,
    lowercase: bool | None = None,
    language: str | None = None,
    dash_splits: bool | None = None,
    baselines: Mapping[str, Text] | None = None,
    samples: int = 1000,
    seed: int = 12345,
    by_length: bool = False,
    **options: Unpack[Options],
) -> Evaluation:
    """Score translations, or what a model makes of a source.

    A text is a list of sentences, or a file, .gz too, by its name as a string or path.

    Args:
        hypotheses: the translations; or none, with `model` and `source`.
        references: a text, or a list of texts that are files as paths or lists of sentences, one for each set.
        model: a translator, or what `nmt.load` takes.
        source: the text that it translates.
        metrics: as nmt-eval's `--metrics`.
        tokenize, lowercase, language, dash_splits: options of metrics, as those of nmt-eval.
        baselines: translations to compare with, by their names, by paired bootstrap resampling.
        samples, seed: of the resampling.
        by_length: also score short and long sentences separately.
        options: for the translation, as those of `Translator.translate`.

    Raises:
        TypeError: a text that is neither.
        ConfigError: metrics or options that there are not; arguments that do not go together.
        DataError: texts that are missing, empty or not equally long; some split into subwords and some not.
        CheckpointError: a model that cannot be loaded.
    """
    from nmt.evaluation import check_subwords
    from nmt.library.scoring import chosen_metrics, measured

    if (hypotheses is None) == (model is None) or (model is None) != (source is None):
        raise ConfigError("give hypotheses, the translations, or else a model and the source that it translates")
    if options and model is None:
        raise ConfigError(f"{', '.join(options)}: only with a model; hypotheses are already translated")
    if samples < 1 or seed < 1:
        raise ConfigError(f"samples and seed must be 1 or more, not {samples} and {seed}")
    asked = dict(zip(_OPTIONS, (tokenize, lowercase, language, dash_splits), strict=True))
    given = {name: value for name, value in asked.items() if value is not None}
    called = {name: name for name in _OPTIONS}
    chosen_metrics(metrics, given, called=called)  # mistakes show before texts are read and translated
    name, system = ("source", source) if hypotheses is None else ("hypotheses", hypotheses)
    texts = {name: _lines(system, name)}
    texts |= {place: _lines(text, place) for place, text in _sets(references).items()}
    texts |= {place: _lines(text, place) for place, text in _named_baselines(baselines).items()}
    _check_lengths(texts)
    translations: list[Result] | None = None
    if model is not None:
        translator = model if isinstance(model, Translator) else load(model)
        try:
            translations = translator.translate(texts.pop(name), **options)
            texts = {"the model": [result.text for result in translations], **texts}
            name = "the model"
            language = translator.target_language
            for place in texts:
                if place.startswith("references"):
                    texts[place] = translator.joined(texts[place])
        finally:
            if translator is not model:
                translator.close()
    note = check_subwords(texts)
    if note is not None:
        _warn(note)
    streams = [lines for place, lines in texts.items() if place.startswith("references")]
    compared = [(place.removeprefix(_BASELINE), lines) for place, lines in texts.items() if place.startswith(_BASELINE)]
    found = chosen_metrics(metrics, given, called=called, language=language)
    results = {
        metric.name: measured(
            metric, texts[name], streams, baselines=compared, samples=samples, seed=seed, lengths=by_length
        )
        for metric in found
    }
    return Evaluation(results, translations)


_BASELINE = "baseline "


def _warn(note: str) -> None:
    import logging

    logging.getLogger("nmt.evaluate").warning("%s", note)


def _sets(references: Any) -> dict[str, Any]:
    """The sets of references by what errors call them."""
    is_list = isinstance(references, list | tuple)
    if is_list and references and not any(isinstance(item, str) for item in references):
        return {f"references[{place}]": text for place, text in enumerate(references)}
    return {"references": references}


def _named_baselines(baselines: Mapping[str, Text] | None) -> dict[str, Text]:
    if baselines is not None and not isinstance(baselines, Mapping):
        raise TypeError(f"baselines must be a mapping of names to texts, not {type(baselines).__name__}")
    return {f"{_BASELINE}{name}": text for name, text in (baselines or {}).items()}


def _lines(text: object, name: str) -> list[str]:
    """The sentences of a text, each on one line."""
    if isinstance(text, str | os.PathLike):
        before_torch()
        from nmt.data.text import read_lines

        return list(read_lines(path_of(text, name)))
    if not isinstance(text, list | tuple):
        raise TypeError(f"{name} must be a file or a list of strings, not {type(text).__name__}")
    for place, line in enumerate(text):
        if not isinstance(line, str):
            raise TypeError(f"{name}[{place}] must be a string, not {type(line).__name__}")
    return [line.replace("\n", " ").replace("\r", " ") for line in text]


def _check_lengths(texts: Mapping[str, Sequence[str]]) -> None:
    first, lines = next(iter(texts.items()))
    for name, others in texts.items():
        if len(others) != len(lines):
            raise DataError(
                f"{first}: {counted(len(lines), 'sentence')}, but {name}: {len(others)}; they must be equally many"
            )
    if not lines:
        raise DataError(f"{first}: no sentence to score")
