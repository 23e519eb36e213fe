"""Alignments in Pharaoh's format, read beside parallel text and stored by the rows of its encoded corpus."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.data.corpus import BLOCK, SIDES, Encoder, Rows, new_folder
from nmt.data.sentencepiece import WORD_BEGIN
from nmt.data.text import Block, FilePair, TextPosition, read_blocks, read_lines, split_lines
from nmt.data.tokenizer import Tokenizer
from nmt.data.vocabulary import EOS, PAD
from nmt.data.work import map_in_order
from nmt.errors import DataError, counted, shown
from nmt.system import usable_cores

_LINK: Final = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_EXAMPLES: Final = 3
"""Places that are named of pairs whose alignment is not used."""
Starts = tuple[NDArray[np.bool_], NDArray[np.bool_]]
"""For each token of source and target, whether a word begins with it."""


def word_starts(tokenizer: Tokenizer) -> Starts:
    """For each token of both sides whether a word, which is what spaces separate, begins with it."""
    if tokenizer.splits_at_spaces:
        return np.ones(tokenizer.source_size, bool), np.ones(tokenizer.target_size, bool)
    source, target = (
        np.array([name.startswith(WORD_BEGIN) for name in names])
        for names in (
            tokenizer.source_tokens(range(tokenizer.source_size)),
            tokenizer.target_tokens(range(tokenizer.target_size)),
        )
    )
    return source, target


def read_links(line: str, *, sizes: tuple[int, int], place: str) -> list[tuple[int, int]]:
    """The links of a line: numbers of words of a source and a target of `sizes` words, both from 0.

    Raises DataError, which begins with `place`.
    """
    found = []
    for text in line.split():
        match = _LINK.fullmatch(text)
        if match is None:
            raise DataError(f"{place}: {shown(text)} is not a link such as 0-1, of a source and a target word, from 0")
        link = int(match[1]), int(match[2])
        for word, size, side in zip(link, sizes, SIDES, strict=True):
            if word >= size:
                raise DataError(f"{place}: the link {text} names a word that the {side} of {size} words does not have")
        found.append(link)
    return found


class _Read(NamedTuple):
    """Of the pairs of a block that are in the corpus."""

    counts: NDArray[np.int64]
    """Links of each [pairs]"""
    links: NDArray[np.int32]  # [L, 2]
    other: list[str]
    """Places of pairs whose words are not those of their tokens"""
    others: int


@dataclass(frozen=True)
class _Reader:
    """Reads the alignments of a block of text; travels to the worker processes."""

    encoder: Encoder
    starts: Starts

    def __call__(self, work: tuple[Block, list[str], Path]) -> _Read:
        block, lines, path = work
        texts = [
            [line.split() for line in split_lines(text, name, first_line=block.first_line)]
            for text, name in zip((block.source, block.target), block.files, strict=True)
        ]
        encoded = self.encoder(block)
        row, counts, links, other = 0, list[int](), list[tuple[int, int]](), list[str]()
        for place, (line, source, target) in enumerate(zip(lines, *texts, strict=True)):
            where = f"{path}, line {block.first_line + place}"
            found = read_links(line, sizes=(len(source), len(target)), place=where)
            if encoded.kept[place]:
                sides = zip((encoded.source, encoded.target), self.starts, (source, target), strict=True)
                if found and not all(self._has_words(side.row(row), own, len(words)) for side, own, words in sides):
                    other.append(where)
                    found = []
                row += 1
                counts.append(len(found))
                links += found
        return _Read(
            np.array(counts, np.int64), np.array(links, np.int32).reshape(-1, 2), other[:_EXAMPLES], len(other)
        )

    def _has_words(self, ids: NDArray[Any], starts: NDArray[np.bool_], words: int) -> bool:
        """Whether tokens, the end symbol last, are those of so many words, or begin with them and were cut."""
        limit = self.encoder.rule.max_length
        found = int(starts[ids[1:-1]].sum()) + 1
        return found == words or (limit is not None and len(ids) - 1 == limit and found < words)


class Links:
    """The links of each row of a corpus, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.offsets: NDArray[np.int64] = np.load(folder / "offsets.npy", mmap_mode="r")
        self.links: NDArray[np.int32] = np.load(folder / "links.npy", mmap_mode="r")
        self.report: str = (folder / "report.txt").read_text(encoding="utf-8")

    def of(self, rows: Rows) -> NDArray[np.int64]:
        """Links of some rows: [L, 3], place among the rows, target word, source word."""
        inside = np.minimum(rows, len(self.offsets) - 1)  # what follows has none
        first, count = self.offsets[inside], self.offsets[np.minimum(inside + 1, len(self.offsets) - 1)]
        count = count - first
        place = np.repeat(np.arange(len(rows)), count)
        found = self.links[np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())]
        return np.column_stack([place, found[:, 1], found[:, 0]]).astype(np.int64)


