"""Sentences with labels as ids: what a tagger reads of them, and the tokenizers of both tasks."""

from __future__ import annotations

import hashlib
import json
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.data.corpus import FlatSentences, Part, Rows, flat
from nmt.data.sampler import mixed
from nmt.data.text import read_lines
from nmt.data.tokenizer import Tokenizer, printable_ids
from nmt.data.vocabulary import EOS, PAD, SPECIAL_TOKENS, UNK, Vocabulary
from nmt.data.whitespace import split
from nmt.errors import CheckpointError, DataError
from nmt.files import LARGEST_RECORD, read_inside
from nmt.registry import TOKENIZERS
from nmt.tagging.labels import (
    LABELS,
    OUTSIDE,
    SCHEMES,
    Columns,
    Scheme,
    Span,
    found_scheme,
    labelled,
    labels_of,
    misplaced,
    parts,
    read_columns,
    spans,
    word_spans,
    words_of,
)

LONGEST_SPELLING = 64
"""Characters of a word that are read: of a longer one half of them from its beginning and half from its end."""


@dataclass(frozen=True)
class Features:
    """Sentences of tokens as ids; all members but `letters` have the same lengths."""

    words: FlatSentences
    forms: FlatSentences | None = None
    """Of each word its row in `letters`; 0 is none."""
    letters: FlatSentences | None = None
    """The characters of each different word; row 0 is empty."""
    bigrams: FlatSentences | None = None
    """Of each character the pair that it makes with the next one; EOS of the last."""

    @property
    def lengths(self) -> NDArray[np.int32]:
        """[N]"""
        return self.words.lengths

    @property
    def unknown(self) -> int:
        """Tokens that the vocabulary lacks."""
        return int((self.words.ids == UNK).sum())


def spelled(sentences: Sequence[Sequence[str]], characters: Vocabulary) -> tuple[FlatSentences, FlatSentences]:
    """`Features.forms` and `Features.letters` of sentences of words."""
    rows: dict[str, int] = {"": 0}
    forms = flat([rows.setdefault(word, len(rows)) for word in sentence] for sentence in sentences)
    return forms, flat(characters.encode(_shown(word)) for word in rows)


def _shown(word: str) -> str:
    half = LONGEST_SPELLING // 2
    return word if len(word) <= LONGEST_SPELLING else word[:half] + word[-half:]


