"""Report of an encoded corpus: pairs kept, skipped and cut, unknown tokens."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from nmt.errors import counted

_EXAMPLES = 5


@dataclass(frozen=True, kw_only=True)
class CorpusReport:
    """Counts of pairs and tokens. Token counts are of kept pairs, end symbols not included."""

    read: int = 0
    """Line pairs read."""
    kept: int = 0
    """Pairs in the corpus."""
    empty: int = 0
    """Pairs with an empty side; skipped in training text, kept elsewhere."""
    too_long: int = 0
    """Pairs left out because a side is longer than data.max_length."""
    truncated: int = 0
    """Pairs of which a side was cut to data.max_length."""
    source_tokens: int = 0
    target_tokens: int = 0
    source_unknown: int = 0
    """Source tokens that are not in the vocabulary."""
    target_unknown: int = 0
    """Target tokens that are not in the vocabulary."""
    empty_examples: tuple[str, ...] = ()
    """File and line of the first few empty sides."""
    too_long_examples: tuple[str, ...] = ()
    """File and line of the first few sentences that are too long."""
    several: int = 0
    """Source lines read that have several sentences."""
    looked_at: int = 0
    """Source lines of which that is known: none, where encoded by versions before 0.3.0 or without a C compiler."""

    source_unspelled: int = 0
    """Source lines read that the vocabulary cannot spell: it makes other text of them."""
    target_unspelled: int = 0
    source_unspelled_examples: tuple[str, ...] = ()
    """File, line, and which text becomes which other, of the first few."""
    target_unspelled_examples: tuple[str, ...] = ()

    def __add__(self, other: CorpusReport) -> CorpusReport:
        """The report of both parts; `other` comes later in the text."""
        values: dict[str, Any] = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        for name in (name for name in values if name.endswith("_examples")):
            values[name] = values[name][:_EXAMPLES]
        return CorpusReport(**values)

    @property
    def source_unknown_share(self) -> float:
        """Share of the source tokens that are unknown, in 0..1."""
        return self.source_unknown / max(1, self.source_tokens)

    @property
    def target_unknown_share(self) -> float:
        """Share of the target tokens that are unknown, in 0..1."""
        return self.target_unknown / max(1, self.target_tokens)

    @property
    def several_share(self) -> float | None:
        """Share of the source lines that have several sentences; None where that is not known."""
        return self.several / self.looked_at if self.looked_at else None

    def lines(self, name: str) -> list[str]:
        """The report for people; `name` says which corpus it is."""
        dropped = self.read - self.kept
        first = f"{name}: {counted(self.read, 'pair')} read, {self.kept:,} kept"
        if self.empty:
            fate = "skipped" if dropped else "kept"
            first += f", {self.empty:,} with an empty side {fate} ({_examples(self.empty_examples, self.empty)})"
        if self.too_long:
            first += f", {self.too_long:,} too long dropped ({_examples(self.too_long_examples, self.too_long)})"
        if self.truncated:
            first += f", {self.truncated:,} too long truncated ({_examples(self.too_long_examples, self.truncated)})"
        return [
            first,
            f"{name}: {self.source_tokens:,} source tokens ({self.source_unknown_share:.2%} unknown), "
            f"{self.target_tokens:,} target tokens ({self.target_unknown_share:.2%} unknown)",
        ]

    def doubts(self, name: str) -> list[str]:
        """A warning for each side that has lines which the vocabulary cannot spell."""
        return [
            f"{name}: {counted(count, f'{side} line')} that the vocabulary cannot spell: {_examples(examples, count)}; "
            f"{advice}"
            for side, count, examples, advice in (
                (
                    "source",
                    self.source_unspelled,
                    self.source_unspelled_examples,
                    "the model reads other text (data.tokenizer_options.normalization)",
                ),
                (
                    "target",
                    self.target_unspelled,
                    self.target_unspelled_examples,
                    "no translation can contain this (data.tokenizer_options.normalization, byte_fallback)",
                ),
            )
            if count
        ]

    def to_json(self) -> dict[str, Any]:
        """The counts as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> CorpusReport:
        """Read back `to_json`."""
        restored: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return cls(**restored)


def _examples(examples: tuple[str, ...], count: int) -> str:
    return "; ".join(examples) + ("; ..." if count > len(examples) else "")