def store_links(
    pairs: Sequence[FilePair], files: Sequence[Path], folder: Path, *, encoder: Encoder, workers: int
) -> None:
    """Read the alignments `files` of `pairs`, a line for each pair, into `folder`, which appears when complete.

    `encoder` is that of the corpus, whose rows are meant. Raises DataError, which names file and line.
    """
    starts = word_starts(encoder.tokenizer)
    done = map_in_order(_Reader(encoder, starts), _with_lines(pairs, files), workers=workers or usable_cores())
    read = list(done)
    counts = np.concatenate([one.counts for one in read])
    other, examples = sum(one.others for one in read), [place for one in read for place in one.other][:_EXAMPLES]
    total = int(counts.sum())
    if not total:
        raise DataError(f"{', '.join(map(str, files))}: no link that could be learned" + _listed(examples, other))
    said = f"{counted(total, 'link')} of words in {counted(int((counts > 0).sum()), 'pair')} guide attention"
    if other:
        said += f"; those of {counted(other, 'pair')} do not, as subwords are not parts of words" + _listed(
            examples, other
        )
    with new_folder(folder) as temporary:
        np.save(temporary / "offsets.npy", np.concatenate([[0], np.cumsum(counts)]))
        np.save(temporary / "links.npy", np.concatenate([one.links for one in read]))
        (temporary / "report.txt").write_text(said, encoding="utf-8")


def _listed(examples: Sequence[str], count: int) -> str:
    return f" ({'; '.join(examples)}{'; ...' if count > len(examples) else ''})" if examples else ""


def _with_lines(pairs: Sequence[FilePair], files: Sequence[Path]) -> Iterator[tuple[Block, list[str], Path]]:
    """Blocks of text, each with its alignments."""
    for pair, path in zip(pairs, files, strict=True):
        lines, read = read_lines(path), 0
        for block in read_blocks([pair], lines=BLOCK, start=TextPosition()):
            own = list(islice(lines, block.after.lines - read))
            read += len(own)
            if read < block.after.lines:
                raise DataError(f"{path}: has {counted(read, 'line')}, fewer than {pair.source}; one a pair is needed")
            yield block, own, path
        if next(lines, None) is not None:
            raise DataError(f"{path}: has more lines than the {read:,} of {pair.source}; one a pair is needed")


def _begun(ids: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """Where a word begins, and where a token of any is: both [B, T]."""
    begun = starts[ids]
    begun[:, 0] = True
    return begun, (ids != PAD) & (ids != EOS)


def word_counts(ids: Tensor, starts: Tensor) -> Tensor:
    """The words [B] of ids [B, T]; `starts` is that of `word_starts`."""
    begun, inside = _begun(ids, starts)
    return (begun & inside).sum(1)


def wanted_attention(links: NDArray[np.int64], source: Tensor, target: Tensor, starts: tuple[Tensor, Tensor]) -> Tensor:
    """What each target token is to attend to: [B, T, S], which adds up to 1 where there is a link, else to 0.

    source [B, S] and target [B, T] are ids; a token of a target word attends to all tokens of the source words that the
    word is linked to. `starts` are those of `word_starts`, on the device of the ids.
    """
    words, size = list[Tensor](), list[int]()
    for ids, begins, last in zip((target, source), starts[::-1], links[:, 1:].max(0, initial=-1), strict=True):
        begun, inside = _begun(ids, begins)
        size.append(int(last) + 2)  # the last is of tokens of further words, and of no word
        words.append(torch.where(inside, begun.cumsum(1) - 1, size[-1] - 1).clamp(max=size[-1] - 1))
    table = torch.zeros(len(source), *size)
    table[tuple(torch.from_numpy(links.T.copy()))] = 1.0
    of_target, of_source = words
    found = table.to(source.device).gather(1, of_target.unsqueeze(2).expand(-1, -1, size[1]))  # [B, T, words]
    found = found.gather(2, of_source.unsqueeze(1).expand(-1, target.size(1), -1))
    return found / found.sum(2, keepdim=True).clamp(min=1)
