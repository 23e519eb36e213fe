"""Encoded parallel text on disk: memory-mapped reading, and writing piece by piece."""

from __future__ import annotations

import glob
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.data.report import CorpusReport
from nmt.errors import DataError

Ids = NDArray[Any]
"""Token ids, uint16 or uint32."""

_META = "corpus.json"
_SIDES = ("source", "target")


def id_dtype(vocabulary_size: int) -> np.dtype[Any]:
    """The smallest type that holds the ids of a vocabulary."""
    return np.dtype(np.uint16 if vocabulary_size < 2**16 else np.uint32)


class EncodedSide(NamedTuple):
    """Sentences of one language, one after the other."""

    ids: Ids  # [sum of lengths]
    lengths: NDArray[np.int32]  # [sentences], the end symbol counted


class _Side:
    """One language of a corpus, mapped into memory."""

    def __init__(self, folder: Path, name: str, meta: dict[str, Any]) -> None:
        pairs, tokens = meta["pairs"], meta[f"{name}_tokens"]
        self.ids = _map(folder / f"{name}.ids", np.dtype(meta[f"{name}_dtype"]), tokens)
        self.lengths = _map(folder / f"{name}.lengths", np.dtype(np.int32), pairs)
        self.offsets = _map(folder / f"{name}.offsets", np.dtype(np.int64), pairs + 1)

    def row(self, i: int) -> Ids:
        return self.ids[self.offsets[i] : self.offsets[i + 1]]


class Corpus:
    """Encoded sentence pairs in a folder written by `CorpusWriter`.

    Nothing is read until it is asked for, so memory does not grow with the corpus. Every sentence
    ends with EOS, and lengths count it.
    """

    def __init__(self, folder: Path) -> None:
        try:
            meta = json.loads((folder / _META).read_text(encoding="utf-8"))
            self._sides = [_Side(folder, name, meta) for name in _SIDES]
            self.report = CorpusReport.from_json(meta["report"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{folder}: not a complete encoded corpus ({error}); delete it to encode again") from error
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

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        """Source lengths [pairs], EOS counted; a view of the file."""
        return self._sides[0].lengths

    @property
    def target_lengths(self) -> NDArray[np.int32]:
        """Target lengths [pairs], EOS counted; a view of the file."""
        return self._sides[1].lengths


def _map(path: Path, dtype: np.dtype[Any], count: int) -> Ids:
    found = path.stat().st_size
    if found != count * dtype.itemsize:
        raise ValueError(f"{path.name} has {found} bytes instead of {count * dtype.itemsize}")
    if count == 0:
        return np.empty(0, dtype)
    # A plain array over the map: slicing np.memmap itself costs several times as much.
    return np.asarray(np.memmap(path, dtype, mode="r", shape=(count,)))


class CorpusWriter:
    """Appends encoded pieces to the files of a folder; a context manager that closes them."""

    def __init__(self, folder: Path, *, source_size: int, target_size: int) -> None:
        self._folder = folder
        self._dtypes = (id_dtype(source_size), id_dtype(target_size))
        self._tokens = [0, 0]
        self._pairs = 0
        self._stack = ExitStack()
        self._files = {
            f"{name}.{part}": self._stack.enter_context((folder / f"{name}.{part}").open("wb"))
            for name in _SIDES
            for part in ("ids", "lengths", "offsets")
        }
        for name in _SIDES:
            self._files[f"{name}.offsets"].write(np.zeros(1, np.int64).tobytes())

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def append(self, source: EncodedSide, target: EncodedSide) -> None:
        """Add as many source as target sentences."""
        for i, (name, side) in enumerate(zip(_SIDES, (source, target), strict=True)):
            offsets = np.cumsum(side.lengths, dtype=np.int64) + self._tokens[i]
            self._tokens[i] += len(side.ids)
            for part, array in (
                ("ids", side.ids.astype(self._dtypes[i], copy=False)),
                ("lengths", side.lengths.astype(np.int32, copy=False)),
                ("offsets", offsets),
            ):
                self._files[f"{name}.{part}"].write(array.tobytes())
        self._pairs += len(source.lengths)

    def finish(self, report: CorpusReport, *, key: str) -> None:
        """Close the files and write what `Corpus` needs to open them."""
        self._stack.close()
        meta: dict[str, Any] = {"key": key, "pairs": self._pairs, "report": report.to_json()}
        for name, tokens, dtype in zip(_SIDES, self._tokens, self._dtypes, strict=True):
            meta |= {f"{name}_tokens": tokens, f"{name}_dtype": dtype.name}
        (self._folder / _META).write_text(json.dumps(meta, indent=1), encoding="utf-8")


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """A temporary folder that becomes `final` when the block ends well and vanishes otherwise.

    Another process may make the same folder meanwhile; then the first to finish wins.
    """
    try:
        yield from _new_folder(final)
    except OSError as error:
        place = error.filename or final
        raise DataError(f"{place}: cannot be written ({error.strerror})") from error


def _new_folder(final: Path) -> Iterator[Path]:
    final.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{final.name}-{socket.gethostname()}-"
    for left in final.parent.glob(f"{glob.escape(prefix)}*"):
        if not _is_running(left.name.removeprefix(prefix)):
            shutil.rmtree(left, ignore_errors=True)
    folder = final.with_name(f"{prefix}{os.getpid()}")
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed process that had our number
    folder.mkdir()
    try:
        yield folder
        try:
            os.rename(folder, final)
        except OSError:
            if not final.is_dir():
                raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_running(process: str) -> bool:
    """Whether a process of that number lives on this machine."""
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:  # it is of another user
        return True
    return True
