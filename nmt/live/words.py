"""What counts as a word of live translation: what spaces separate and, in scripts without spaces, each character."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, cast

import torch
from torch import Tensor

from nmt.data.matching import UNSPACED
from nmt.data.sentencepiece import WORD_BEGIN
from nmt.data.tokenizer import Tokenizer
from nmt.data.vocabulary import EOS
from nmt.registry import CASES

WORD: Final = re.compile(rf"\s*(?:[{UNSPACED}]|[^\s{UNSPACED}]+)")
"""A word with the white space before it."""
SPACED_WORD: Final = re.compile(r"\s*\S+")
"""The same for vocabularies whose words are known by the spaces around them alone."""
CONTINUES: Final = re.compile(rf"[^\s{UNSPACED}]\Z")
"""The end of a text whose last word may continue; of one of spaced words see `SPACED_CONTINUES`."""
SPACED_CONTINUES: Final = re.compile(r"\S\Z")
_ENDS = (
    ".!?\u2026\u203c\u203d\u2047-\u2049\u0589\u061f\u06d4\u0964\u0965\u104b\u1362\u1367\u17d4\u17d5"
    "\u3002\uff01\uff0e\uff1f\uff61"
)
_CLOSES = (
    "\"')\\]}*\u00ab\u00bb\u2018\u2019\u201c\u201d\u2033\u2039\u203a\u3009\u300b\u300d\u300f\u3011\uff09\uff3d\uff63"
)
ENDING: Final = re.compile(rf" ?[{_ENDS}{_CLOSES}]+\Z")
"""What ends a sentence at the end of a text, as nmt/light/src/split.c has it: marks, closing quotes and brackets."""
IS_OVER: Final = re.compile(rf"[{_ENDS}][{_ENDS}{_CLOSES}]*\s*\Z")
"""The end of a text whose sentence is over."""
BEHIND_AN_END: Final = f"[{_ENDS}][,;:{_ENDS}]"
"""What no translation has behind the marks that ended it."""
_MOST_MARKS: Final = 3
"""Case marks before one word."""
_PROBE: Final = "Ab CD EF. g-h \U0010fffd \U0010fffd IJ k Lm No Pq, r St Uv Wx Yz 12 AB \u00e9, CD"
"""A line whose words a tokenizer splits alike one by one only if none depends on those beside it."""
_BETWEEN_SPACES: Final = re.compile("[^ ]+")


class Words(NamedTuple):
    """Where words begin among the tokens of one side, by their ids. The end symbol is a word of its own."""

    counts: Tensor
    """[V] int64, the words that begin in a token that continues a word: 0 inside a word, several for a piece of several
    characters of a script without spaces."""
    inside: Tensor
    """[V] bool, tokens that begin inside a word, if one can continue."""
    opens: Tensor
    """[V] bool, tokens whose word continues in the next one, which would begin one elsewhere, such as a lone space."""
    closes: Tensor
    """[V] bool, tokens that end with a character that is a word of its own."""
    marks: Tensor
    """[V] bool, case marks, which are parts of the words that follow them."""
    letters: Tensor
    """[V] bool, tokens that would make a longer word of the one before them, as a comma behind it does not."""
    endings: Tensor
    """[V] bool, marks that end a sentence, and closing quotes and brackets."""
    commas: Tensor
    """[V] bool, tokens that must not follow such a mark without a space."""

    def on(self, device: torch.device) -> Words:
        """The same on another device."""
        return Words(*(part.to(device) for part in self))

    def of(self, ids: Tensor) -> Words:
        """The same of tokens [...] in place of the vocabulary."""
        return Words(*(part[ids] for part in self))

    def begun(self, token: int, before: int | None) -> int:
        """The words that begin in a token behind another one, of which there is none at the beginning."""
        own = int(self.counts[token])
        if before is None:
            return max(own, 1)
        return own + bool(self.closes[before] & self.inside[token]) - bool(self.opens[before] and own)

    def numbers(self, ids: Tensor) -> Tensor:
        """The last word, from 0, that each token has a part of: [B, T] for ids [B, T]."""
        own = self.of(ids)
        is_end = ids == EOS
        return own._replace(counts=own.counts.masked_fill(is_end, 1), inside=own.inside & ~is_end).own_numbers()

    def own_numbers(self) -> Tensor:
        """The same of what `of` returns."""
        counts = self.counts.clone()
        counts[:, 1:] += (self.closes[:, :-1] & self.inside[:, 1:]).long()
        counts[:, 1:] -= (self.opens[:, :-1] & (self.counts[:, 1:] > 0)).long()
        counts[:, :1] = torch.where(self.marks[:, :1], 0, counts[:, :1].clamp(min=1))
        found = counts.cumsum(1) - 1
        for _ in range(_MOST_MARKS):
            found[:, :-1] = torch.where(self.marks[:, :-1], found[:, 1:], found[:, :-1])
        return found.clamp(min=0)


def numbers_of(names: Sequence[str]) -> list[int]:
    """The same of the names of tokens, without the end symbol."""
    if not names:
        return []
    own = _words(names, _marks(), "", not any(name.startswith(WORD_BEGIN) for name in names))
    return cast("list[int]", Words(*(part[None] for part in own)).own_numbers()[0].tolist())


def _marks() -> set[str]:
    return {mark for case in CASES.names() for mark in CASES.get(case).symbols}


@functools.lru_cache(maxsize=4)
def words_of(tokenizer: Tokenizer) -> tuple[Words, Words]:
    """Those of source and target."""
    names = tokenizer.source_tokens(range(tokenizer.source_size)), tokenizer.target_tokens(range(tokenizer.target_size))
    separator = getattr(getattr(tokenizer, "options", None), "separator", "")
    source, target = (_words(side, _marks(), separator, tokenizer.splits_at_spaces) for side in names)
    return source, target


def _words(names: Sequence[str], marks: set[str], separator: str, splits_at_spaces: bool) -> Words:
    if splits_at_spaces:
        counts, never = torch.ones(len(names), dtype=torch.long), torch.zeros(len(names), dtype=torch.bool)
        opens = torch.tensor([bool(separator) and name.endswith(separator) for name in names])
        endings = torch.tensor([ENDING.match(name) is not None for name in names])
        return Words(
            counts, inside=never, opens=opens, closes=never, marks=never, letters=never, endings=endings, commas=never
        )
    texts = [name.replace(WORD_BEGIN, " ") for name in names]
    counts = torch.tensor([len(WORD.findall(text)) for text in texts])
    are_spaces = torch.tensor([name == WORD_BEGIN for name in names])
    are_marks = torch.tensor([name in marks for name in names])
    inside = torch.tensor([bool(CONTINUES.match(text[:1])) for text in texts]) & ~are_marks
    return Words(
        counts - (inside | are_marks).long() + are_spaces.long(),
        inside=inside,
        opens=are_spaces,
        closes=torch.tensor([not CONTINUES.search(text) and not text[-1:].isspace() for text in texts]),
        marks=are_marks,
        letters=inside & torch.tensor([text[:1].isalnum() for text in texts]),
        endings=torch.tensor([ENDING.match(text) is not None for text in texts]),
        commas=torch.tensor([re.match(BEHIND_AN_END, f".{text}") is not None for text in texts]),
    )


def word_ends(text: str) -> list[int]:
    """Where each word of a text ends."""
    return [word.end() for word in WORD.finditer(text)]


class Splitting(NamedTuple):
    """How a source is split into tokens in segments, each of which has the same tokens as on a line with the others."""

    tokenizer: Tokenizer
    lead: str | None = ""
    """What stands before a segment in place of those before it; None: there are no segments but the whole."""

    def ends(self, word: str) -> bool:
        """Whether a segment ends with a word, whatever follows it. Case marks of others depend on no small word."""
        return self.lead is not None and (not self.lead or word.islower())

    def encode(self, text: str, *, is_first: bool) -> list[int]:
        """The tokens of a segment."""
        if is_first or not self.lead:
            return self.tokenizer.encode_source([text])[0]
        own, lead = self.tokenizer.encode_source([self.lead + text, self.lead])
        return own[len(lead) :]

    def segments(self, source: str, begin: int) -> Iterator[tuple[str, int, bool]]:
        """The segments of a source from a word on: each with its end, and whether it is complete."""
        found = [word.span() for word in _BETWEEN_SPACES.finditer(source, begin)]
        for place, (first, end) in enumerate(found):
            if self.ends(source[first:end]):
                yield source[begin:end].strip(" "), end, True
                begin = end
            elif place + 1 == len(found):
                yield source[begin:].strip(" "), len(source), False

    def encoded(self, source: str, begin: int = 0) -> Iterator[tuple[list[int], int, bool]]:
        """The tokens of each segment, and the same of it."""
        for text, end, is_complete in self.segments(source, begin):
            yield self.encode(text, is_first=not begin), end, is_complete
            begin = end


@functools.lru_cache(maxsize=4)
def splitting_of(tokenizer: Tokenizer) -> Splitting:
    """Segments of a word each if the tokens of none depend on those beside it; with case marks longer ones."""
    names = tokenizer.source_tokens(range(tokenizer.source_size))
    if tokenizer.splits_at_spaces:
        return Splitting(tokenizer)
    if WORD_BEGIN in names and not any(WORD_BEGIN in name[1:] for name in names):
        (together,) = tokenizer.encode_source([_PROBE])
        for lead in ("", "1 "):
            found = Splitting(tokenizer, lead)
            if together == [token for ids, *_ in found.encoded(_PROBE) for token in ids]:
                return found
    return Splitting(tokenizer, None)
