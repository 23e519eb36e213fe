"""Encoded parallel text on disk, mapped into memory: its sentences, its report, its checksums."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.config.schema import DataConfig
from nmt.data.vocabulary import PAD
from nmt.data.work import Advance, progress
from nmt.errors import DataError, counted
from nmt.files import (
    LARGEST_RECORD,
    file_identity,
    new_directory,
    open_inside,
    read_inside,
    reason,
    remembered,
    replace_text,
)

_EXAMPLES = 5
META = "corpus.json"
META_SUM = "own_crc32"
SIDES = ("source", "target")
VERIFIED = "verified.json"
"""In the folder of a corpus: size, times and inode of each file when it was found whole."""
_BLOCK = 1 << 20
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
            first += f", {self.empty:,} with an empty side {fate} ({_listed(self.empty_examples, self.empty)})"
        if self.too_long:
            first += f", {self.too_long:,} too long dropped ({_listed(self.too_long_examples, self.too_long)})"
        if self.truncated:
            first += f", {self.truncated:,} too long truncated ({_listed(self.too_long_examples, self.truncated)})"
        return [
            first,
            f"{name}: {self.source_tokens:,} source tokens ({self.source_unknown_share:.2%} unknown), "
            f"{self.target_tokens:,} target tokens ({self.target_unknown_share:.2%} unknown)",
        ]

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

    @property
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


def corpora_of(data: DataConfig, run_dir: Path, *, keys: Mapping[str, Collection[str]]) -> list[Path]:
    """The existing folders of encoded text of a run: all of its own cache.

    In a cache shared with other runs (data.cache_dir), those with `keys`: by the name of a corpus, `train` or `dev`.
    """
    if data.cache_dir is None:
        found = [path.parent for path in (run_dir / "cache").glob(f"[!.]*/{META}")]
        return sorted(folder for folder in found if folder.suffix != ".partial")  # the work of a killed process
    folders = (corpus_folder(Path(data.cache_dir), name, key) for name, found in keys.items() for key in sorted(found))
    return [folder for folder in folders if (folder / META).is_file()]


def corpus_folder(cache: Path, name: str, key: str) -> Path:
    """Where the corpus called `name` of this key lies in a cache."""
    return cache / f"{name}-{key[:16]}"