@dataclass(frozen=True)
class TaggedCorpus:
    """Features of sentences with their labels; what batches are made of (`nmt.data.batching.Pairs`)."""

    features: Features
    labels: FlatSentences

    def __len__(self) -> int:
        return len(self.labels.lengths)

    @cached_property
    def key(self) -> str:
        """Digest of tokens and labels."""
        digest = hashlib.sha256()
        known = (self.features.words, self.features.forms, self.features.letters, self.features.bigrams, self.labels)
        for part in known:
            if part is not None:
                digest.update(part.lengths.tobytes() + b"\n" + part.ids.tobytes() + b"\n")
        return digest.hexdigest()

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        """[N]"""
        return self.features.lengths

    @property
    def target_lengths(self) -> NDArray[np.int32]:
        """[N], the same."""
        return self.labels.lengths

    @property
    def parts(self) -> Sequence[Part]:
        """One."""
        return (Part(len(self), int(self.labels.lengths.sum())),)

    def lengths(self, rows: Rows) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Of sentences `rows` [B]: [B] each."""
        return self.source_lengths[rows], self.target_lengths[rows]

    def padded_source(self, rows: Rows) -> NDArray[np.int64]:
        """Ids of the tokens of sentences `rows` [B], PAD at the right: [B, T]."""
        return self.features.words.padded(rows)

    def padded_target(self, rows: Rows) -> NDArray[np.int64]:
        """Ids of the labels of sentences `rows` [B], PAD at the right: [B, T]."""
        return self.labels.padded(rows)

    @cached_property
    def once(self) -> NDArray[np.bool_]:
        """Which ids of tokens come once in the whole corpus."""
        return np.bincount(self.features.words.ids, minlength=1) == 1

    def with_unknown(self, rows: Rows, *, share: float, seed: int, epoch: int) -> NDArray[np.int64]:
        """`padded_source`, but of the tokens that come once about `share` are UNK.

        Which ones is a function of the seed, the epoch and the place in the corpus.
        """
        words = self.padded_source(rows)
        chosen = self.once[words] & (words != PAD)
        if not chosen.any() or share == 0:
            return words
        key = hashlib.blake2b(repr(("unknown", seed, epoch)).encode(), digest_size=8).digest()
        places = self.features.words.offsets[rows][:, None] + np.arange(words.shape[1])
        drawn = mixed(mixed(places.astype(np.uint64)) ^ np.frombuffer(key, "<u8")[0])
        words[chosen & (drawn.astype(np.float64) < share * 2.0**64)] = UNK
        return words


_WORDS, _LABELS, _FURTHER, _SCHEME = "words.vocab", "labels.vocab", "further.vocab", "scheme.txt"
_DIGIT = re.compile(r"\d")
_ONCE = 2
"""Rarer characters of words are unknown, so that unknown characters are learned."""


class Labelled(NamedTuple):
    """A sentence: tokens, which are words or characters, and the labels that are trained."""

    tokens: Sequence[str]
    labels: Sequence[str]


class TaggingTokenizer(Tokenizer):
    """Tokens and their labels, each with a vocabulary, and a third one of what else is known of a token."""

    task: ClassVar[str]

    def __init__(self, tokens: Vocabulary, labels: Vocabulary, further: Vocabulary | None, *, options: Any) -> None:
        """`further`: the characters of words, or pairs of characters."""
        self.options = options
        self.tokens, self.labels, self.further = tokens, labels, further
        self.source_size, self.target_size = len(tokens), len(labels)

    @staticmethod
    @abstractmethod
    def split(line: str) -> list[str]:
        """The tokens of a line of text without labels."""

    @abstractmethod
    def normalized(self, tokens: Sequence[str]) -> list[str]:
        """Tokens as the vocabulary has them."""

    @abstractmethod
    def read(self, file: Path) -> list[Labelled]:
        """The sentences of a file with labels; DataError names file and line of what is malformed."""

    @abstractmethod
    def spans(self, labels: Sequence[str]) -> list[Span]:
        """What labels that are trained or predicted, in any sequence, say."""

    @abstractmethod
    def features(self, sentences: Sequence[Sequence[str]]) -> Features:
        """All that a model reads of sentences of tokens."""

    def encode_source(self, lines: Sequence[str]) -> list[list[int]]:
        return [self.tokens.encode(self.normalized(self.split(line))) for line in lines]

    def encode_target(self, lines: Sequence[str]) -> list[list[int]]:
        return [self.labels.encode(split(line)) for line in lines]

    def decode_source(self, ids: Sequence[int]) -> str:
        return " ".join(self.source_tokens(printable_ids(ids)))

    def decode_target(self, ids: Sequence[int]) -> str:
        return " ".join(self.target_tokens(printable_ids(ids)))

    def source_tokens(self, ids: Sequence[int]) -> list[str]:
        return [self.tokens.tokens[i] for i in ids]

    def target_tokens(self, ids: Sequence[int]) -> list[str]:
        return [self.labels.tokens[i] for i in ids]

    def _settings(self) -> Mapping[str, Any]:
        """What else decides ids."""
        return {}

    def fingerprint(self) -> str:
        known = [None if one is None else one.tokens for one in (self.tokens, self.labels, self.further)]
        text = json.dumps([known, self._settings()], sort_keys=True)
        return f"{self.task}:{hashlib.sha256(text.encode()).hexdigest()}"

    def save(self, folder: Path) -> None:
        self.tokens.save(folder / _WORDS)
        self.labels.save(folder / _LABELS)
        if self.further is not None:
            self.further.save(folder / _FURTHER)


def _load(folder: Path, *names: str) -> list[Vocabulary]:
    try:
        return [Vocabulary.from_file(folder / name, within=folder) for name in names]
    except DataError as error:
        raise CheckpointError(f"the saved tokenizer cannot be used: {error}") from error


def _counted(
    counts: Mapping[str, int], *, what: str, files: Sequence[Path], max_size: int | None = None, min_count: int = 1
) -> Vocabulary:
    found = Vocabulary.from_counts(counts, max_size=max_size, min_count=min_count)
    if len(found) == len(SPECIAL_TOKENS):
        often = f" {min_count} times" if min_count > 1 else ""
        raise DataError(f"{', '.join(map(str, files))}: no {what} comes{often} in it")
    return found


def _check_sizes(max_size: int | None, **min_counts: int) -> None:
    for name, count in min_counts.items():
        if count < 1:
            raise ValueError(f"{name}: {count} must be positive")
    if max_size is not None and max_size <= len(SPECIAL_TOKENS):
        raise ValueError(f"max_size: {max_size} leaves no room after the 3 special symbols")


@dataclass(frozen=True, kw_only=True)
class TaggedWordsOptions:
    """Options of the `tagged_words` tokenizer, for the task `tagging`: text in columns, an empty line after each
    sentence."""

    word_column: int = 1
    label_column: int = -1
    """Columns of the words and of the labels, from 1; -1 is the last."""
    scheme: Literal["iob1", "iob2", "bioes"] | None = None
    """Scheme of the labels: `iob1`, `iob2` or `bioes`; `null`: detected."""
    lowercase: bool = True
    """Words are lower-cased in the vocabulary; their characters are not."""
    zero_digits: bool = True
    """All digits are replaced by 0 in the vocabulary of words."""
    max_size: int | None = None
    min_count: int = 1
    """Largest vocabulary of words; rarer ones are left out."""

    def __post_init__(self) -> None:
        _check_sizes(self.max_size, min_count=self.min_count)
        for name in ("word_column", "label_column"):
            if getattr(self, name) == 0:
                raise ValueError(f"{name}: columns are counted from 1, or from the end with -1")
        if self.word_column == self.label_column:
            raise ValueError(f"label_column: {self.label_column} is the column of the words")

    @property
    def columns(self) -> Columns:
        """Both columns."""
        return Columns(self.word_column, self.label_column)

    def normalized(self, words: Iterable[str]) -> list[str]:
        """Words as the vocabulary has them."""
        if self.lowercase:
            words = (word.lower() for word in words)
        return [_DIGIT.sub("0", word) for word in words] if self.zero_digits else list(words)


@TOKENIZERS.register("tagged_words")
class TaggedWords(TaggingTokenizer):
    """Words of text in columns, their characters, and labels that are trained as BIOES."""

    Options = TaggedWordsOptions
    task = "tagging"
    splits_at_spaces = True
    further: Vocabulary

    @property
    def further_sizes(self) -> tuple[int, int]:
        return len(self.further), 0

    def __init__(
        self,
        tokens: Vocabulary,
        labels: Vocabulary,
        characters: Vocabulary,
        *,
        scheme: Scheme,
        options: TaggedWordsOptions,
    ) -> None:
        super().__init__(tokens, labels, characters, options=options)
        self.scheme: Scheme = scheme

    split = staticmethod(split)

    def normalized(self, tokens: Sequence[str]) -> list[str]:
        return list(self.options.normalized(tokens))

    def read(self, file: Path) -> list[Labelled]:
        return _read(file, self.options.columns, self.scheme)

    def spans(self, labels: Sequence[str]) -> list[Span]:
        return spans(labels)

    def written(self, labels: Sequence[str]) -> list[str]:
        """Predicted labels in the scheme of the training text, which have the same spans."""
        return labelled(spans(labels), length=len(labels), scheme=self.scheme)

    def features(self, sentences: Sequence[Sequence[str]]) -> Features:
        words = flat(self.tokens.encode(self.normalized(sentence)) for sentence in sentences)
        forms, letters = spelled(sentences, self.further)
        return Features(words, forms=forms, letters=letters)

    def _settings(self) -> Mapping[str, Any]:
        options = self.options
        return {"scheme": self.scheme, "lowercase": options.lowercase, "zero_digits": options.zero_digits}

    def save(self, folder: Path) -> None:
        super().save(folder)
        (folder / _SCHEME).write_text(f"{self.scheme}\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, *, options: TaggedWordsOptions) -> TaggedWords:
        words, labels, characters = _load(folder, _WORDS, _LABELS, _FURTHER)
        try:
            name = read_inside(folder / _SCHEME, within=folder, largest=LARGEST_RECORD).decode("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{folder / _SCHEME}: cannot be used ({error})") from error
        if name not in SCHEMES:
            raise CheckpointError(f"{folder / _SCHEME}: not a scheme of labels. Allowed: {', '.join(SCHEMES)}.")
        return cls(words, labels, characters, scheme=name, options=options)

    @classmethod
    def train(
        cls, source: Sequence[Path], target: Sequence[Path], *, options: TaggedWordsOptions, seed: int
    ) -> TaggedWords:
        scheme = options.scheme or found_scheme(
            sentence.labels for file in target for sentence in read_columns(file, options.columns)
        )
        words, letters, kinds = Counter[str](), Counter[str](), Counter[str]()
        for file in target:
            for sentence in _read(file, options.columns, scheme):
                words.update(options.normalized(sentence.tokens))
                letters.update("".join(sentence.tokens))
                kinds.update(span.kind for span in spans(sentence.labels))
        ordered = sorted(kinds, key=lambda kind: (-kinds[kind], kind))
        return cls(
            _counted(words, what="word", files=target, max_size=options.max_size, min_count=options.min_count),
            # All four of each kind, also those that no sentence has.
            Vocabulary([OUTSIDE, *(f"{prefix}-{kind}" for kind in ordered for prefix in "BIES")]),
            _counted(letters, what="character", files=target, min_count=_ONCE),
            scheme=scheme,
            options=options,
        )


def _read(file: Path, columns: Columns, scheme: Scheme) -> list[Labelled]:
    """The sentences of a file, in BIOES."""
    found = []
    for words, labels, first in read_columns(file, columns):
        place = misplaced(labels, scheme)
        if place is not None:
            kind = parts(labels[place])[1]
            right = labelled(spans(labels), length=len(labels), scheme=scheme)[place]
            raise DataError(
                f"{file}, line {first + place}: {labels[place]} is wrong here in {scheme.upper()}, which has {right} "
                f"for this span of {kind}; data.tokenizer_options.scheme sets the scheme of all files"
            )
        found.append(Labelled(words, labelled(spans(labels), length=len(labels), scheme="bioes")))
    return found


@dataclass(frozen=True, kw_only=True)
class TaggedCharactersOptions:
    """Options of the `tagged_characters` tokenizer, for the task `segmentation`: text with spaces between words."""

    max_size: int | None = None
    min_count: int = 1
    """Largest vocabulary of characters; rarer ones are left out."""
    bigrams: bool = False
    bigram_min_count: int = 2
    """Also make a vocabulary of pairs of neighbouring characters, which the model reads; rarer ones are unknown."""

    def __post_init__(self) -> None:
        _check_sizes(self.max_size, min_count=self.min_count, bigram_min_count=self.bigram_min_count)
        if not self.bigrams and self.bigram_min_count != TaggedCharactersOptions.bigram_min_count:
            raise ValueError("bigram_min_count: has no effect without bigrams: true")


@TOKENIZERS.register("tagged_characters")
class TaggedCharacters(TaggingTokenizer):
    """Characters of text with spaces between words; the labels B, M, E and S say where words begin and end."""

    Options = TaggedCharactersOptions
    task = "segmentation"

    @property
    def further_sizes(self) -> tuple[int, int]:
        return 0, 0 if self.further is None else len(self.further)

    @staticmethod
    def split(line: str) -> list[str]:
        return [character for word in words_of(line) for character in word]

    def normalized(self, tokens: Sequence[str]) -> list[str]:
        return list(tokens)

    def read(self, file: Path) -> list[Labelled]:
        words = map(words_of, read_lines(file))
        return [Labelled([character for word in line for character in word], labels_of(line)) for line in words]

    def spans(self, labels: Sequence[str]) -> list[Span]:
        return word_spans(labels)

    def features(self, sentences: Sequence[Sequence[str]]) -> Features:
        bigrams = None
        if self.further is not None:
            pairs = self.further
            bigrams = flat([*pairs.encode(_pairs(own)), EOS][: len(own)] for own in sentences)
        return Features(flat(map(self.tokens.encode, sentences)), bigrams=bigrams)

    @classmethod
    def load(cls, folder: Path, *, options: TaggedCharactersOptions) -> TaggedCharacters:
        characters, labels, *pairs = _load(folder, _WORDS, _LABELS, *([_FURTHER] if options.bigrams else []))
        return cls(characters, labels, pairs[0] if pairs else None, options=options)

    @classmethod
    def train(
        cls, source: Sequence[Path], target: Sequence[Path], *, options: TaggedCharactersOptions, seed: int
    ) -> TaggedCharacters:
        characters, pairs = Counter[str](), Counter[str]()
        for file in target:
            for line in read_lines(file):
                own = cls.split(line)
                characters.update(own)
                if options.bigrams:
                    pairs.update(_pairs(own))
        tokens = _counted(
            characters, what="character", files=target, max_size=options.max_size, min_count=options.min_count
        )
        further = None
        if options.bigrams:
            further = _counted(pairs, what="pair of characters", files=target, min_count=options.bigram_min_count)
        return cls(tokens, Vocabulary(LABELS), further, options=options)


def _pairs(characters: Sequence[str]) -> list[str]:
    """Each character with the next."""
    return [first + second for first, second in zip(characters, characters[1:], strict=False)]
