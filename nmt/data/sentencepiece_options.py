"""The options of the tokenizer `sentencepiece`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from nmt.config.paths import FilePath
from nmt.data.vocabulary import SPECIAL_TOKENS

WORD_BEGIN = "\u2581"
"""SentencePiece's symbol for a space."""
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
SAMPLING = {
    f"{side}{name}": limit
    for name, limit in {"bpe_dropout": ("bpe", 1.0), "unigram_alpha": ("unigram", 20.0)}.items()
    for side in ("", "source_", "target_")
}
"""Options of sampling: the kind of model they are for, and their largest values."""


@dataclass(frozen=True, kw_only=True)
class SentencePieceOptions:
    """Options of the `sentencepiece` tokenizer."""

    model_type: Literal["bpe", "unigram"] = "bpe"
    """Algorithm: byte-pair merges, or a unigram language model."""
    vocab_size: int = 8000
    """Number of pieces of a vocabulary, including the 3 special ones and the 256 byte pieces."""
    joint: bool = True
    """One model for both languages; otherwise one model for each."""
    byte_fallback: bool = True
    """Characters outside the vocabulary become byte pieces instead of the unknown symbol."""
    character_coverage: float = 1.0
    """Share of the characters of the training text that get their own piece."""
    normalization: Literal["nfc", "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"] | None = None
    """Unicode normalisation before splitting. `nfc` keeps all text, but composes letters and marks; `nmt_nfkc` also
    replaces `²`, `½`, `…`, full-width letters and the like by others and removes some characters, which no translation
    can then contain; `_cf` also folds case, `identity` leaves text unchanged. Default: `nmt_nfkc` for the source of
    separate vocabularies, `nfc` for the target and for a joint one; models of versions before 0.3.0 keep `nmt_nfkc`."""
    sample_size: int | None = 1_000_000
    """Number of lines of each language, drawn by `seed`, from which the model is trained; null takes all (and much
    memory)."""
    symbols: list[str] = field(default_factory=list)
    """Pieces that the vocabulary always has, such as `data.monolingual_tag`."""
    source_model: FilePath | None = None
    """SentencePiece model to use instead of training one; with `joint` it serves both languages."""
    target_model: FilePath | None = None
    """The same for the target language; only without `joint`."""
    bpe_dropout: float = 0.0
    """For `bpe`: probability of skipping each possible merge when training text is split again in each epoch (Provilkov
    et al., ACL 2020); usually 0.1, or 0.6 if words are not separated by spaces; 0 is off. Text in translation and
    validation is split without dropout."""
    source_bpe_dropout: float | None = None
    """The same for the source language; `null`: `bpe_dropout`."""
    target_bpe_dropout: float | None = None
    """The same for the target language; `null`: `bpe_dropout`."""
    unigram_alpha: float | None = None
    """For `unigram`: in each epoch, the split of training text is drawn with probability proportional to P^alpha
    (subword regularisation, Kudo, ACL 2018); usually 0.1 to 0.5, smaller values give more variety. `null` is off."""
    source_unigram_alpha: float | None = None
    """The same for the source language; `null`: `unigram_alpha`."""
    target_unigram_alpha: float | None = None
    """The same for the target language; `null`: `unigram_alpha`."""

    def __post_init__(self) -> None:
        reserved = len(SPECIAL_TOKENS) + len(self.symbols)
        if self.vocab_size <= reserved:
            own = f" and {len(self.symbols)} of symbols" if self.symbols else ""
            raise ValueError(f"vocab_size: {self.vocab_size} leaves no room after the 3 special symbols{own}")
        if not 0 < self.character_coverage <= 1:
            raise ValueError(f"character_coverage: {self.character_coverage} must be above 0 and at most 1")
        if self.sample_size is not None and self.sample_size < 1:
            raise ValueError(f"sample_size: {self.sample_size} must be positive")
        if self.joint and self.target_model is not None:
            raise ValueError("target_model: is not allowed with joint, where source_model serves both languages")
        self._check_symbols()
        self._check_sampling()

    def _check_symbols(self) -> None:
        for place, symbol in enumerate(self.symbols):
            if not symbol or symbol != "".join(symbol.split()) or WORD_BEGIN in symbol:
                raise ValueError(f"symbols: {symbol!r} must be text without white space")
            if symbol in SPECIAL_TOKENS or _BYTE.fullmatch(symbol):
                raise ValueError(f"symbols: {symbol!r} is a piece of every vocabulary already")
            if symbol in self.symbols[:place]:
                raise ValueError(f"symbols: {symbol!r} is given twice")
        given = (self.source_model, self.target_model)
        if self.symbols and (self.source_model if self.joint else any(given)):
            raise ValueError("symbols: has no effect with a given model, whose pieces are fixed")

    def _check_sampling(self) -> None:
        for name, (kind, most) in SAMPLING.items():
            value = getattr(self, name)
            if value is not None and not 0 <= value <= most:
                raise ValueError(f"{name}: {value} must be between 0 and {most:g}")
            if value is not None and (value or kind == "unigram") and self.model_type != kind:
                raise ValueError(f"{name}: is for model_type: {kind}, not {self.model_type}")

    def rule_of(self, side: str) -> str:
        """The normalisation of a side; of a joint model that of the target."""
        return self.normalization or ("nmt_nfkc" if side == "source" and not self.joint else "nfc")

    def of_side(self, side: str, name: Literal["bpe_dropout", "unigram_alpha"]) -> float | None:
        """An option that each side may set separately."""
        own: float | None = getattr(self, f"{side}_{name}")
        both: float | None = getattr(self, name)
        return both if own is None else own
