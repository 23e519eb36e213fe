"""From text files to an encoded corpus: chunks of lines, encoded by several processes in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nmt.cpus import usable_cores
from nmt.data.corpus import CorpusWriter, EncodedSide, id_dtype, new_folder
from nmt.data.report import CorpusReport
from nmt.data.text import FilePair, is_empty, read_pairs
from nmt.data.tokenizer import Tokenizer
from nmt.data.vocabulary import EOS, UNK
from nmt.data.workers import obey_parent, process_context
from nmt.errors import DataError

_CHUNK = 4096  # pairs; some hundred milliseconds of work, so that sending it costs little


@dataclass(frozen=True, kw_only=True)
class LengthRule:
    """Which pairs a corpus takes. The default takes every line as it is, as validation must."""

    max_length: int | None = None
    """Longest side in tokens without the end symbol; None is any."""
    truncate: bool = False
    """Cut longer sentences instead of leaving the pair out."""
    skip_empty: bool = False
    """Leave out pairs with a side that is blank or has no tokens."""


class Chunk(NamedTuple):
    """Consecutive line pairs of one prefix; `first_line` counts from 1."""

    pair: FilePair
    first_line: int
    lines: list[tuple[str, str]]


class EncodedChunk(NamedTuple):
    """The pairs of a chunk that are kept, and what became of the others."""

    source: EncodedSide
    target: EncodedSide
    report: CorpusReport


@dataclass(frozen=True)
class Encoder:
    """Encodes chunks; travels to the worker processes."""

    tokenizer: Tokenizer
    rule: LengthRule

    def __call__(self, chunk: Chunk) -> EncodedChunk:
        """Encode the pairs of a chunk, end symbols added, and apply the length rule."""
        sources = self.tokenizer.encode_source([source for source, _ in chunk.lines])
        targets = self.tokenizer.encode_target([target for _, target in chunk.lines])
        kept: list[tuple[list[int], list[int]]] = []
        counts = {"empty": 0, "too_long": 0, "truncated": 0}
        empty_examples: list[str] = []
        long_examples: list[str] = []
        for i, pair in enumerate(zip(sources, targets, strict=True)):
            empty = [j for j in (0, 1) if not pair[j] or is_empty(chunk.lines[i][j])]
            if empty:
                counts["empty"] += 1
                empty_examples.append(f"{chunk.pair[empty[0]]}, line {chunk.first_line + i}")
                if self.rule.skip_empty:
                    continue
            limit = self.rule.max_length
            too_long = [j for j in (0, 1) if limit is not None and len(pair[j]) > limit]
            if too_long:
                counts["truncated" if self.rule.truncate else "too_long"] += 1
                long_examples.append(f"{chunk.pair[too_long[0]]}, line {chunk.first_line + i}")
                if not self.rule.truncate:
                    continue
            kept.append((pair[0][:limit], pair[1][:limit]))
        source = _flatten([pair[0] for pair in kept], self.tokenizer.source_size)
        target = _flatten([pair[1] for pair in kept], self.tokenizer.target_size)
        report = CorpusReport(
            read=len(chunk.lines),
            kept=len(kept),
            source_tokens=len(source.ids) - len(kept),
            target_tokens=len(target.ids) - len(kept),
            source_unknown=int((source.ids == UNK).sum()),
            target_unknown=int((target.ids == UNK).sum()),
            empty_examples=tuple(empty_examples),
            too_long_examples=tuple(long_examples),
            **counts,
        )
        return EncodedChunk(source, target, CorpusReport() + report)


def _flatten(sentences: Sequence[list[int]], vocabulary_size: int) -> EncodedSide:
    lengths = np.fromiter((len(ids) + 1 for ids in sentences), np.int32, len(sentences))
    ids = (i for sentence in sentences for i in (*sentence, EOS))
    return EncodedSide(np.fromiter(ids, id_dtype(vocabulary_size), int(lengths.sum())), lengths)


def encode(
    pairs: Sequence[FilePair],
    folder: Path,
    *,
    tokenizer: Tokenizer,
    rule: LengthRule,
    key: str,
    workers: int = 0,
    advance: Callable[[int], object] = lambda done: None,
) -> None:
    """Write the encoded corpus of all `pairs` to `folder`, which appears only when complete.

    `workers` processes encode, one per core for 0, none besides this one for 1; the result does not
    depend on their number. `key` is stored with the corpus. `advance` is told the pairs done since
    its last call. Memory is that of a few chunks. Raises DataError for text that cannot be used
    and when no pair is left.
    """
    encoder = Encoder(tokenizer, rule)
    report = CorpusReport()
    with new_folder(folder) as temporary:
        sizes = {"source_size": tokenizer.source_size, "target_size": tokenizer.target_size}
        with CorpusWriter(temporary, **sizes) as writer:
            for encoded in _map_in_order(encoder, _chunks(pairs), workers or usable_cores()):
                writer.append(encoded.source, encoded.target)
                report = report + encoded.report
                advance(encoded.report.read)
            if report.kept == 0:
                raise DataError(_nothing_left(pairs, report))
            writer.finish(report, key=key)


def _nothing_left(pairs: Sequence[FilePair], report: CorpusReport) -> str:
    files = ", ".join(str(path) for pair in pairs for path in pair)
    return (
        f"no sentence pair is left of {files}: of {report.read} read, {report.empty} have an empty side "
        f"and {report.too_long} are longer than data.max_length"
    )


def _chunks(pairs: Sequence[FilePair]) -> Iterator[Chunk]:
    for pair in pairs:
        lines = read_pairs(pair)
        first = 1
        while chunk := list(islice(lines, _CHUNK)):
            yield Chunk(pair, first, chunk)
            first += len(chunk)


def _map_in_order(encoder: Encoder, chunks: Iterator[Chunk], workers: int) -> Iterator[EncodedChunk]:
    """Like map(encoder, chunks), by `workers` processes and with a bounded number of chunks in memory."""
    ahead = list(islice(chunks, 2))
    if workers == 1 or len(ahead) < 2:
        yield from map(encoder, ahead)
        yield from map(encoder, chunks)
        return
    pool = ProcessPoolExecutor(workers, mp_context=process_context(), initializer=obey_parent, initargs=(os.getpid(),))
    try:
        waiting: deque[Future[EncodedChunk]] = deque(pool.submit(encoder, chunk) for chunk in ahead)
        for chunk in chunks:
            waiting.append(pool.submit(encoder, chunk))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise DataError(
            "a process that encodes text was killed, perhaps for lack of memory; lower data.workers"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
