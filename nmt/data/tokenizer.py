"""What every tokenizer offers: text to ids, ids to text, saving, loading and training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from nmt.data.vocabulary import EOS, PAD


class Tokenizer(ABC):
    """Base of the members of TOKENIZERS. One object serves both languages.

    Ids are below `source_size` or `target_size`, PAD, UNK and EOS are 0, 1 and 2, and no end symbol
    is added or expected. `Options` is a frozen dataclass, the sub-keys of data.tokenizer_options.
    Tokenizers travel to worker processes, so they must pickle.
    """

    Options: ClassVar[type]

    source_size: int
    """Entries of the source vocabulary, special symbols included."""
    target_size: int
    """Entries of the target vocabulary."""

    @abstractmethod
    def encode_source(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each source line."""

    @abstractmethod
    def encode_target(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each target line."""

    @abstractmethod
    def decode_source(self, ids: Sequence[int]) -> str:
        """Detokenised text of source ids, on one line."""

    @abstractmethod
    def decode_target(self, ids: Sequence[int]) -> str:
        """Detokenised text of target ids, on one line."""

    def joined_target(self, line: str) -> str:
        """A line of target text, as the tokenizer takes it, written as a translation is: subwords joined to words.

        By default the line itself, for tokenizers of raw text.
        """
        return line

    @abstractmethod
    def source_tokens(self, ids: Sequence[int]) -> list[str]:
        """The name of each source id, as the vocabulary has it."""

    @abstractmethod
    def target_tokens(self, ids: Sequence[int]) -> list[str]:
        """The name of each target id, as the vocabulary has it."""

    def target_pieces(self) -> list[bytes] | None:
        """What each target id adds to a text, in UTF-8; the pieces of a translation make its text, but that spaces at
        its ends go and several between words are one.

        By default None, not known: then a phrase cannot be forbidden.
        """
        return None

    @abstractmethod
    def fingerprint(self) -> str:
        """A digest of everything that decides ids; equal digests mean equal encodings."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write all that `load` needs into `folder`, which exists."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, *, options: Any) -> Tokenizer:
        """Read what `save` wrote; no file named in the options is needed any more.

        Raises CheckpointError naming the file that is missing or damaged.
        """

    @classmethod
    @abstractmethod
    def train(cls, source: Sequence[Path], target: Sequence[Path], *, options: Any, seed: int) -> Tokenizer:
        """Make a tokenizer from given model or vocabulary files, else from the training text.

        `source` and `target` are the training files; the result depends on nothing but the
        arguments and the files' contents. Raises DataError or ConfigError.
        """

    @classmethod
    def inputs(cls, source: Sequence[Path], target: Sequence[Path], *, options: Any) -> list[Path]:
        """The files whose contents decide what `train` makes; by default all the training text."""
        return [*source, *target]

    @classmethod
    def planned_sizes(cls, *, options: Any) -> tuple[int, int] | None:
        """(source, target) sizes as far as the options alone tell them, before there is any data."""
        return None


def printable_ids(ids: Sequence[int]) -> list[int]:
    """`ids` without padding and end symbols, which have no text."""
    return [int(i) for i in ids if i not in (PAD, EOS)]


def on_one_line(text: str) -> str:
    r"""`text` with "\n" and "\r", which byte pieces can spell, as spaces: a translation is one line."""
    return text.replace("\n", " ").replace("\r", " ")
