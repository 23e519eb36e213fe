"""The interface of tokenizers: text to ids and back, where in a text each token stands, saving, loading, training."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from nmt.data.vocabulary import EOS, PAD
from nmt.errors import DataError, SettingError, shown
from nmt.light import options

if TYPE_CHECKING:
    from nmt.ops.subwords import Splitter

Span = tuple[int, int]
"""Begin and end, in characters."""

_WORD = re.compile(r"\S+")


class Sides(NamedTuple):
    """How each side is split again; None: it stays unchanged."""

    source: Splitter | None = None
    target: Splitter | None = None
    changed: Any = None
    """How text is changed before that: a member of `AUGMENTERS`."""


class Tokenizer(ABC):
    """Base of the members of TOKENIZERS. One object serves both languages.

    Ids are below `source_size` or `target_size`, PAD, UNK and EOS are 0, 1 and 2, and no end symbol
    is added or expected. `Options` is a frozen dataclass, the sub-keys of data.tokenizer_options.
    Tokenizers travel to worker processes, so they must pickle.
    """

    Options: ClassVar[type]

    task: ClassVar[str | None] = None
    """The only task that can use it; None: any task that reads text."""

    splits_at_spaces: ClassVar[bool] = False
    """Whether words are known by the spaces around them alone, so that a comma beside a word hides it."""

    sampling_options: ClassVar[frozenset[str]] = frozenset()
    """Names of the options that affect only how training text is split in each epoch, not the tokenizer itself."""

    source_size: int
    """Entries of the source vocabulary, special symbols included."""
    target_size: int
    """Entries of the target vocabulary."""

    @property
    def further_sizes(self) -> Sequence[int]:
        """Entries of other vocabularies that a model is built for, 0 for one that is not there; by default none."""
        return ()

    @abstractmethod
    def encode_source(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each source line."""

    @abstractmethod
    def encode_target(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each target line."""

    def encode_inside(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of target texts that stand inside a line; by default as of lines."""
        return self.encode_target(lines)

    def spelled(self, text: str) -> str:
        """A target text as its pieces spell it, of which some may say how others are written; by default as it is."""
        return text

    def source_form(self, text: str) -> str:
        """A source text as it is read, that is, normalised; by default as it is."""
        return text

    def rule_of(self, side: str) -> str:
        """How text of `source` or `target` is normalised, in words; by default it is not."""
        return "none"

    @abstractmethod
    def decode_source(self, ids: Sequence[int]) -> str:
        """Detokenised text of source ids, on one line."""

    @abstractmethod
    def decode_target(self, ids: Sequence[int]) -> str:
        """Detokenised text of target ids, on one line."""

    def joined_target(self, line: str) -> str:
        """A line of target text as a translation has it: subwords joined to words; by default, raw text as it is."""
        return line

    @abstractmethod
    def source_tokens(self, ids: Sequence[int]) -> list[str]:
        """The name of each source id in the vocabulary."""

    @abstractmethod
    def target_tokens(self, ids: Sequence[int]) -> list[str]:
        """The name of each target id in the vocabulary."""

    def source_symbol(self, symbol: str) -> int | None:
        """The source id whose name is `symbol`; None if there is none, so that text would be split otherwise."""
        names = self.source_tokens(range(self.source_size))
        return names.index(symbol) if symbol in names else None

    def languages(self) -> dict[str, int]:
        """The source tokens `>>CODE<<` that say into which language is translated, by their codes; by default none."""
        return {}

    def read_sources(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of source lines as a model reads them: where it has several languages, each begins with one, `>>de<<`.

        Raises DataError, which shows the line, for one without, and for an unknown one.
        """
        if not (languages := self.languages()):
            return self.encode_source(lines)
        tags = [LANGUAGE.match(line) for line in lines]
        found = self.encode_source([line[tag.end() :] if tag else line for line, tag in zip(lines, tags, strict=True)])
        for ids, line, tag in zip(found, lines, tags, strict=True):
            try:
                ids[:0] = [language_token(languages, tag and tag[1])] if line.strip() else []
            except SettingError as error:
                raise DataError(f"{shown(line)} must begin with its target language: {error.problems[0][1]}") from None
        return found

    def target_pieces(self) -> list[bytes] | None:
        """What each target id adds to a text, in UTF-8; the pieces of a translation make its text, but that spaces at
        its ends go and several between words are one. By default None, not known: then no phrase can be forbidden."""
        return None

    def unspelled(self, side: str, lines: Sequence[str]) -> Iterable[tuple[int, str]]:
        """Lines of a side of SIDES that no tokens spell, by their places, and what they become instead; runs of spaces
        do not count. By default none, not known."""
        return ()

    def source_spans(self, line: str) -> list[Span]:
        """Where in `line` the ids of `encode_source` stand; by default found by decoding, see `decoded_spans`."""
        (ids,) = self.encode_source([line])
        text, spans = decoded_spans(self.decode_source, ids)
        return moved_spans(spans, text=text, line=line)

    def target_spans(self, ids: Sequence[int]) -> tuple[str, list[Span]]:
        """The text of target ids, as from `decode_target`, and the span of each id in it, by default by decoding; no
        padding or end symbol."""
        return decoded_spans(self.decode_target, ids)

    def copied_source(self, line: str, span: Span, *, is_unknown: bool) -> str:
        """The replacement of an unknown word in a translation, from the source token at `span`.

        By default the token, if it is itself unknown, else the word that it is in, without punctuation around it.
        """
        if is_unknown:
            return line[slice(*span)].strip()
        return word_around(line, span)

    def sampling(self) -> Sides:
        """How each side of the training text is split again in each epoch, by the options; by default it is not.

        Raises ConfigError if the vocabulary does not allow it.
        """
        return Sides()

    @abstractmethod
    def fingerprint(self) -> str:
        """A digest of everything that decides ids; equal digests mean equal encodings."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write everything that `load` needs into `folder`, which exists."""

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
        """The files whose contents determine the result of `train`; by default all the training text."""
        return [*source, *target]

    @property
    def has_unknown(self) -> bool:
        """Whether a target text may have unknown words; else they are written in characters or bytes."""
        return True

    @classmethod
    def may_have_unknown(cls, *, options: Any) -> bool:
        """The same, as far as the options alone determine it."""
        return True

    @classmethod
    def symbol_problem(cls, symbol: str, *, options: Any) -> str | None:
        """Why `symbol` will not be one token of the source, as far as the options alone determine it; None if it may
        be."""
        return None

    @classmethod
    def planned_sizes(cls, *, options: Any) -> tuple[int, int] | None:
        """(source, target) sizes as far as the options alone determine them, before there is any data."""
        return None


LANGUAGE = re.compile(r"\s*>>([^<>\s]+)<<\s*")
"""What a source begins with that says into which language it is to be translated, such as `>>deu<<`."""


def language_token(languages: Mapping[str, int], code: str | None, domain: str | None = None) -> int:
    """The token of a language, and domain; SettingError, which says what is allowed, for those that there are not."""
    found = options.language_token(languages, code, domain)
    if isinstance(found, int):
        return found
    raise SettingError((f"decoding.{found[0]}", found[1]))


def given_or_text(given: Sequence[str | None], source: Sequence[Path], target: Sequence[Path]) -> list[Path]:
    """What a joint vocabulary, or those of source and target, are made of: the `given` file of each, else the text."""
    texts = [[*source, *target]] if len(given) == 1 else [source, target]
    return [path for file, text in zip(given, texts, strict=True) for path in ([Path(file)] if file else text)]


def printable_ids(ids: Sequence[int]) -> list[int]:
    """`ids` without padding and end symbols, which have no text."""
    return [int(i) for i in ids if i not in (PAD, EOS)]


def on_one_line(text: str) -> str:
    r"""`text` with "\n" and "\r", which byte pieces can spell, as spaces: a translation is one line."""
    return text.replace("\n", " ").replace("\r", " ")


def word_spans(text: str) -> list[Span]:
    """The words of a text: what whitespace separates."""
    return [match.span() for match in _WORD.finditer(text)]


def decoded_spans(decode: Callable[[Sequence[int]], str], ids: Sequence[int]) -> tuple[str, list[Span]]:
    """The text of `ids`, and the span that each id adds to it; an id that adds nothing has an empty span.

    Decodes each beginning of `ids`, so the time grows with the square of their number.
    """
    text = decode(ids)
    lengths = (min(len(decode(ids[:count])), len(text)) for count in range(1, len(ids) + 1))
    ends = list(accumulate(lengths, max))
    return text, list(zip([0, *ends], ends, strict=False))


def moved_spans(spans: Sequence[Span], *, text: str, line: str) -> list[Span]:
    """Spans of `text` as spans of `line`, of which `text` is a normalised form.

    If both have the same number of words, words correspond by position; otherwise positions are proportional.
    """
    if text == line:
        return list(spans)
    words, lines = word_spans(text), word_spans(line)
    if len(words) != len(lines) or not words:
        words, lines = [(0, len(text))], [(0, len(line))]

    def moved(place: int) -> int:
        index = next((i for i, (_, end) in enumerate(words) if place <= end), len(words) - 1)
        (begin, end), (first, last) = words[index], lines[index]
        return first + max(0, place - begin) * (last - first) // max(1, end - begin)

    return [(moved(begin), moved(end)) for begin, end in spans]


def word_around(text: str, span: Span) -> str:
    """The word around a span, which may begin with spaces; without punctuation at its ends if it has letters."""
    begin, end = span
    while begin + 1 < end and text[begin].isspace():
        begin += 1
    while begin and not text[begin - 1].isspace():
        begin -= 1
    while end < len(text) and not text[end].isspace():
        end += 1
    word = text[begin:end].strip()
    first = next((i for i, letter in enumerate(word) if letter.isalnum()), 0)
    last = next((i for i in reversed(range(len(word))) if word[i].isalnum()), len(word) - 1)
    return word[first : last + 1]
