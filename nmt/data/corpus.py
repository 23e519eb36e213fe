"""Encoded parallel text on disk: written piece by piece, by several processes, and mapped into memory to be read."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.data.sentences import splitter_of
from nmt.data.text import Block, FilePair, TextPosition, read_blocks, split_lines
from nmt.data.tokenizer import Tokenizer
from nmt.data.vocabulary import EOS, PAD, UNK
from nmt.data.work import Advance, map_in_order, no_progress, progress
from nmt.errors import ConfigError, DataError, counted, printable
from nmt.files import (
    LARGEST_RECORD,
    RefusedError,
    file_identity,
    naming,
    new_directory,
    open_inside,
    own_file,
    read_inside,
    reason,
    remembered,
    replace_text,
    unreadable,
)
from nmt.system import usable_cores

EXAMPLES = 5
"""Of each kind that a report has."""
META = "corpus.json"
META_SUM = "own_crc32"
SIDES = ("source", "target")
VERIFIED = "verified.json"
"""In the folder of a corpus: size, times and inode of each file when it was found whole."""
_BLOCK = 1 << 20
BLOCK = 4096
"""Line pairs sent to a process at once; some hundred milliseconds of work, so that sending costs little."""
_CONTEXT = 12
"""Characters shown before and after the first that is changed."""
MARK_EVERY = 64
"""Blocks after which work is marked as done: what a killed process has to do again."""
_MARK = "done.json"
_LOCK = "lock"
_FILES = tuple(f"{name}.{kind}" for name in SIDES for kind in ("ids", "lengths", "offsets"))
Rows = NDArray[np.int64]
"""Numbers of sentence pairs in a corpus."""

Ids = NDArray[Any]
"""Token ids, uint16, uint32 or int32."""


class Part(NamedTuple):
    """The pairs of one prefix of data.train, which follow those of the prefix before it."""

    pairs: int
    cost: int
    """Sum over its pairs of the longer side's length, end symbol counted."""


class FlatSentences(NamedTuple):
    """One language of a corpus, or of a part of it; the arrays may be maps of files."""

    ids: Ids
    lengths: NDArray[np.int32]
    """[N]"""
    offsets: NDArray[np.int64]
    """[N + 1]; where in `ids` each begins, and the end."""

    @classmethod
    def of(cls, ids: Ids, lengths: NDArray[Any]) -> FlatSentences:
        """Sentences of these lengths [N]."""
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(ids, lengths.astype(np.int32), offsets)

    def row(self, i: int) -> Ids:
        """The ids of sentence `i`, a view."""
        return self.ids[self.offsets[i] : self.offsets[i + 1]]

    def padded(self, rows: Rows) -> NDArray[np.int64]:
        """The ids of sentences `rows` [B], PAD at the right: [B, longest]."""
        lengths = self.lengths[rows]
        columns = np.arange(lengths.max(initial=0))
        inside = columns < lengths[:, None]
        padded = np.full(inside.shape, PAD, np.int64)
        padded[inside] = self.ids[(self.offsets[rows][:, None] + columns)[inside]]
        return padded

    def taken(self, rows: Rows) -> FlatSentences:
        """Sentences `rows` [B] alone, in this order; memory is in proportion to their tokens."""
        new = FlatSentences.of(self.ids[:0], self.lengths[rows])
        moved = np.repeat(self.offsets[rows] - new.offsets[:-1], new.lengths)
        return new._replace(ids=self.ids[moved + np.arange(len(moved))])


