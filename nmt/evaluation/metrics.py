"""The metrics, all computed by sacreBLEU: BLEU, chrF, chrF++, TER, and BLEU of tokenised lower-cased text."""

from __future__ import annotations

import functools
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from sacrebleu.metrics.base import Metric as Scorer
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from nmt.data.matching import are_unspaced
from nmt.errors import ConfigError, DataError, counted, refused, say_once
from nmt.registry import METRICS

_log = logging.getLogger(__name__)

USUAL_TOKENIZER: Final = "13a"
_TOKENIZERS: Final = {
    "zh": ("zh", "zho", "chi", "cmn", "yue", "wuu", "lzh", "hak", "nan"),
    "ja-mecab": ("ja", "jpn"),
    "ko-mecab": ("ko", "kor"),
    "char": ("th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur", "bo", "bod", "tib", "dz", "dzo"),
}
"""Tokenizers of sacreBLEU and the languages that they are for."""
_LOOKED_AT: Final = 1000  # lines


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


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """For metrics that have nothing to set."""


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

    @abstractmethod
    def compute(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        """Score a corpus.

        `references` holds one stream for each set of references, each as long as `hypotheses`.
        Raises DataError if there is nothing to score or the streams differ in length.
        """

    def check(self, references: Sequence[Sequence[str]]) -> None:  # noqa: B027
        """Warn of references for which the metric is not meant, once."""

    def scorer(self) -> Scorer | None:
        """sacreBLEU's metric with the settings of this one, for resampling; None if it is not sacreBLEU's."""
        return None


class SacrebleuMetric(Metric):
    """A metric for which sacreBLEU does all the counting."""

    label: ClassVar[str | None] = None
    """Shown in place of sacreBLEU's own name, where the settings are not the usual ones."""

    @abstractmethod
    def scorer(self) -> Scorer:
        """A fresh one for each use: sacreBLEU's metrics remember the number of references."""

    def compute(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        check_streams(hypotheses, references)
        self.check(references)
        scorer = self.scorer()
        result = scorer.corpus_score(hypotheses, references)
        signature = scorer.get_signature().format()
        return Score(
            self.label or result.name, float(result.score), signature, self.higher_is_better, _breakdown(result)
        )


def _breakdown(result: Any) -> Breakdown | None:
    """The parts of sacreBLEU's result, if it is one of BLEU."""
    if not isinstance(result, BLEUScore):
        return None
    precisions = tuple(float(precision) for precision in result.precisions)
    return Breakdown(float(result.bp), int(result.sys_len), int(result.ref_len), precisions)


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
        say_once(_log, f"bleu: {name} needs `pip install sacrebleu[{extra}]`; the tokenizer char takes its place")
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
        """Tokenizer of sacreBLEU that both sides go through first; default by the language: `zh` for Chinese,
        `ja-mecab` and `ko-mecab` for Japanese and Korean where their packages are installed (`pip install
        sacrebleu[ja]`, `sacrebleu[ko]`), else `char`, which it is for Thai, Lao, Khmer, Burmese and Tibetan; `13a` for
        others."""
        lowercase: bool = False
        """Ignore case."""
        language: str | None = None
        """Language of the text: by default `data.target_language` in training, the model's with nmt-eval MODEL."""

        def __post_init__(self) -> None:
            known = list(BLEU.TOKENIZERS)
            if self.tokenize is not None and self.tokenize not in known:
                raise ValueError(
                    refused("tokenize", self.tokenize, known, problem="is not a known tokenizer of sacreBLEU")
                )

    @classmethod
    def effective(cls, given: Mapping[str, Any], *, language: str | None) -> dict[str, Any]:
        """A tokenizer that the language chooses is one that is given."""
        chosen = given.get("tokenize") or bleu_tokenizer(given.get("language") or language)
        others = {name: value for name, value in given.items() if name not in ("tokenize", "language")}
        return others | ({} if chosen == USUAL_TOKENIZER else {"tokenize": chosen})

    def check(self, references: Sequence[Sequence[str]]) -> None:
        lines = [line for stream in references for line in stream[:_LOOKED_AT]]
        if self._tokenizer == USUAL_TOKENIZER and self.options.tokenize is None and are_unspaced(lines):
            say_once(
                _log,
                f"warning: bleu: the references have hardly any spaces, by which the tokenizer {USUAL_TOKENIZER} finds "
                "words. Name their language (data.target_language, --language, nmt-eval -l), or a tokenizer such as zh "
                "or char (tokenize)",
            )

    @property
    def _tokenizer(self) -> str:
        return self.options.tokenize or bleu_tokenizer(self.options.language)

    def scorer(self) -> Scorer:
        name = self._tokenizer
        try:
            return BLEU(tokenize=name, lowercase=self.options.lowercase)
        except (ImportError, OSError, RuntimeError) as error:
            # Some tokenizers need a package or a model file that sacreBLEU fetches at first use.
            reason = " ".join(str(error).split())
            raise ConfigError(f"sacreBLEU's tokenizer {name!r} cannot be used here: {reason}") from None


@METRICS.register("bleu_tok_lc")
class BleuTokenisedLowercase(SacrebleuMetric):
    """Case-insensitive BLEU of text that is already tokenised: the metric of the published tables.

    Words are what whitespace separates, on both sides. As in multi-bleu and the original system nothing
    is smoothed, so an order of n-grams without a match makes the score 0. Not comparable with `bleu`.
    """

    name = "bleu_tok_lc"
    label = "bleu_tok_lc"

    def scorer(self) -> Scorer:
        return BLEU(tokenize="none", lowercase=True, smooth_method="none", force=True)


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
