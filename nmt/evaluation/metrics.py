"""The metrics, all computed by sacreBLEU: BLEU, chrF, chrF++, TER, BLEU of tokens."""

from __future__ import annotations

import dataclasses
import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple

from sacrebleu.metrics.base import Metric as Scorer
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from nmt.config import component_options
from nmt.config.options import choices
from nmt.config.schema import EvaluationConfig
from nmt.data.matching import are_unspaced
from nmt.errors import ConfigError, DataError, counted, refused, say_once
from nmt.registry import METRICS, NoOptions

USUAL_TOKENIZER: Final = "13a"
_TOKENIZERS: Final = {
    "zh": ("zh", "zho", "chi", "cmn", "yue", "wuu", "lzh", "hak", "nan"),
    "ja-mecab": ("ja", "jpn"),
    "ko-mecab": ("ko", "kor"),
    "char": ("th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur", "bo", "bod", "tib", "dz", "dzo"),
}
"""Tokenizers of sacreBLEU and the languages that they are for."""
_LOOKED_AT: Final = 1000  # lines
USUAL_ORDER: Final = 4
_LONGEST_ORDER: Final = 9


class Breakdown(NamedTuple):
    """What a BLEU score is made of."""

    brevity_penalty: float
    """1 where the translations are as long as the references or longer, else below 1."""
    length: int
    """Words of all translations, as the metric's tokenizer counts them."""
    reference_length: int
    """Words of the references that are closest in length."""
    precisions: tuple[float, ...]
    """Of n-grams of 1, 2, 3, 4 words, in percent."""

    @property
    def ratio(self) -> float:
        """Length of the translations for each word of the references."""
        return self.length / self.reference_length if self.reference_length else 0.0


class Score(NamedTuple):
    """A score, which is always shown with the signature of its metric."""

    name: str
    """Label in tables and JSON, as sacreBLEU writes it: `BLEU`, `chrF2`, `TER`."""
    score: float
    """The unrounded value, in percent."""
    signature: str
    """Every setting that the value depends on."""
    higher_is_better: bool
    breakdown: Breakdown | None = None
    """Of BLEU."""
    segments: Sequence[float] | None = None
    """Of each sentence, where the score is their mean: then it has intervals and tests of significance."""


