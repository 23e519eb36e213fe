"""`nmt.evaluate`, for text in memory or in files, and the scores that nmt-eval has in common with it."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from nmt.config.options import with_options
from nmt.data.text import read_lines
from nmt.errors import ConfigError, DataError, counted, refused, shown
from nmt.evaluation import Metric, Score, build_metric, check_subwords, paired_test
from nmt.evaluation.metrics import counting
from nmt.evaluation.report import FORMATS, System, written
from nmt.evaluation.report import Result as Measured
from nmt.evaluation.significance import BOOTSTRAP, DEFAULT_SEED, check_test
from nmt.evaluation.significance import confidence as resampled
from nmt.library.loading import load, path_of
from nmt.library.translator import Translator
from nmt.library.values import Result
from nmt.registry import GROUPINGS, METRICS, TEST_SETS

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from nmt.library.values import Options

DEFAULT_METRICS: Final = ("bleu", "chrf", "ter")

Text = str | os.PathLike[str] | Sequence[str]
"""The name of a file, or the sentences themselves."""

LOOKED_AT_BY_NONE: Final = "none of the metrics looks at it, and the translations are given already"

_OPTIONS = ("tokenize", "lowercase", "language", "dash_splits")
"""Options of metrics."""


@dataclass(frozen=True)
class Evaluation:
    """Scores with their signatures; `evaluation["bleu"]` is a number, `str()` the tables that nmt-eval prints.

    With several systems, `evaluation.systems["name"]` is the evaluation of one system.
    """

    measured: dict[str, dict[str, Measured]] = field(repr=False)
    """All measured scores, by system and then by metric."""
    translations: list[Result] | None = field(default=None, repr=False)
    """The model's translations of the source; None if translations were given."""

    @property
    def systems(self) -> dict[str, Evaluation]:
        """The evaluation of each system."""
        return {name: Evaluation({name: results}) for name, results in self.measured.items()}

    @property
    def scores(self) -> dict[str, Score]:
        """The score of each metric, with `name`, `score`, `signature`, `higher_is_better` and, for BLEU, `breakdown`.

        Raises ConfigError if there are several systems.
        """
        return {name: result.score for name, result in self._of_one().items()}

    def as_json(self) -> list[dict[str, Any]]:
        """The objects that `nmt-eval --json` prints, with everything requested in addition to the scores."""
        found: list[dict[str, Any]] = json.loads(self.as_table("json"))
        return found

    def as_table(self, format: str = "text") -> str:
        """The output of `nmt-eval --format`: text, latex, markdown, csv or json."""
        if format not in FORMATS:
            raise ConfigError(refused("format", format, FORMATS, problem="is not known"))
        return written([System(name, [*results.values()]) for name, results in self.measured.items()], format)

    def __getitem__(self, metric: str) -> float:
        return self._of_one()[metric].score.score

    def __str__(self) -> str:
        return self.as_table()

    def __repr__(self) -> str:
        if len(self.measured) > 1:
            return f"Evaluation({', '.join(map(repr, self.measured))})"
        return f"Evaluation({', '.join(f'{score.name} {score.score:.2f}' for score in self.scores.values())})"

    def _of_one(self) -> dict[str, Measured]:
        if len(self.measured) > 1:
            first = next(iter(self.measured))
            raise ConfigError(
                f"there are {len(self.measured)} systems: choose one, as in evaluation.systems[{first!r}]"
            )
        (results,) = self.measured.values()
        return results


def chosen_metrics(
    names: Sequence[str], options: Mapping[str, Any], *, called: Mapping[str, str], language: str | None = None
) -> list[Metric]:
    """The requested metrics, each once, with those `options` that it has; a name may have its own, `bleu,max_order=2`.

    `called`: gives the user's name of an option. `language`: language of the text, if known; the default of that
    option. Raises ConfigError for an unknown metric, and for an option that none of the metrics has.
    """
    unused = set(options)
    metrics: list[Metric] = []
    for text in dict.fromkeys(names):
        name, own = with_options(text, called=f"metric {text}")
        if name in [metric.name for metric in metrics]:
            raise ConfigError(f"metric {name}: is given twice, with other options")
        known = _options_of(METRICS.get(name))
        unused -= known
        given = {key: value for key, value in options.items() if key in known}
        metrics.append(build_metric(name, given | own, language=language))
    if unused:
        listed = ", ".join(called[name] for name in sorted(unused))
        having = [name for name in METRICS.names() if unused & _options_of(METRICS.get(name))]
        raise ConfigError(f"{listed}: no requested metric has this option; it belongs to {', '.join(having)}")
    return metrics


