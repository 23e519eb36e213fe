"""Encoded parallel text on disk, mapped into memory; folders that appear only when they are complete."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.data.flat_sentences import FlatSentences, Ids
from nmt.data.report import CorpusReport
from nmt.data.sampling import Part, Rows
from nmt.errors import DataError, counted
from nmt.files import LARGEST_RECORD, new_directory, open_inside, read_inside, reason

META = "corpus.json"
META_SUM = "own_crc32"
SIDES = ("source", "target")


def meta_sum(meta: dict[str, Any]) -> int:
    """CRC-32 of the rest of META; older versions wrote none."""
    rest = {name: value for name, value in meta.items() if name != META_SUM}
    return zlib.crc32(json.dumps(rest, sort_keys=True).encode())


def id_dtype(vocabulary_size: int) -> np.dtype[Any]:
    """The smallest type that holds the ids of a vocabulary."""
    return np.dtype(np.uint16 if vocabulary_size < 2**16 else np.uint32)


def _side(folder: Path, name: str, meta: dict[str, Any]) -> FlatSentences:
    """One language of a corpus, mapped into memory."""
    pairs, tokens = meta["pairs"], meta[f"{name}_tokens"]
    return FlatSentences(
        _map(folder / f"{name}.ids", np.dtype(meta[f"{name}_dtype"]), tokens),
        _map(folder / f"{name}.lengths", np.dtype(np.int32), pairs),
        _map(folder / f"{name}.offsets", np.dtype(np.int64), pairs + 1),
    )


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
            self._sides = [_side(folder, name, meta) for name in SIDES]
            self.report = CorpusReport.from_json(meta["report"])
            self.parts = tuple(Part(*part) for part in meta["parts"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{folder}: not a complete encoded corpus ({error})") from error
        self.folder = folder
        self.key = str(meta["key"])
        """Digest of the text, the tokenizer and the length rule that made this corpus."""

    def __len__(self) -> int:
        return len(self._sides[0].lengths)

    def source(self, i: int) -> Ids:
        """Source ids of pair `i`, EOS last; a view [S] of the file."""
        return self._sides[0].row(i)

    def target(self, i: int) -> Ids:
        """Target ids of pair `i`, EOS last; a view [T] of the file."""
        return self._sides[1].row(i)

    def ids(self, side: str) -> Ids:
        """All ids of a side of SIDES, one sentence after the other, EOS counted; a view of the file."""
        return self._sides[SIDES.index(side)].ids

    def padded_source(self, rows: Rows) -> NDArray[np.int64]:
        """Source ids of pairs `rows` [B], PAD at the right: [B, S]."""
        return self._sides[0].padded(rows)

    def padded_target(self, rows: Rows) -> NDArray[np.int64]:
        """Target ids of pairs `rows` [B], PAD at the right: [B, T]."""
        return self._sides[1].padded(rows)

    def sentences(self, side: str, rows: Rows) -> FlatSentences:
        """Those of pairs `rows` on a side of SIDES, in this order."""
        return self._sides[SIDES.index(side)].taken(rows)

    def lengths(self, rows: Rows) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Source and target lengths of pairs `rows` [B], EOS counted: [B] each."""
        return self.source_lengths[rows], self.target_lengths[rows]

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        """Source lengths [pairs], EOS counted; a view of the file."""
        return self._sides[0].lengths

    @property
    def longest_source(self) -> int:
        """Tokens of the longest source sentence, EOS not counted; reads all lengths."""
        return int(self.source_lengths.max()) - 1

    @property
    def target_lengths(self) -> NDArray[np.int32]:
        """Target lengths [pairs], EOS counted; a view of the file."""
        return self._sides[1].lengths


def _map(path: Path, dtype: np.dtype[Any], count: int) -> Ids:
    with open_inside(path, within=path.parent) as stream:
        found = os.fstat(stream.fileno()).st_size
        if found != count * dtype.itemsize:
            raise ValueError(f"{path.name} has {counted(found, 'byte')} instead of {count * dtype.itemsize}")
        if count == 0:
            return np.empty(0, dtype)
        # A plain array over the map: slicing np.memmap itself costs several times as much.
        return np.asarray(np.memmap(stream, dtype, mode="r", shape=(count,)))


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