class Metric(ABC):
    """What validation and nmt-eval need of a metric; plugins may derive from this directly."""

    Options: ClassVar[type] = NoOptions
    """Frozen dataclass of the metric's options, against which those in `evaluation.metrics` are checked."""
    name: ClassVar[str]
    """Name in the registry, in configurations and logs."""
    higher_is_better: ClassVar[bool] = True

    def __init__(self, *, options: Any = None) -> None:
        """Raises ConfigError where the metric cannot be used, say because something is not installed.

        A value that is wrong everywhere is refused by `Options`, with ValueError("option: what is wrong"), so that
        loading a configuration finds it.
        """
        self.options = self.Options() if options is None else options

    @classmethod
    def effective(cls, given: Mapping[str, Any], *, language: str | None) -> dict[str, Any]:
        """The options that decide the score of a text in `language`, of those that are given."""
        return dict(given)

    needs_sources: ClassVar[bool] = False
    """Whether `compute` has a third argument, `sources`, the sentences that were translated."""

    @abstractmethod
    def compute(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        """Score a corpus.

        `references` holds one stream for each set of references, each as long as `hypotheses`. A metric that looks at
        the sources says so by `needs_sources` and has `compute(self, hypotheses, references, *, sources)`.
        Raises DataError if there is nothing to score or the streams differ in length.
        """

    def score(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, sources: Sequence[str] | None = None
    ) -> Score:
        """`compute`, with the sources if the metric needs them; ConfigError where they are not known."""
        if not self.needs_sources:
            return self.compute(hypotheses, references)
        if sources is None:
            raise ConfigError(f"metric {self.name}: needs the sources; give --source, or `source` in Python")
        if len(sources) != len(hypotheses):
            raise DataError(f"{counted(len(sources), 'source')} but {counted(len(hypotheses), 'translation')}")
        return self.compute(hypotheses, references, sources=sources)  # type: ignore[call-arg]

    def check(self, references: Sequence[Sequence[str]]) -> None:  # noqa: B027
        """Warn of references for which the metric is not meant, once."""

    def scorer(self) -> Scorer | None:
        """sacreBLEU's metric with the settings of this one, for resampling; None if it is not sacreBLEU's."""
        return None


class SacrebleuMetric(Metric):
    """A metric for which sacreBLEU does all the counting."""

    label: ClassVar[str | None] = None
    """Shown in place of sacreBLEU's own name, where the settings are not the usual ones."""

    finds_words_by_spaces: ClassVar[bool] = False
    """Whether nothing but white space separates words, in any language."""

    def check(self, references: Sequence[Sequence[str]]) -> None:
        """Warn of references without spaces, where they are needed."""
        if self.finds_words_by_spaces:
            remedy = "by which it finds words: split the text into words first, or score it by bleu"
            _warn_without_spaces(self.name, references, remedy)

    @abstractmethod
    def scorer(self) -> Scorer:
        """A fresh one for each use: sacreBLEU's metrics remember the number of references."""

    def compute(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        check_streams(hypotheses, references)
        self.check(references)
        scorer = self.scorer()
        result = scorer.corpus_score(hypotheses, references)
        name, signature = self.label or result.name, scorer.get_signature().format()
        parts = None
        if isinstance(result, BLEUScore):
            precisions = tuple(map(float, result.precisions))
            parts = Breakdown(float(result.bp), int(result.sys_len), int(result.ref_len), precisions)
        return Score(name, float(result.score), signature, self.higher_is_better, parts)


def of_sentences(
    metric: Metric,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    sources: Sequence[str] | None = None,
) -> Sequence[float]:
    """The score of each sentence alone; BLEU of those n-grams that it is long enough for, as in sacreBLEU.

    Raises ConfigError for a metric without scores of sentences.
    """
    scorer = metric.scorer()
    if scorer is None:
        segments = metric.score(hypotheses, references, sources=sources).segments
        if segments is None:
            raise ConfigError(f"metric {metric.name}: has no scores of sentences")
        return segments
    check_streams(hypotheses, references)
    if isinstance(scorer, BLEU):
        scorer.effective_order = True
    pairs = zip(hypotheses, zip(*references, strict=True), strict=True)
    return [float(scorer.sentence_score(one, right).score) for one, right in pairs]


def check_streams(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise DataError unless there is a sentence, a reference, and one reference for each sentence.

    sacreBLEU's API would pair the shorter of two streams silently.
    """
    if not hypotheses:
        raise DataError("there is no sentence to score")
    if not references:
        raise DataError("there is no reference to score against")
    for number, stream in enumerate(references, 1):
        if len(stream) != len(hypotheses):
            raise DataError(
                f"{counted(len(hypotheses), 'translation')} but {counted(len(stream), 'line')} in reference {number}"
            )


def bleu_tokenizer(language: str | None) -> str:
    """The tokenizer of sacreBLEU for a language, by a code such as `zh`, `zh-CN`, `zho` or `cmn_Hans`."""
    code = re.split("[-_.@]", (language or "").lower())[0]
    name = next((name for name, codes in _TOKENIZERS.items() if code in codes), USUAL_TOKENIZER)
    if name.endswith("-mecab") and not _is_installed(name):
        extra = name.partition("-")[0]
        say_once(__name__, f"bleu: {name} needs `pip install sacrebleu[{extra}]`; the tokenizer char takes its place")
        return "char"
    return name


@functools.cache
def _is_installed(name: str) -> bool:
    try:
        BLEU(tokenize=name)
    except (ImportError, OSError, RuntimeError):
        return False
    return True


@METRICS.register("bleu")
class Bleu(SacrebleuMetric):
    """BLEU (Papineni et al., ACL 2002), by default cased, of detokenised text, as WMT reports it."""

    name = "bleu"

    @dataclass(frozen=True, kw_only=True)
    class Options:
        tokenize: str | None = None
        """Tokenizer of sacreBLEU for both sides; default by the language: [evaluation.md](evaluation.md#metrics)."""
        lowercase: bool = False
        """Ignore case."""
        max_order: int = USUAL_ORDER
        """Longest n-grams, in words."""
        smooth: Literal["exp", "floor", "add-k", "none"] = "exp"
        """What replaces precisions without a match, as in sacreBLEU."""
        language: str | None = None
        """Language of the text; default: the model's."""

        def __post_init__(self) -> None:
            if not 1 <= self.max_order <= _LONGEST_ORDER:
                raise ValueError(f"max_order: must be from 1 to {_LONGEST_ORDER}, not {self.max_order}")
            known = list(BLEU.TOKENIZERS)
            if self.tokenize is not None and self.tokenize not in known:
                raise ValueError(
                    refused("tokenize", self.tokenize, known, problem="is not a known tokenizer of sacreBLEU")
                )

    def __init__(self, *, options: Any = None) -> None:
        super().__init__(options=options)
        if self.options.max_order != USUAL_ORDER:
            self.label = f"BLEU-{self.options.max_order}"  # type: ignore[misc]

    @classmethod
    def effective(cls, given: Mapping[str, Any], *, language: str | None) -> dict[str, Any]:
        """A tokenizer that the language chooses is one that is given."""
        chosen = given.get("tokenize") or bleu_tokenizer(given.get("language") or language)
        others = {name: value for name, value in given.items() if name not in ("tokenize", "language")}
        return others | ({} if chosen == USUAL_TOKENIZER else {"tokenize": chosen})

    def check(self, references: Sequence[Sequence[str]]) -> None:
        if self._tokenizer == USUAL_TOKENIZER and self.options.tokenize is None:
            remedy = (
                f"by which the tokenizer {USUAL_TOKENIZER} finds words. Name their language (data.target_language, "
                "--language, nmt-eval -l), or a tokenizer such as zh or char (tokenize)"
            )
            _warn_without_spaces(self.name, references, remedy)

    @property
    def _tokenizer(self) -> str:
        return self.options.tokenize or bleu_tokenizer(self.options.language)

    def scorer(self) -> Scorer:
        name = self._tokenizer
        try:
            return BLEU(
                tokenize=name,
                lowercase=self.options.lowercase,
                max_ngram_order=self.options.max_order,
                smooth_method=self.options.smooth,
            )
        except (ImportError, OSError, RuntimeError) as error:
            # Some tokenizers need a package or a model file that sacreBLEU fetches at first use.
            reason = " ".join(str(error).split())
            raise ConfigError(f"sacreBLEU's tokenizer {name!r} cannot be used here: {reason}") from None


def _warn_without_spaces(name: str, references: Sequence[Sequence[str]], remedy: str) -> None:
    """Say once that a metric counts words which white space separates, where there is hardly any."""
    if are_unspaced([line for stream in references for line in stream[:_LOOKED_AT]]):
        say_once(__name__, f"warning: {name}: the references have hardly any spaces, {remedy}")


@METRICS.register("chrf")
class Chrf(SacrebleuMetric):
    """chrF2: F-score of character n-grams (Popovic, WMT 2015)."""

    name = "chrf"

    def scorer(self) -> Scorer:
        return CHRF()


@METRICS.register("chrf++")
class ChrfPlusPlus(SacrebleuMetric):
    """chrF2++: chrF with words and pairs of words besides (Popovic, WMT 2017)."""

    name = "chrf++"

    def scorer(self) -> Scorer:
        return CHRF(word_order=2)


@METRICS.register("ter")
class Ter(SacrebleuMetric):
    """Translation edit rate (Snover et al., AMTA 2006): edits for each 100 reference words; lower is better."""

    name = "ter"
    higher_is_better = False

    def scorer(self) -> Scorer:
        return TER()


MARK = "@@"
"""What subword-nmt puts at the end of a subword that the next one continues."""
SHARE = 0.1
"""Smallest share of non-empty lines with a mark; with fewer, the mark is taken for ordinary text."""


def check_subwords(texts: Mapping[str, Sequence[str]]) -> str | None:
    """The message if all `texts`, by the names of their files, are split into subwords; None if none is.

    Raises DataError naming two texts if one is split and the other is not.
    """
    marked = {name: sum(f"{MARK} " in line or line.endswith(MARK) for line in lines) for name, lines in texts.items()}
    split = [name for name, lines in texts.items() if marked[name] > SHARE * sum(map(bool, lines))]
    if not split:
        return None
    first = split[0]
    found = f"{first}: {marked[first]} of {counted(len(texts[first]), 'line')} are split into subwords ('{MARK} ')"
    whole = [name for name in texts if name not in split]
    if whole:
        raise DataError(f"{found}, but {whole[0]} is not; join them first: sed -E 's/{MARK}( |$)//g'")
    return f"{found}, and so is the rest; the scores are those of subwords, not of words"


def build_metric(name: str, options: Mapping[str, Any] | None = None, *, language: str | None = None) -> Metric:
    """The metric registered as `name`; `language`, of the text, is for those with such an option that is not set.

    Raises ConfigError for an unknown name, wrong options, or something that is not installed.
    """
    member = METRICS.get(name)
    chosen = component_options(member, options or {}, key=name)
    if getattr(chosen, "language", "none is needed") is None:
        chosen = dataclasses.replace(chosen, language=language)
    try:
        metric: Metric = member(options=chosen)
    except ConfigError as error:
        raise ConfigError(f"metric {name}: {error}") from error
    return metric


def build_metrics(evaluation: EvaluationConfig, *, language: str | None) -> list[Metric]:
    """The metrics that a configuration chooses, each able to score; ConfigError for what is not installed."""
    metrics = []
    for name, options in choices(evaluation.metrics):
        metrics.append(build_metric(name, options, language=language))
        metrics[-1].scorer()  # fails without a package or file that a tokenizer needs
    return metrics


def counting(metric: Metric) -> Metric:
    """`metric`, which from now on caches the match counts of each translation with its references.

    Scores of a text, of its parts and of its resamples then need only one count. Other metrics score each text once.
    """
    if isinstance(metric, _Counting | _Remembering):
        return metric
    return _Counting(metric) if isinstance(metric, SacrebleuMetric) else _Remembering(metric)


class _Remembering(Metric):
    def __init__(self, metric: Metric) -> None:
        super().__init__(options=metric.options)
        self.name, self.higher_is_better = metric.name, metric.higher_is_better  # type: ignore[misc]
        self.needs_sources = metric.needs_sources  # type: ignore[misc]
        self._metric = metric
        self._scores: dict[Any, Score] = {}
        self.check, self.scorer = metric.check, metric.scorer  # type: ignore[method-assign]

    def compute(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, sources: Sequence[str] | None = None
    ) -> Score:
        key = (tuple(hypotheses), tuple(map(tuple, references)), None if sources is None else tuple(sources))
        if key not in self._scores:
            self._scores[key] = self._metric.score(hypotheses, references, sources=sources)
        return self._scores[key]


class _Counting(SacrebleuMetric):
    def __init__(self, metric: SacrebleuMetric) -> None:
        super().__init__(options=metric.options)
        self.name, self.label = metric.name, metric.label  # type: ignore[misc]
        self.higher_is_better = metric.higher_is_better  # type: ignore[misc]
        self._metric = metric
        self._counts: dict[tuple[str, ...], Any] = {}

    def check(self, references: Sequence[Sequence[str]]) -> None:
        self._metric.check(references)

    def scorer(self) -> Scorer:
        scorer = self._metric.scorer()
        count = scorer._extract_corpus_statistics

        def remembered(hypotheses: Sequence[str], references: Any) -> list[Any]:
            pairs = list(zip(hypotheses, *references, strict=True))
            new = list(dict.fromkeys(pair for pair in pairs if pair not in self._counts))
            if new:
                texts, *streams = zip(*new, strict=True)
                self._counts.update(zip(new, count(texts, streams), strict=True))
            scorer.num_refs = len(references)  # for the signature
            return [self._counts[pair] for pair in pairs]

        scorer._extract_corpus_statistics = remembered  # type: ignore[method-assign]
        return scorer
