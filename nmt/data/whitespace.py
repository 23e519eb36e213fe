"""Text that is already split into tokens by spaces, with vocabulary files (Zero, subword-nmt)."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from nmt.config.schema import FilePath
from nmt.data.text import read_lines
from nmt.data.tokenizer import Span, Tokenizer, given_or_text, on_one_line, printable_ids
from nmt.data.vocabulary import EOS, PAD, SPECIAL_TOKENS, Vocabulary
from nmt.errors import CheckpointError, DataError
from nmt.registry import TOKENIZERS

_TOKEN = re.compile(r"[^ \t]+")


@dataclass(frozen=True, kw_only=True)
class WhitespaceOptions:
    """Options of the `whitespace` tokenizer."""

    source_vocab: FilePath | None = None
    target_vocab: FilePath | None = None
    """Vocabularies, one token a line; by default made from the training text. With `joint` the first is for both sides,
    and the only one."""
    joint: bool = False
    """One vocabulary for both languages."""
    max_size: int | None = None
    min_count: int = 1
    """Largest vocabulary that is made, 3 special tokens included; rarer tokens are left out."""
    separator: str = "@@"
    """Mark at the end of a subword that continues in the next one, joined on output; empty: none."""

    def __post_init__(self) -> None:
        if self.min_count < 1:
            raise ValueError(f"min_count: {self.min_count} must be positive")
        if self.max_size is not None and self.max_size <= len(SPECIAL_TOKENS):
            raise ValueError(f"max_size: {self.max_size} leaves no room after the 3 special symbols")
        if self.joint and self.target_vocab is not None:
            raise ValueError("target_vocab: is not allowed with joint, where source_vocab serves both languages")

    @property
    def given(self) -> list[str | None]:
        """The file of the joint vocabulary, or those of source and target; None for one made from the text."""
        return [self.source_vocab] if self.joint else [self.source_vocab, self.target_vocab]


@TOKENIZERS.register("whitespace")
class WhitespaceTokenizer(Tokenizer):
    """Tokens are what spaces and tabs separate; no other character, no-break spaces included, splits."""

    Options = WhitespaceOptions
    splits_at_spaces = True

    def __init__(self, source: Vocabulary, target: Vocabulary, *, options: WhitespaceOptions) -> None:
        self.options = options
        self._source = source
        self._target = target
        self.source_size = len(source)
        self.target_size = len(target)

    def encode_source(self, lines: Sequence[str]) -> list[list[int]]:
        return [self._source.encode(split(line)) for line in lines]

    def encode_target(self, lines: Sequence[str]) -> list[list[int]]:
        return [self._target.encode(split(line)) for line in lines]

    def decode_source(self, ids: Sequence[int]) -> str:
        return self._join(self._source, ids)

    def decode_target(self, ids: Sequence[int]) -> str:
        return self._join(self._target, ids)

    def joined_target(self, line: str) -> str:
        separator, tokens = self.options.separator, split(line)
        if not separator or not any(token.endswith(separator) for token in tokens):
            return line
        return self._without_marks(" ".join(tokens))

    def source_tokens(self, ids: Sequence[int]) -> list[str]:
        return [self._source.tokens[i] for i in ids]

    def target_tokens(self, ids: Sequence[int]) -> list[str]:
        return [self._target.tokens[i] for i in ids]

    def target_pieces(self) -> list[bytes]:
        separator = self.options.separator
        return [
            (token.removesuffix(separator) if separator and token.endswith(separator) else f"{token} ").encode()
            if i not in (PAD, EOS)
            else b""
            for i, token in enumerate(self._target.tokens)
        ]

    def source_spans(self, line: str) -> list[Span]:
        return [match.span() for match in _TOKEN.finditer(line)]

    def target_spans(self, ids: Sequence[int]) -> tuple[str, list[Span]]:
        separator, text, spans = self.options.separator, "", []
        for place, token in enumerate(self.target_tokens(ids)):
            is_open = bool(separator) and token.endswith(separator)
            spans.append((len(text), len(text) + len(token) - (len(separator) if is_open else 0)))
            text += token[: spans[-1][1] - spans[-1][0]]
            if not is_open and place + 1 < len(ids):
                text += " "
        return on_one_line(text), spans

    def copied_source(self, line: str, span: Span, *, is_unknown: bool) -> str:
        """The word of which the subword at `span` is a part, known or not."""
        separator, spans = self.options.separator, self.source_spans(line)
        place = next((i for i, own in enumerate(spans) if own[1] > span[0]), None)
        if place is None or not separator:
            return line[slice(*span)]
        first = last = place
        while first and line[slice(*spans[first - 1])].endswith(separator):
            first -= 1
        while last + 1 < len(spans) and line[slice(*spans[last])].endswith(separator):
            last += 1
        return self._without_marks(" ".join(line[slice(*own)] for own in spans[first : last + 1]))

    def fingerprint(self) -> str:
        tokens = "".join("\n".join(vocabulary.tokens) + "\n\n" for vocabulary in (self._source, self._target))
        return f"whitespace:{hashlib.sha256(tokens.encode()).hexdigest()}"

    def save(self, folder: Path) -> None:
        for name, vocabulary in zip(_names(self.options), (self._source, self._target), strict=False):
            vocabulary.save(folder / name)

    @classmethod
    def load(cls, folder: Path, *, options: WhitespaceOptions) -> WhitespaceTokenizer:
        try:
            found = [Vocabulary.from_file(folder / name, within=folder) for name in _names(options)]
        except DataError as error:
            raise CheckpointError(f"the saved tokenizer cannot be used: {error}") from error
        return cls(found[0], found[-1], options=options)

    @classmethod
    def train(
        cls, source: Sequence[Path], target: Sequence[Path], *, options: WhitespaceOptions, seed: int
    ) -> WhitespaceTokenizer:
        made = []
        for file, text in zip(options.given, [[*source, *target]] if options.joint else [source, target], strict=True):
            if file is not None:
                made.append(Vocabulary.from_file(Path(file)))
                continue
            counts = Counter(chain.from_iterable(split(line) for path in text for line in read_lines(path)))
            made.append(Vocabulary.from_counts(counts, max_size=options.max_size, min_count=options.min_count))
        return cls(made[0], made[-1], options=options)

    @classmethod
    def inputs(cls, source: Sequence[Path], target: Sequence[Path], *, options: WhitespaceOptions) -> list[Path]:
        return given_or_text(options.given, source, target)

    @classmethod
    def symbol_problem(cls, symbol: str, *, options: WhitespaceOptions) -> str | None:
        if options.source_vocab is not None:
            return None
        return (
            "is not in vocabularies made from the text; give a vocabulary that has it: "
            "data.tokenizer_options.source_vocab"
        )

    @classmethod
    def planned_sizes(cls, *, options: WhitespaceOptions) -> tuple[int, int] | None:
        if None in options.given:
            return None
        sizes = [len(Vocabulary.from_file(Path(file))) for file in options.given if file is not None]
        return sizes[0], sizes[-1]

    def _join(self, vocabulary: Vocabulary, ids: Sequence[int]) -> str:
        return on_one_line(self._without_marks(" ".join(vocabulary.tokens[i] for i in printable_ids(ids))))

    def _without_marks(self, text: str) -> str:
        if separator := self.options.separator:
            # A sentence cut off inside a word leaves a mark with no token after it.
            text = text.replace(f"{separator} ", "").removesuffix(separator)
        return text


def split(line: str) -> list[str]:
    """The tokens of a line; str.split() would also split at no-break spaces and the like."""
    return [token for token in line.replace("\t", " ").split(" ") if token]


def _names(options: WhitespaceOptions) -> Sequence[str]:
    """Of the files that a tokenizer is saved in."""
    return ("joint.vocab",) if options.joint else ("source.vocab", "target.vocab")
