"""The two files of a prefix while they are written: everything up to the record's position is valid, the rest is
ignored."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from nmt.data.text import check_hides_no_packed
from nmt.errors import ConfigError, DataError
from nmt.files import check_not_packed, naming, reason
from nmt.interop.run_layout import check_no_part
from nmt.synthetic.counts import Counts
from nmt.synthetic.record import Progress, Work, read_record, write_record

RECORD = "manifest.json"
PARTIAL = ".partial"
"""End of the names of files that are not whole yet."""


class Output:
    """The files of one work. Until all is done, they have temporary names in the same directory."""

    def __init__(self, prefix: str, work: Work) -> None:
        """Nothing is read or written yet; ConfigError or CheckpointError where the files are others that are needed."""
        self.prefix = prefix
        self._work = work
        self.facts = work.facts()
        self.record = Path(f"{prefix}.{RECORD}")
        self.files = [Path(f"{prefix}.{language}") for language in work.languages]
        self._partial = [path.with_name(path.name + PARTIAL) for path in self.files]
        self._check_names()

    def progress(self, *, overwrite: bool = False) -> Progress:
        """The progress of the work, by the record; with `overwrite` it starts from nothing.

        Raises:
            ConfigError: the files belong to other work.
            DataError: files with these names belong to no work, or would hide a .gz; or the record cannot be used.
        """
        found = None if overwrite else read_record(self.record, self.facts)
        if found is not None:
            return found
        for path in self.files:
            check_hides_no_packed(path)
            if path.exists() and not overwrite:
                raise DataError(f"{path}: exists already; give another prefix or --overwrite")
        return Progress()

    @contextlib.contextmanager
    def writing(self, progress: Progress) -> Iterator[Writer]:
        """Continue from this progress.

        Raises DataError if another process writes the files, if recorded text is missing, or if writing fails.
        """
        with contextlib.ExitStack() as stack:
            with _writing_errors(self.prefix):
                self.record.parent.mkdir(parents=True, exist_ok=True)
                streams = [stack.enter_context(_opened(path)) for path in self._partial]
                _lock(streams[0], self.prefix)
                self._save(progress)  # which may belong to other work
                for stream, path, size in zip(streams, self._partial, progress.sizes, strict=True):
                    _cut(stream, path, size)
            yield Writer([*zip(streams, self._partial, strict=True)], progress, self._save)

    def finish(self, progress: Progress) -> None:
        """Give the files of finished work their names; after a kill in between, calling it again completes it.

        Raises DataError if they do not match the record.
        """
        with _writing_errors(self.prefix):
            for partial, path, size in zip(self._partial, self.files, progress.sizes, strict=True):
                if partial.exists():
                    partial.replace(path)
                if not path.is_file() or path.stat().st_size != size:
                    what = "has changed" if path.exists() else "is gone"
                    raise DataError(f"{path}: {what} since {self.record} was written; start again with --overwrite")

    def _save(self, progress: Progress) -> None:
        """Write the progress to the record; the recorded text is already on disk."""
        write_record(self.record, self._work, self.facts, progress)

    def _check_names(self) -> None:
        if not Path(self.prefix).name or self.prefix.endswith("/"):
            raise ConfigError(f"{self.prefix}: is not a prefix of files, such as data/made")
        inputs = [path for part in self._work.texts.parts for path in (part.source, part.reference) if path is not None]
        for path in self.files:
            check_not_packed(path)
            for name in (path, Path(f"{path}.gz")):
                if name.exists() and any(name.samefile(given) for given in inputs):
                    raise ConfigError(f"{name}: is also the text to translate; choose another prefix")
            check_no_part(path, models=self._work.models)
            if path.is_dir():
                raise DataError(f"{path}: is a directory; give another prefix")


class Writer:
    """Appends pairs, some at a time."""

    def __init__(
        self, files: Sequence[tuple[BinaryIO, Path]], progress: Progress, save: Callable[[Progress], object]
    ) -> None:
        self._files = files
        self._progress = progress
        self._save = save

    def append(self, pairs: Iterable[tuple[str, str]], counts: Counts, *, is_last: bool) -> None:
        """Write pairs, then record that so much, `counts` with these pairs, is done; DataError where that fails."""
        texts = ["".join(f"{line}\n" for line in side).encode() for side in zip(*pairs, strict=True)]
        for place, ((stream, path), text) in enumerate(zip(self._files, texts, strict=True)):
            with _writing_errors(path):
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            self._progress.sizes[place] += len(text)
        self._progress.counts, self._progress.is_whole = counts, is_last
        with _writing_errors(self._files[0][1]):
            self._save(self._progress)


@contextlib.contextmanager
def _writing_errors(path: Path | str) -> Iterator[None]:
    """What cannot be written is a DataError, which names this file where the error itself names none."""
    try:
        with naming(path):
            yield
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be written ({reason(error)})") from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    stream = open(descriptor, "r+b")  # noqa: SIM115  (closed below)
    try:
        yield stream
    finally:
        with contextlib.suppress(OSError):  # a full disk, once more; the recorded text is already on disk
            stream.close()


def _cut(stream: BinaryIO, path: Path, size: int) -> None:
    """Forget what was written after the record."""
    if stream.seek(0, os.SEEK_END) < size:
        raise DataError(f"{path}: is shorter than recorded; start again with --overwrite")
    stream.truncate(size)
    stream.seek(size)


def _lock(stream: BinaryIO, prefix: str) -> None:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise DataError(f"{prefix}: another process is writing it") from error
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):  # of a file system without locks
            raise