def flat(sentences: Iterable[Sequence[int]]) -> FlatSentences:
    """Sentences of ids in one array."""
    listed = list(sentences)
    lengths = np.array([len(ids) for ids in listed], np.int32)
    return FlatSentences.of(np.fromiter((i for ids in listed for i in ids), np.int32), lengths)


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
            values[name] = values[name][:EXAMPLES]
        return CorpusReport(**values)

    @property
    def several_share(self) -> float | None:
        """Share of the source lines that have several sentences; None where that is not known."""
        return self.several / self.looked_at if self.looked_at else None

    def lines(self, name: str) -> list[str]:
        """The report for people; `name` says which corpus it is."""
        first = f"{name}: {counted(self.read, 'pair')} read, {self.kept:,} kept"
        for count, what, examples in (
            (self.empty, f"with an empty side {'skipped' if self.read > self.kept else 'kept'}", self.empty_examples),
            (self.too_long, "too long dropped", self.too_long_examples),
            (self.truncated, "too long truncated", self.too_long_examples),
        ):
            first += f", {count:,} {what} ({_listed(examples, count)})" if count else ""
        tokens = [
            f"{count:,} {side} tokens ({unknown / max(1, count):.2%} unknown)"
            for side, count, unknown in (
                ("source", self.source_tokens, self.source_unknown),
                ("target", self.target_tokens, self.target_unknown),
            )
        ]
        return [first, f"{name}: {', '.join(tokens)}"]

    def doubts(self, name: str) -> list[str]:
        """A warning for each side that has lines which the vocabulary cannot spell."""
        changed = "data.tokenizer_options.normalization"
        said = {
            "source": f"the model reads other text ({changed})",
            "target": f"no translation can contain this ({changed}, byte_fallback)",
        }
        found = []
        for side, advice in said.items():
            count, examples = getattr(self, f"{side}_unspelled"), getattr(self, f"{side}_unspelled_examples")
            what = f"{counted(count, f'{side} line')} that the vocabulary cannot spell"
            found += [f"{name}: {what}: {_listed(examples, count)}; {advice}"] if count else []
        return found

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> CorpusReport:
        """Read back what JSON has made of the fields."""
        restored: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return cls(**restored)


def _listed(examples: tuple[str, ...], count: int) -> str:
    return "; ".join(examples) + ("; ..." if count > len(examples) else "")


def meta_sum(meta: dict[str, Any]) -> int:
    """CRC-32 of the rest of META; older versions wrote none."""
    rest = {name: value for name, value in meta.items() if name != META_SUM}
    return zlib.crc32(json.dumps(rest, sort_keys=True).encode())


def id_dtype(vocabulary_size: int) -> np.dtype[Any]:
    """The smallest type that holds the ids of a vocabulary."""
    return np.dtype(np.uint16 if vocabulary_size < 2**16 else np.uint32)


