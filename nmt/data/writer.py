"""Writing an encoded corpus piece by piece, in a folder from which the work of a killed process can be continued."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sys
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.data.blocks import TextPosition
from nmt.data.corpus import META, META_SUM, SIDES, id_dtype, meta_sum
from nmt.data.flat_sentences import Ids
from nmt.data.report import CorpusReport
from nmt.data.sampling import Part
from nmt.errors import DataError
from nmt.files import LARGEST_RECORD, RefusedError, naming, own_file, read_inside, reason, replace_text, unreadable

_MARK = "done.json"
_LOCK = "lock"
_FILES = tuple(f"{name}.{kind}" for name in SIDES for kind in ("ids", "lengths", "offsets"))


class EncodedSide(NamedTuple):
    """Sentences of one language, one after the other."""

    ids: Ids  # [sum of lengths]
    lengths: NDArray[np.int32]  # [sentences], the end symbol counted


@dataclass
class _Written:
    """A file that is appended to: how long it is, and the CRC-32 of all that."""

    size: int = 0
    sum: int = 0


class CorpusWriter:
    """Appends encoded pieces to the files of a folder; a context manager that closes them.

    After `mark` everything up to there is kept: a new writer in the same folder, with the same
    key, checks size and sum of what is there, cuts off what came later and continues from
    `position` with `report`. What is damaged, or of another key, is written anew.
    """

    def __init__(self, folder: Path, *, source_size: int, target_size: int, key: str, parts: int = 1) -> None:
        """`parts`: how many prefixes of text the pairs come from."""
        self.position = TextPosition()
        """Position of the first text that has not been encoded."""
        self.report = CorpusReport()
        """The report of the text before it."""
        self._folder, self._key = folder, key
        self._dtypes = dict(zip(SIDES, (id_dtype(source_size), id_dtype(target_size)), strict=True))
        self._files = {name: _Written() for name in _FILES}
        self._parts = [Part(0, 0)] * parts
        self._restore()
        self._stack = contextlib.ExitStack()
        self._streams = {name: self._stack.enter_context(_open(folder / name, self._files[name])) for name in _FILES}
        for name in SIDES:
            if not self._files[f"{name}.offsets"].size:
                self._write(f"{name}.offsets", np.zeros(1, np.int64))

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def append(self, source: EncodedSide, target: EncodedSide, *, part: int = 0) -> None:
        """Add as many source as target sentences, of prefix number `part`; parts come in order."""
        for name, side in zip(SIDES, (source, target), strict=True):
            dtype = self._dtypes[name]
            before = self._files[f"{name}.ids"].size // dtype.itemsize
            self._write(f"{name}.ids", side.ids.astype(dtype, copy=False))
            self._write(f"{name}.lengths", side.lengths.astype(np.int32, copy=False))
            self._write(f"{name}.offsets", np.cumsum(side.lengths, dtype=np.int64) + before)
        pairs, cost = self._parts[part]
        longer = np.maximum(source.lengths, target.lengths).sum(dtype=np.int64)
        self._parts[part] = Part(pairs + len(source.lengths), cost + int(longer))

    def mark(self, position: TextPosition, report: CorpusReport) -> None:
        """Write everything to the files, with the next position and the report so far."""
        for stream in self._streams.values():
            stream.flush()
        self.position, self.report = position, report
        replace_text(self._folder / _MARK, json.dumps(self._state(), indent=1))

    def finish(self, report: CorpusReport) -> None:
        """Close the files and write what `Corpus` needs to open them."""
        self._stack.close()
        pairs = sum(part.pairs for part in self._parts)
        meta: dict[str, Any] = {"key": self._key, "pairs": pairs, "parts": self._parts, "report": report.to_json()}
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

    def _state(self) -> dict[str, Any]:
        return {
            "key": self._key,
            "position": self.position,
            "report": self.report.to_json(),
            "parts": self._parts,
            "files": {name: asdict(written) for name, written in self._files.items()},
        }

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


def _open(path: Path, written: _Written) -> Any:
    """A stream that appends after what is known to be good."""
    stream = open(path, "r+b" if written.size else "wb", opener=own_file)  # noqa: SIM115  (the writer closes it)
    stream.truncate(written.size)
    stream.seek(written.size)
    return stream


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
            _wait_for(lock, partial)
            # The previous holder may have removed or renamed the folder together with the lock.
            if os.path.samestat(os.fstat(lock.fileno()), (partial / _LOCK).stat()):
                return
        except FileNotFoundError:
            continue


def _wait_for(lock: Any, partial: Path) -> None:
    """Take the lock; the kernel releases it when the process that holds it ends, however that happens."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"{partial}: another process encodes this text; waiting for it", file=sys.stderr, flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:  # a file system without locks: training there must still be possible
        pass