def target_of(pair: str, *, called: str) -> str:
    """The target language of a pair such as en-de; ConfigError, which says how the pair is `called`, for others."""
    found = re.fullmatch(r"[^-]+(?:-(?:[A-Z][a-z]{3}|[A-Z]{2}))*-(.+)", pair)  # the source may be zh-Hans, zh-CN
    if found is None:
        raise ConfigError(f"{called}: {shown(pair)} is not a language pair. Allowed: two codes, such as en-de.")
    return found[1]


def measured(
    metrics: Sequence[Metric],
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    *,
    baselines: Mapping[str, Sequence[str]],
    test: str = BOOTSTRAP,
    samples: int | None = None,
    seed: int = DEFAULT_SEED,
    confidence: bool = False,
    groups: Mapping[str, Any] = MappingProxyType({}),
    sources: Sequence[str] | None = None,
) -> list[System]:
    """The scores of each system, and its comparisons with each baseline except itself.

    With `confidence` also 95% intervals, with `groups` (of GROUPINGS) scores of each group of lines. Without
    `baselines`, the first of several systems is the baseline.
    """
    if not baselines and len(systems) > 1:
        first = next(iter(systems))
        baselines = {first: systems[first]}
    found: dict[str, list[Measured]] = {name: [] for name in systems}
    drawn: dict[str, Any] = {"samples": samples, "seed": seed, "sources": sources}
    for metric in map(counting, metrics):
        for name, lines in systems.items():
            compared = [
                (baseline, paired_test(metric, lines, baseline=others, references=references, test=test, **drawn))
                for baseline, others in baselines.items()
                if baseline != name or len(systems) == 1
            ]
            interval = resampled(metric, lines, references, **drawn) if confidence else None
            parts = {kind: own.scored(metric, lines, references, sources=sources) for kind, own in groups.items()}
            score = metric.score(lines, references, sources=sources)
            found[name].append(Measured(score, compared, parts, interval))
    return [System(name, results) for name, results in found.items()]


def _options_of(member: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(member.Options)}


def evaluate(
    hypotheses: Text | Mapping[str, Text] | None = None,
    references: Text | Sequence[Text] = (),
    *,
    model: Translator | str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    source: Text | None = None,
    test_set: str | None = None,
    language_pair: str | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    tokenize: str | None = None,
    lowercase: bool | None = None,
    language: str | None = None,
    dash_splits: bool | None = None,
    baselines: Mapping[str, Text] | None = None,
    significance: str | None = None,
    samples: int | None = None,
    seed: int = DEFAULT_SEED,
    confidence: bool = False,
    by_length: bool = False,
    **options: Unpack[Options],
) -> Evaluation:
    """Score translations, or a model's translations of a source.

    A text is a list of sentences, or the name of a file (may be .gz) as a string or path.

    Args:
        hypotheses: the translations, or a mapping of names to the translations of several systems, which are compared
            with the first one if there are no `baselines`; None with `model` and `source`.
        references: a text, or a list of texts (paths or lists of sentences), one for each set.
        model: a translator, or an argument of `nmt.load`.
        source: the text that it translates; with hypotheses, the text that a metric looks at besides.
        test_set: instead of references and source, a test set known to sacreBLEU, such as `wmt14`.
        language_pair: language pair of the test set, or of the text, such as `en-de`.
        metrics: as nmt-eval's `--metrics`.
        tokenize: BLEU's tokenizer, as nmt-eval's `--tokenize`; by default chosen by the target language.
        lowercase: BLEU without case, as nmt-eval's `--lowercase`.
        language: language of the text, for `bleu` and `bleu_moses_lc`, as nmt-eval's `--language`.
        dash_splits: for `bleu_moses_lc`; False is nmt-eval's `--no-dash-splits`.
        baselines: mapping of names to translations to compare with.
        significance: test of significance, `bootstrap` (paired resampling, the default) or `approximate`
            (randomisation).
        samples: number of resamples of the test and the intervals (default 1,000), or of trials (default 10,000).
        seed: seed of the test and of the intervals.
        confidence: also 95% intervals, by bootstrap resampling.
        by_length: also score short and long sentences separately.
        options: options of the translation, as of `Translator.translate`.

    Raises:
        TypeError: a text is of another type.
        ConfigError: unknown metrics or options; arguments that do not go together.
        DataError: texts are missing, empty or of unequal length; some are split into subwords and others not; a test
            set cannot be fetched.
        CheckpointError: a model cannot be loaded.
    """
    pair = None if language_pair is None else target_of(language_pair, called="language_pair")
    if (hypotheses is None) == (model is None):
        raise ConfigError("nothing to score; give hypotheses, or a model and the source that it translates")
    if options and model is None:
        raise ConfigError(f"{', '.join(options)}: allowed only with a model; hypotheses are already translated")
    if (samples is not None and samples < 1) or seed < 1:
        raise ConfigError(f"samples and seed must be 1 or more, not {samples} and {seed}")
    if significance is not None:
        check_test(significance)
        if not baselines and not (isinstance(hypotheses, Mapping) and len(hypotheses) > 1):
            raise ConfigError("significance: needs something to compare with: several hypotheses, or baselines")
    asked = dict(zip(_OPTIONS, (tokenize, lowercase, language, dash_splits), strict=True))
    given = {name: value for name, value in asked.items() if value is not None}
    called = {name: name for name in _OPTIONS}
    if test_set is not None:
        if source is not None or references not in (None, (), []):
            raise ConfigError(f"the test set {test_set} already has source and references; give one of the two")
        found = TEST_SETS.get("sacrebleu")(test_set, language_pair)
        joined = (
            [line for file in files for line in _lines(file, file)] for files in (found.sources, *found.references)
        )
        source, *references = joined
    if model is not None and source is None:
        raise ConfigError("nothing to score; give hypotheses, or a model and the source that it translates")
    # Mistakes are reported before texts are read and translated.
    needing = [metric.name for metric in chosen_metrics(metrics, given, called=called) if metric.needs_sources]
    if model is None and source is not None and not needing and test_set is None:
        raise ConfigError(f"source: {LOOKED_AT_BY_NONE}")
    if hypotheses == {}:
        raise ConfigError("hypotheses: has no system")
    systems: Mapping[str, Any] = {"source": source} if model is not None else {"hypotheses": hypotheses}
    if isinstance(hypotheses, Mapping):
        systems = {f"{_SYSTEM}{name}": text for name, text in hypotheses.items()}
    beside = {"source": source} if model is None and needing and source is not None else {}
    texts, streams, compared, looked_at = _read(systems, references, baselines, beside)
    sources = (looked_at or texts).get("source")
    translations: list[Result] | None = None
    if model is not None:
        translator = model if isinstance(model, Translator) else load(model)
        try:
            translations = translator.translate(texts["source"], **options)
            texts = {"the model": [result.text for result in translations]}
            language = language or pair or translator.target_language
            streams = {place: translator.joined(lines) for place, lines in streams.items()}
        finally:
            if translator is not model:
                translator.close()
    note = check_subwords(texts | streams | compared)
    if note is not None:
        logging.getLogger("nmt.evaluate").warning("%s", note)
    scored = measured(
        chosen_metrics(metrics, given, called=called, language=language or pair),
        {name.removeprefix(_SYSTEM): lines for name, lines in texts.items()},
        [*streams.values()],
        baselines={place.removeprefix(_BASELINE): lines for place, lines in compared.items()},
        test=significance or BOOTSTRAP,
        samples=samples,
        seed=seed,
        confidence=confidence,
        groups={"length": GROUPINGS.get("length")(next(iter(streams.values())))} if by_length else {},
        sources=sources,
    )
    names = [text.partition(",")[0] for text in dict.fromkeys(metrics)]
    results = {system.name: dict(zip(names, system.results, strict=True)) for system in scored}
    return Evaluation(results, translations)


