"""BLEU as published tables have it: without case, of text that is tokenised, or on the tokens of Moses."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from sacrebleu.metrics.bleu import BLEU

from nmt.errors import ConfigError
from nmt.evaluation import SacrebleuMetric
from nmt.registry import METRICS

DEFAULT_LANGUAGE = "de"


@METRICS.register("bleu_tok_lc")
class BleuTokenisedLowercase(SacrebleuMetric):
    """Case-insensitive BLEU of text that is already tokenised: the metric of the published tables.

    Words are what whitespace separates, on both sides. As in multi-bleu and the original system nothing
    is smoothed, so an order of n-grams without a match makes the score 0. Not comparable with `bleu`.
    """

    name = "bleu_tok_lc"
    label = "bleu_tok_lc"
    finds_words_by_spaces = True

    def scorer(self) -> BLEU:
        return BLEU(tokenize="none", lowercase=True, smooth_method="none", force=True)


class MosesBleu(BLEU):
    """sacreBLEU's BLEU with both sides cut by sacremoses first and lower-cased then, nothing smoothed."""

    def __init__(self, language: str, *, dash_splits: bool) -> None:
        super().__init__(tokenize="none", lowercase=True, smooth_method="none", force=True)
        from sacremoses import MosesTokenizer

        self._moses = MosesTokenizer(lang=language)
        self._dash_splits = dash_splits
        dashes = "split" if dash_splits else "kept"
        # No "|" and no ":", at which sacreBLEU takes a signature apart.
        self.tokenizer_signature = f"moses-{language}+dashes-{dashes}+unescaped+sacremoses-{version('sacremoses')}"

    def _preprocess_segment(self, sent: str) -> str:
        """The tokens of a line. Case decides whether a full stop ends a sentence, so it goes afterwards."""
        tokens = self._moses.tokenize(sent, aggressive_dash_splits=self._dash_splits, escape=False, return_str=True)
        return str(tokens).lower()


@METRICS.register("bleu_moses_lc")
class BleuMosesLowercase(SacrebleuMetric):
    """Case-insensitive BLEU on Moses tokens: `bleu_tok_lc` after `tokenizer.perl` on both sides.

    Published tables of WMT14 English-German score with multi-bleu.perl what tokenizer.perl has made of both sides.
    Their text is the one that Stanford NMT offers (Zero's docs/usage names it), in which `tokenizer.perl -a` has
    split words at hyphens. Here sacremoses, its port to Python, does the same. Special characters are not
    escaped (`-no-escape`): an entity in place of a character, in the same token on both sides, matches alike.
    Text that is already tokenised is for `bleu_tok_lc`.
    """

    name = "bleu_moses_lc"
    label = "bleu_moses_lc"
    finds_words_by_spaces = True

    @dataclass(frozen=True, kw_only=True)
    class Options:
        language: str | None = None
        """Language of the text; default: the model's, else `de`. One that Moses lacks has English abbreviations."""
        dash_splits: bool = True
        """Split words at hyphens, as `tokenizer.perl -a` does."""

    def __init__(self, *, options: Any = None) -> None:
        super().__init__(options=options)
        try:
            import sacremoses  # noqa: F401
        except ImportError as error:
            raise ConfigError("sacremoses is not installed; pip install 'nmt-recurrent[moses]'") from error

    def scorer(self) -> MosesBleu:
        return MosesBleu(self.options.language or DEFAULT_LANGUAGE, dash_splits=self.options.dash_splits)
