"""From text files to an encoded corpus: blocks of lines, encoded by several processes in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.data.blocks import Block, TextPosition, read_blocks, split_lines
from nmt.data.corpus import SIDES, id_dtype
from nmt.data.progress import Advance, no_progress
from nmt.data.report import CorpusReport
from nmt.data.sentences import splitter_of
from nmt.data.text import FilePair, is_empty
from nmt.data.tokenizer import Tokenizer
from nmt.data.vocabulary import EOS, UNK
from nmt.data.workers import map_in_order
from nmt.data.writer import CorpusWriter, EncodedSide, unfinished_folder
from nmt.errors import ConfigError, DataError, printable
from nmt.system import usable_cores

BLOCK = 4096
"""Line pairs sent to a process at once; some hundred milliseconds of work, so that sending costs little."""
_SHOWN = 5
_CONTEXT = 12
"""Characters shown before and after the first that is changed."""
MARK_EVERY = 64
"""Blocks after which work is marked as done: what a killed process has to do again."""


@dataclass(frozen=True, kw_only=True)
class LengthRule:
    """Rules for the pairs of a corpus. The default keeps every line unchanged, as validation needs."""

    max_length: int | None = None
    """Longest side in tokens without the end symbol; None is any."""
    truncate: bool = False
    """Cut longer sentences instead of leaving the pair out."""
    skip_empty: bool = False
    """Leave out pairs with a side that is blank or has no tokens."""


Tags = Sequence[int | None]
"""The id put before each source sentence, None for none, of the pairs of each pair of files; empty for none at all."""


class EncodedBlock(NamedTuple):
    """The kept pairs of a block, and a report of the others."""

    source: EncodedSide
    target: EncodedSide
    report: CorpusReport
    part: int
    after: TextPosition


@dataclass(frozen=True)
class Encoder:
    """Encodes blocks of text; travels to the worker processes."""

    tokenizer: Tokenizer
    rule: LengthRule
    tags: Tags = ()
    language: str = ""
    """Of the source."""

    def __call__(self, block: Block) -> EncodedBlock:
        """Encode the pairs of a block, end symbols added, and apply the length rule."""
        texts = [
            split_lines(block.source, block.files.source, first_line=block.first_line),
            split_lines(block.target, block.files.target, first_line=block.first_line),
        ]
        ids = [self.tokenizer.encode_source(texts[0]), self.tokenizer.encode_target(texts[1])]
        lengths = np.array([list(map(len, side)) for side in ids])  # [2, pairs]
        empty = (lengths == 0) | np.array([list(map(is_empty, side)) for side in texts])
        tag = self.tags[block.part] if self.tags else None
        if tag is not None:
            ids[0] = [[tag, *sentence] for sentence in ids[0]]
            lengths[0] += 1
        kept = ~(empty.any(0) & self.rule.skip_empty)
        limit = self.rule.max_length
        too_long = (lengths > limit) & kept if limit is not None else np.zeros_like(empty)
        if not self.rule.truncate:
            kept &= ~too_long.any(0)
        counts: dict[str, Any] = {"empty": int(empty.any(0).sum()), "too_long": 0, "truncated": 0}
        counts["truncated" if self.rule.truncate else "too_long"] = int(too_long.any(0).sum())
        sizes = (self.tokenizer.source_size, self.tokenizer.target_size)
        source, target = (
            _flatten([sentence[:limit] for sentence in compress(side, kept)], size)
            for side, size in zip(ids, sizes, strict=True)
        )
        report = CorpusReport(
            read=len(kept),
            kept=len(source.lengths),
            source_tokens=len(source.ids) - len(source.lengths),
            target_tokens=len(target.ids) - len(target.lengths),
            source_unknown=int((source.ids == UNK).sum()),
            target_unknown=int((target.ids == UNK).sum()),
            empty_examples=_examples(block, empty),
            too_long_examples=_examples(block, too_long),
            **self._several(texts[0]),
            **self._unspelled(block, texts),
            **counts,
        )
        return EncodedBlock(source, target, CorpusReport() + report, block.part, block.after)

    def _unspelled(self, block: Block, texts: Sequence[Sequence[str]]) -> dict[str, Any]:
        """How many lines of each side the vocabulary cannot spell, and the first of them."""
        found: dict[str, Any] = {}
        for side, path, lines in zip(SIDES, block.files, texts, strict=True):
            own = [(place, text) for place, text in self.tokenizer.unspelled(side, lines) if not is_empty(lines[place])]
            found[f"{side}_unspelled"] = len(own)
            found[f"{side}_unspelled_examples"] = tuple(
                f"{path}, line {block.first_line + place}: {shown_change(lines[place], text)}"
                for place, text in own[:_SHOWN]
            )
        return found

    def _several(self, lines: Sequence[str]) -> dict[str, Any]:
        """How many sources have several sentences, where the splitter can be compiled."""
        try:
            found = splitter_of(self.language).several("\n".join(lines).encode("utf-8"))
        except ConfigError:
            return {}
        return {"several": found, "looked_at": len(lines)}


def shown_change(line: str, text: str) -> str:
    """The part of a line that becomes something else."""
    same = 0
    while same < min(len(line), len(text)) and line[same] == text[same]:
        same += 1
    begin = max(0, same - _CONTEXT)
    return f"{printable(line[begin : same + _CONTEXT])!r} becomes {printable(text[begin : same + _CONTEXT])!r}"


def _examples(block: Block, found: NDArray[np.bool_]) -> tuple[str, ...]:
    """File and line of each pair of a block with a side that `found` [2, pairs] marks."""
    pairs = np.flatnonzero(found.any(0))
    return tuple(f"{block.files[0 if found[0, i] else 1]}, line {block.first_line + i}" for i in pairs)


def _flatten(sentences: Sequence[list[int]], vocabulary_size: int) -> EncodedSide:
    """Sentences one after the other, an end symbol after each."""
    lengths = np.fromiter(map(len, sentences), np.int32, len(sentences)) + np.int32(1)
    ends = np.cumsum(lengths, dtype=np.int64) - 1
    total = int(lengths.sum(dtype=np.int64))
    ids: NDArray[Any] = np.full(total, EOS, id_dtype(vocabulary_size))
    inside = np.ones(total, bool)
    inside[ends] = False
    ids[inside] = np.fromiter(chain.from_iterable(sentences), ids.dtype, total - len(sentences))
    return EncodedSide(ids, lengths)


def encode(
    pairs: Sequence[FilePair],
    folder: Path,
    *,
    tokenizer: Tokenizer,
    rule: LengthRule,
    key: str,
    tags: Tags = (),
    language: str = "",
    workers: int = 0,
    advance: Advance = no_progress,
) -> None:
    """Write the encoded corpus of all `pairs` to `folder`, which appears only when complete.

    `workers` processes encode (0: one per core; 1: only this process); the result does not
    depend on their number. `language` is that of the source. `key` is stored with the corpus: work of a killed process
    under the same key is kept and continued. `advance` is called with the number of pairs done since its last call.
    Memory holds a few blocks. Raises DataError for text that cannot be used and if no pair is left.
    """
    encoder = Encoder(tokenizer, rule, tuple(tags), language)
    with unfinished_folder(folder) as unfinished:
        if unfinished is None:
            return
        sizes = {"source_size": tokenizer.source_size, "target_size": tokenizer.target_size}
        with CorpusWriter(unfinished, **sizes, key=key, parts=len(pairs)) as writer:
            report = writer.report
            advance(report.read)
            blocks = read_blocks(pairs, lines=BLOCK, start=writer.position)
            for number, encoded in enumerate(_encoded(encoder, blocks, workers or usable_cores()), start=1):
                writer.append(encoded.source, encoded.target, part=encoded.part)
                report = report + encoded.report
                if number % MARK_EVERY == 0:
                    writer.mark(encoded.after, report)
                advance(encoded.report.read)
            if report.kept == 0:
                raise DataError(_nothing_left(pairs, report))
            writer.finish(report)


def _nothing_left(pairs: Sequence[FilePair], report: CorpusReport) -> str:
    files = ", ".join(str(path) for pair in pairs for path in pair)
    return (
        f"no sentence pair is left of {files}: of {report.read} read, {report.empty} have an empty side "
        f"and {report.too_long} are longer than data.max_length"
    )


def _encoded(encoder: Callable[[Block], EncodedBlock], blocks: Iterator[Block], workers: int) -> Iterator[EncodedBlock]:
    """The encoded blocks in order, by as many processes as there is work for."""
    first = list(islice(blocks, 2))
    if workers == 1 or len(first) < 2:
        return map(encoder, chain(first, blocks))
    return map_in_order(encoder, chain(first, blocks), workers=workers)