class Corpus:
    """Encoded sentence pairs in a folder written by `CorpusWriter`.

    Data is read only when it is used, so memory does not grow with the corpus. Every sentence ends with EOS, and
    lengths count it. `parts` tells which pairs come from which prefix of text.
    """

    def __init__(self, folder: Path) -> None:
        try:
            meta = json.loads(read_inside(folder / META, within=folder, largest=LARGEST_RECORD))
            if META_SUM in meta and meta[META_SUM] != meta_sum(meta):
                raise ValueError(f"{META} has changed since it was written")
            pairs = meta["pairs"]
            self.sides = [
                FlatSentences(
                    _map(folder / f"{side}.ids", np.dtype(meta[f"{side}_dtype"]), meta[f"{side}_tokens"]),
                    _map(folder / f"{side}.lengths", np.dtype(np.int32), pairs),
                    _map(folder / f"{side}.offsets", np.dtype(np.int64), pairs + 1),
                )
                for side in SIDES
            ]
            """Source and target sentences, EOS counted; views of the files."""
            self.report = CorpusReport.from_json(meta["report"])
            self.parts = tuple(Part(*part) for part in meta["parts"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{folder}: not a complete encoded corpus ({error})") from error
        self.folder = folder
        self.key = str(meta["key"])
        """Digest of the text, the tokenizer and the length rule that made this corpus."""
        self._sums: Any = meta.get("crc32", {})  # none in a corpus of a version that wrote none

    def __len__(self) -> int:
        return len(self.sides[0].lengths)

    def source(self, i: int) -> Ids:
        """Source ids of pair `i`, EOS last; a view [S] of the file."""
        return self.sides[0].row(i)

    def target(self, i: int) -> Ids:
        """Target ids of pair `i`, EOS last; a view [T] of the file."""
        return self.sides[1].row(i)

    def padded_source(self, rows: Rows) -> NDArray[np.int64]:
        """Source ids of pairs `rows` [B], PAD at the right: [B, S]."""
        return self.sides[0].padded(rows)

    def padded_target(self, rows: Rows) -> NDArray[np.int64]:
        """Target ids of pairs `rows` [B], PAD at the right: [B, T]."""
        return self.sides[1].padded(rows)

    def lengths(self, rows: Rows) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Source and target lengths of pairs `rows` [B], EOS counted: [B] each."""
        return self.source_lengths[rows], self.target_lengths[rows]

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        """Source lengths [pairs], EOS counted; a view of the file."""
        return self.sides[0].lengths

    @cached_property
    def longest_source(self) -> int:
        """Tokens of the longest source sentence, EOS not counted; reads all lengths."""
        return int(self.source_lengths.max()) - 1

    @property
    def target_lengths(self) -> NDArray[np.int32]:
        """Target lengths [pairs], EOS counted; a view of the file."""
        return self.sides[1].lengths

    def verified(self, *, anew: bool = False, shown: bool = False) -> Corpus:
        """This corpus; DataError, naming it, for a file that has changed since the text was encoded.

        Files that were found whole before are read again only if they have changed, or all are to be read `anew`.
        `shown`: progress on stderr.
        """
        folder = self.folder
        try:
            sums = {Path(name).name: int(value) for name, value in self._sums.items()}
        except (ValueError, AttributeError, TypeError) as error:
            raise DataError(f"{folder / META}: damaged ({error})") from error
        known = {} if anew else remembered(folder / VERIFIED)
        # Taken before reading: a file that changes in the meantime is read again at the next start.
        identities = {name: file_identity(folder / name) for name in sums}
        unread = {name: found for name, found in identities.items() if known.get(name) != list(found or ())}
        total = sum(found[0] for found in unread.values() if found)
        with progress(f"verifying {folder.name.partition('-')[0]}", total=total, unit="B", shown=shown) as advance:
            for name in unread:
                if _crc32(folder / name, advance) != sums[name]:
                    raise DataError(f"{folder / name}: damaged: its checksum is not the one in {META}")
        if unread and not anew:
            with contextlib.suppress(OSError):  # a cache that may only be read is verified at each start
                replace_text(folder / VERIFIED, json.dumps({**known, **unread}, indent=1))
        return self


def _map(path: Path, dtype: np.dtype[Any], count: int) -> Ids:
    with open_inside(path, within=path.parent) as stream:
        found = os.fstat(stream.fileno()).st_size
        if found != count * dtype.itemsize:
            raise ValueError(f"{path.name} has {counted(found, 'byte')} instead of {count * dtype.itemsize}")
        if count == 0:
            return np.empty(0, dtype)
        # A plain array over the map: slicing np.memmap itself costs several times as much.
        return np.asarray(np.memmap(stream, dtype, mode="r", shape=(count,)))


def _crc32(path: Path, advance: Advance) -> int:
    found = 0
    try:
        with open_inside(path, within=path.parent) as stream:
            while block := stream.read(_BLOCK):
                found = zlib.crc32(block, found)
                advance(len(block))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return found


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """A temporary folder that becomes `final` if the block succeeds, and is deleted otherwise.

    Another process may make the same folder meanwhile; then the first to finish wins.
    """
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with new_directory(final, prefix=".") as folder:
            yield folder
            try:
                os.rename(folder, final)
            except OSError:
                if not final.is_dir():
                    raise
                shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        place = error.filename or final
        raise DataError(f"{place}: cannot be written ({reason(error)})") from error


def corpus_folder(cache: Path, name: str, key: str) -> Path:
    """Where the corpus called `name` of this key lies in a cache."""
    return cache / f"{name}-{key[:16]}"


@dataclass
class _Written:
    """A file that is appended to: how long it is, and the CRC-32 of all that."""

    size: int = 0
    sum: int = 0


class CorpusWriter(contextlib.ExitStack):
    """Appends encoded pieces to the files of a folder; a context manager that closes them.

    After `mark` everything up to there is kept: a new writer in the same folder, with the same
    key, checks size and sum of what is there, cuts off what came later and continues from
    `position` with `report`. What is damaged, or of another key, is written anew.
    """

    def __init__(self, folder: Path, *, sizes: tuple[int, int], key: str, parts: int = 1) -> None:
        """`sizes`: of the vocabularies; `parts`: how many prefixes of text the pairs come from."""
        super().__init__()
        self.position = TextPosition()
        """Position of the first text that has not been encoded."""
        self.report = CorpusReport()
        """The report of the text before it."""
        self._folder, self._key = folder, key
        self._dtypes = dict(zip(SIDES, map(id_dtype, sizes), strict=True))
        self._files = {name: _Written() for name in _FILES}
        self._parts = [Part(0, 0)] * parts
        self._restore()
        self._streams: dict[str, BinaryIO] = {}
        for name, written in self._files.items():
            stream = open(folder / name, "r+b" if written.size else "wb", opener=own_file)  # noqa: SIM115
            self._streams[name] = self.enter_context(stream)
            stream.truncate(written.size)
            stream.seek(written.size)  # after what is known to be good
        for name in SIDES:
            if not self._files[f"{name}.offsets"].size:
                self._write(f"{name}.offsets", np.zeros(1, np.int64))

    def append(self, source: FlatSentences, target: FlatSentences, *, part: int = 0) -> None:
        """Add as many source as target sentences, of prefix number `part`; parts come in order."""
        for name, side in zip(SIDES, (source, target), strict=True):
            dtype = self._dtypes[name]
            before = self._files[f"{name}.ids"].size // dtype.itemsize
            self._write(f"{name}.ids", side.ids.astype(dtype, copy=False))
            self._write(f"{name}.lengths", side.lengths)
            self._write(f"{name}.offsets", side.offsets[1:] + before)
        pairs, cost = self._parts[part]
        longer = np.maximum(source.lengths, target.lengths).sum(dtype=np.int64)
        self._parts[part] = Part(pairs + len(source.lengths), cost + int(longer))

    def mark(self, position: TextPosition, report: CorpusReport) -> None:
        """Write everything to the files, with the next position and the report so far."""
        for stream in self._streams.values():
            stream.flush()
        self.position, self.report = position, report
        state = {
            "key": self._key,
            "position": position,
            "report": asdict(report),
            "parts": self._parts,
            "files": {name: asdict(written) for name, written in self._files.items()},
        }
        replace_text(self._folder / _MARK, json.dumps(state, indent=1))

    def finish(self, report: CorpusReport) -> None:
        """Close the files and write what `Corpus` needs to open them."""
        self.close()
        pairs = sum(part.pairs for part in self._parts)
        meta: dict[str, Any] = {"key": self._key, "pairs": pairs, "parts": self._parts, "report": asdict(report)}
        for name, dtype in self._dtypes.items():
            meta |= {f"{name}_tokens": self._files[f"{name}.ids"].size // dtype.itemsize, f"{name}_dtype": dtype.name}
        meta["crc32"] = {name: written.sum for name, written in self._files.items()}
        meta[META_SUM] = meta_sum(meta)
        replace_text(self._folder / META, json.dumps(meta, indent=1))
        for mark in (self._folder / _MARK, *self._folder.glob(f".{_MARK}-*")):  # also of one that was killed writing it
            mark.unlink(missing_ok=True)

    def _write(self, name: str, array: NDArray[Any]) -> None:
        content = array.tobytes()
        with naming(self._folder / name):
            self._streams[name].write(content)
        written = self._files[name]
        written.size, written.sum = written.size + len(content), zlib.crc32(content, written.sum)

    def _restore(self) -> None:
        """Take over the work of an earlier writer, if it is undamaged."""
        try:
            state = json.loads(read_inside(self._folder / _MARK, within=self._folder, largest=LARGEST_RECORD))
            if state["key"] != self._key:
                return
            files = {name: _Written(**state["files"][name]) for name in _FILES}
            report = CorpusReport.from_json(state["report"])
            parts, position = [Part(*part) for part in state["parts"]], TextPosition(*state["position"])
            damaged = [name for name, written in files.items() if not _is_whole(self._folder / name, written)]
        except FileNotFoundError:
            return
        except (RefusedError, ValueError, KeyError, TypeError) as error:
            damaged = [f"{_MARK} ({error})"]
        except OSError as error:  # it may hold hours of encoding
            raise unreadable(self._folder / _MARK, error) from error
        if damaged:
            print(f"{self._folder}: {damaged[0]} is damaged, so everything is encoded again", file=sys.stderr)
            return
        self._files, self.report, self._parts, self.position = files, report, parts, position


def _is_whole(path: Path, written: _Written) -> bool:
    """Whether a file begins with what was written."""
    left, found = written.size, 0
    with contextlib.suppress(FileNotFoundError), open(path, "rb", opener=own_file) as stream:
        while left and (block := stream.read(min(left, 1 << 20))):
            left, found = left - len(block), zlib.crc32(block, found)
    return left == 0 and found == written.sum


@contextlib.contextmanager
def unfinished_folder(final: Path) -> Iterator[Path | None]:
    """The folder FINAL.partial to write into, which becomes `final` when the block ends well.

    After an error it stays if something in it is worth continuing. None if `final` is there
    already: of several processes that want the same folder, one makes it and the others wait.
    """
    partial = final.with_name(f"{final.name}.partial")
    try:
        with contextlib.ExitStack() as stack:
            _take_lock(partial, stack)
            if final.is_dir():
                shutil.rmtree(partial, ignore_errors=True)
                yield None
                return
            try:
                yield partial
            except BaseException:
                if not (partial / _MARK).is_file():
                    shutil.rmtree(partial, ignore_errors=True)
                raise
            (partial / _LOCK).unlink()
            os.rename(partial, final)
    except OSError as error:
        raise DataError(f"{error.filename or partial}: cannot be written ({reason(error)})") from error


def _take_lock(partial: Path, stack: contextlib.ExitStack) -> None:
    """Make the folder, if need be, and hold its lock until `stack` ends."""
    while True:
        partial.mkdir(parents=True, exist_ok=True)
        try:
            lock = stack.enter_context(open(partial / _LOCK, "w", opener=own_file))  # noqa: SIM115
            try:  # the kernel releases it when the process that holds it ends, however that happens
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"{partial}: another process encodes this text; waiting for it", file=sys.stderr, flush=True)
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError:  # a file system without locks: training there must still be possible
                pass
            # The previous holder may have removed or renamed the folder together with the lock.
            if os.path.samestat(os.fstat(lock.fileno()), (partial / _LOCK).stat()):
                return
        except FileNotFoundError:
            continue


@dataclass(frozen=True, kw_only=True)
class LengthRule:
    """Rules for the pairs of a corpus. The default keeps every line unchanged, as validation needs."""

    max_length: int | None = None
    """Longest side in tokens without the end symbol; None is any."""
    truncate: bool = False
    """Cut longer sentences instead of leaving the pair out."""
    skip_empty: bool = False
    """Leave out pairs with a side that is blank or has no tokens."""


Tags = Sequence[Sequence[int]]
"""The ids put before each source sentence of the pairs of each pair of files; empty for none at all."""


class EncodedBlock(NamedTuple):
    """The kept pairs of a block, and a report of the others."""

    source: FlatSentences
    target: FlatSentences
    report: CorpusReport
    after: TextPosition
    kept: NDArray[np.bool_]
    """Of all pairs of the block."""


@dataclass(frozen=True)
class Encoder:
    """Encodes blocks of text; travels to the worker processes."""

    tokenizer: Tokenizer
    rule: LengthRule
    tags: Tags = ()
    language: str = ""
    """Of the source."""

    @property
    def sizes(self) -> tuple[int, int]:
        """Of the vocabularies."""
        return self.tokenizer.source_size, self.tokenizer.target_size

    def __call__(self, block: Block) -> EncodedBlock:
        """Encode the pairs of a block, end symbols added, and apply the length rule."""
        texts = [
            split_lines(block.source, block.files.source, first_line=block.first_line),
            split_lines(block.target, block.files.target, first_line=block.first_line),
        ]
        ids = [self.tokenizer.encode_source(texts[0]), self.tokenizer.encode_target(texts[1])]
        lengths = np.array([list(map(len, side)) for side in ids])  # [2, pairs]
        empty = (lengths == 0) | np.array([[not line.strip() for line in side] for side in texts])
        if self.tags and (tag := self.tags[block.after.pair]):
            ids[0] = [[*tag, *sentence] for sentence in ids[0]]
            lengths[0] += len(tag)
        kept = ~(empty.any(0) & self.rule.skip_empty)
        limit = self.rule.max_length
        too_long = (lengths > limit) & kept if limit is not None else np.zeros_like(empty)
        if not self.rule.truncate:
            kept &= ~too_long.any(0)
        counts: dict[str, Any] = {"empty": int(empty.any(0).sum()), "too_long": 0, "truncated": 0}
        counts["truncated" if self.rule.truncate else "too_long"] = int(too_long.any(0).sum())
        several: dict[str, Any] = {}
        with contextlib.suppress(ConfigError):  # where the splitter cannot be compiled
            found = splitter_of(self.language).several("\n".join(texts[0]).encode("utf-8"))
            several = {"several": found, "looked_at": len(texts[0])}
        source, target = (
            _flatten([sentence[:limit] for sentence in compress(side, kept)], size)
            for side, size in zip(ids, self.sizes, strict=True)
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
            **several,
            **self._unspelled(block, texts),
            **counts,
        )
        return EncodedBlock(source, target, CorpusReport() + report, block.after, kept)

    def _unspelled(self, block: Block, texts: Sequence[Sequence[str]]) -> dict[str, Any]:
        """How many lines of each side the vocabulary cannot spell, and the first of them."""
        found: dict[str, Any] = {}
        for side, path, lines in zip(SIDES, block.files, texts, strict=True):
            own = [(place, text) for place, text in self.tokenizer.unspelled(side, lines) if lines[place].strip()]
            found[f"{side}_unspelled"] = len(own)
            found[f"{side}_unspelled_examples"] = tuple(
                f"{path}, line {block.first_line + place}: {shown_change(lines[place], text)}"
                for place, text in own[:EXAMPLES]
            )
        return found


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


def _flatten(sentences: Sequence[list[int]], vocabulary_size: int) -> FlatSentences:
    """Sentences one after the other, an end symbol after each."""
    lengths = np.fromiter(map(len, sentences), np.int32, len(sentences)) + np.int32(1)
    total = int(lengths.sum(dtype=np.int64))
    flat = FlatSentences.of(np.full(total, EOS, id_dtype(vocabulary_size)), lengths)
    inside = np.ones(total, bool)
    inside[flat.offsets[1:] - 1] = False
    flat.ids[inside] = np.fromiter(chain.from_iterable(sentences), flat.ids.dtype, total - len(sentences))
    return flat


def encode(
    pairs: Sequence[FilePair],
    folder: Path,
    *,
    encoder: Encoder,
    key: str,
    workers: int = 0,
    advance: Advance = no_progress,
) -> None:
    """Write the encoded corpus of all `pairs` to `folder`, which appears only when complete.

    `workers` processes encode (0: one per core; 1: only this process); the result does not
    depend on their number. `key` is stored with the corpus: work of a killed process under the same key is kept and
    continued. `advance` is called with the number of pairs done since its last call. Memory holds a few blocks. Raises
    DataError for text that cannot be used and if no pair is left.
    """
    with unfinished_folder(folder) as unfinished:
        if unfinished is None:
            return
        with CorpusWriter(unfinished, sizes=encoder.sizes, key=key, parts=len(pairs)) as writer:
            report = writer.report
            advance(report.read)
            rest = read_blocks(pairs, lines=BLOCK, start=writer.position)
            first, workers = list(islice(rest, 2)), workers or usable_cores()
            blocks = chain(first, rest)
            is_little = workers == 1 or len(first) < 2
            work = map(encoder, blocks) if is_little else map_in_order(encoder, blocks, workers=workers)
            for number, encoded in enumerate(work, start=1):
                writer.append(encoded.source, encoded.target, part=encoded.after.pair)
                report = report + encoded.report
                if number % MARK_EVERY == 0:
                    writer.mark(encoded.after, report)
                advance(encoded.report.read)
            if report.kept == 0:
                files = ", ".join(str(path) for pair in pairs for path in pair)
                raise DataError(
                    f"no sentence pair is left of {files}: of {report.read} read, {report.empty} have an empty side "
                    f"and {report.too_long} are longer than data.max_length"
                )
            writer.finish(report)


def encoded_corpus(
    files: Sequence[FilePair], folder: Path, *, encoder: Encoder, key: str, workers: int, pairs: int, shown: bool
) -> Corpus:
    """Open the corpus of a cache folder, or make it; a damaged corpus is made again."""
    if folder.is_dir():
        try:
            corpus = Corpus(folder).verified(shown=shown)
            if corpus.key == key:
                return corpus
        except DataError as error:
            print(f"{error}; the text is encoded again", file=sys.stderr, flush=True)
        shutil.rmtree(folder)
    name = f"encoding {folder.name.partition('-')[0]}"
    with progress(name, total=pairs, unit=" pairs", shown=shown) as advance:
        encode(files, folder, encoder=encoder, key=key, workers=workers, advance=advance)
    return Corpus(folder).verified(shown=shown)
