"""The output of a command: standard output, or a file that appears only when it is complete."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from nmt.cli.descriptors import NoReaderError, has_no_reader, require
from nmt.errors import ConfigError, DataError
from nmt.files.errors import naming
from nmt.files.new import check_not_packed, unused_name
from nmt.interop.run_layout import check_no_part


class _Named(io.FileIO):
    """A file to write whose errors, such as a full disk, contain the name given by the user."""

    def __init__(self, path: Path, *, shown: str, new: bool) -> None:
        self._shown = shown
        super().__init__(path, "xb" if new else "wb")

    def write(self, block: Any, /) -> int:
        """Write some of the bytes and return how many."""
        with naming(self._shown):
            return super().write(block)


@contextlib.contextmanager
def output_stream(path: str | None, *, inputs: Sequence[str] = (), models: Sequence[str] = ()) -> Iterator[BinaryIO]:
    """A binary stream to standard output (None) or to a file that is not in `inputs` nor in the directories `models`.

    The file gets its name when the block ends without an error; until then, and after an error, the old file stays.
    Something that is not a regular file (a pipe, /dev/null) is written to directly.

    Raises:
        ConfigError: it is one of the inputs, or its name ends in .gz.
        CheckpointError: it is a part of a model.
        DataError: it cannot be written.
        NoReaderError: it is a pipe whose reader has gone away.
    """
    if path is None:
        require(1)
        with _without_reader(sys.stdout.buffer):
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        return
    check_not_packed(path)
    target = Path(os.path.realpath(path))  # a link stays a link to the new file
    for name in inputs:
        if target.exists() and Path(name).exists() and target.samefile(name):
            raise ConfigError(f"{path}: is also the input ({name}); choose another output file")
    check_no_part(target, models=models)
    if target.is_dir():
        raise DataError(f"{path}: is a directory; give the name of a file")
    if not target.parent.is_dir():
        raise DataError(f"{path}: there is no directory {target.parent}")
    is_special = target.exists() and not target.is_file()
    temporary = target if is_special else unused_name(target)
    try:
        with _open(temporary, shown=path, new=not is_special) as stream:
            yield stream
            stream.flush()
            if not is_special:
                os.fsync(stream.fileno())
        if not is_special:
            if target.exists():
                shutil.copymode(target, temporary)
            temporary.replace(target)
    except BaseException:
        if not is_special:
            temporary.unlink(missing_ok=True)
        raise


def check_reader(stream: BinaryIO) -> None:
    """Raise NoReaderError if the reader of `stream` has gone away; a stream in memory has a reader."""
    try:
        descriptor = stream.fileno()
    except (OSError, AttributeError):
        return
    if has_no_reader(descriptor):
        raise NoReaderError("the reader of the output has gone away")


@contextlib.contextmanager
def _open(path: Path, *, shown: str, new: bool) -> Iterator[BinaryIO]:
    """A `new` file, or a pipe or similar, to write to; errors name it `shown`."""
    with io.BufferedWriter(_Named(path, shown=shown, new=new)) as stream:
        try:
            with _without_reader(stream):
                yield stream
        except NoReaderError:
            with contextlib.suppress(BrokenPipeError):  # for it writes what it still holds
                stream.close()
            raise


@contextlib.contextmanager
def _without_reader(stream: BinaryIO) -> Iterator[None]:
    """A broken pipe elsewhere is an ordinary error; a broken pipe of the output has its own error and exit code."""
    try:
        yield
    except BrokenPipeError:
        check_reader(stream)
        raise