_SYSTEM = "hypotheses "
_BASELINE = "baseline "


def _read(
    systems: Mapping[str, Any], references: Any, baselines: Any, beside: Mapping[str, Any]
) -> list[dict[str, list[str]]]:
    """The lines of systems, references, baselines and the sources beside them, by their names in errors, all equally
    many."""
    if baselines is not None and not isinstance(baselines, Mapping):
        raise TypeError(f"baselines must be a mapping of names to texts, not {type(baselines).__name__}")
    are_texts = (
        isinstance(references, list | tuple) and references and not any(isinstance(one, str) for one in references)
    )
    sets = {f"references[{place}]": text for place, text in enumerate(references)} if are_texts else None
    others = {f"{_BASELINE}{name}": text for name, text in (baselines or {}).items()}
    every = (systems, sets or {"references": references}, others, beside)
    found = [{name: _lines(text, name) for name, text in texts.items()} for texts in every]
    first = next(iter(systems))
    lines = len(found[0][first])
    for name, text in (item for texts in found for item in texts.items()):
        if len(text) != lines:
            raise DataError(
                f"{first}: {counted(lines, 'sentence')}, but {name}: {len(text)}; their numbers must be equal"
            )
    if not lines:
        raise DataError(f"{first}: has no sentence")
    return found


def _lines(text: object, name: str) -> list[str]:
    """The sentences of a text, one line each."""
    if isinstance(text, str | os.PathLike):
        return list(read_lines(path_of(text, name)))
    if not isinstance(text, list | tuple):
        raise TypeError(f"{name} must be a file or a list of strings, not {type(text).__name__}")
    for place, line in enumerate(text):
        if not isinstance(line, str):
            raise TypeError(f"{name}[{place}] must be a string, not {type(line).__name__}")
    return [line.replace("\n", " ").replace("\r", " ") for line in text]
