"""The output of a command: standard output, or a file that appears only when it is complete; translations in it."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from nmt.cli.descriptors import NoReaderError, has_no_reader, require
from nmt.errors import ConfigError, DataError
from nmt.files import check_not_packed, naming
from nmt.interop.run_layout import check_no_part
from nmt.light.formats import FORMATS, as_pharaoh, without_alignment
from nmt.light.output import STDOUT, Written, descriptor_of, is_input, is_one_file

if TYPE_CHECKING:
    from nmt.light.results import Result
    from nmt.search.values import Details


@contextlib.contextmanager
def output_stream(path: str | None, *, inputs: Sequence[str] = (), models: Sequence[str] = ()) -> Iterator[BinaryIO]:
    """A binary stream to standard output (None, or `-`) or to a file that is not in `inputs` nor in the directories
    `models`.

    The file gets its name when the block ends without an error; until then, and after an error, the old file stays.
    What is no plain file of the user's own is written in place: see `nmt.light.output.Written`.

    Raises ConfigError for one of the inputs and for a name that ends in .gz, CheckpointError for a part of a model,
    DataError for what cannot be written, NoReaderError for a pipe whose reader has gone away.
    """
    own = None if path is None else 1 if path == STDOUT else descriptor_of(path)
    for name in inputs:
        if is_input(path or STDOUT, name):
            shown = "standard output" if path in (None, STDOUT) else path
            raise ConfigError(f"{shown}: is also the input ({name}); choose another output file")
    if path is None or own == 1:
        require(1)
        with _without_reader(sys.stdout.buffer):
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        return
    if own is None:
        check_not_packed(path)
        target = Path(os.path.realpath(path))  # a link stays a link to the new file
        check_no_part(target, models=models)
        if target.is_dir():
            raise DataError(f"{path}: is a directory; give the name of a file")
        if not target.parent.is_dir() and not target.exists():
            raise DataError(f"{path}: there is no directory {target.parent}")
    with naming(path, unfinished=f"-{os.getpid()}-"):
        written = Written(path)
    try:
        with _without_reader(written.stream):
            yield cast("BinaryIO", _Named(written.stream, shown=path))
            with naming(path):
                written.stream.flush()
        with naming(path, unfinished=f"-{os.getpid()}-"):
            written.finish()
    except BaseException:
        with contextlib.suppress(OSError):  # for it writes what it still holds
            written.discard()
        raise


class _Named:
    """A stream whose errors of writing, such as a full disk, contain the name given by the user."""

    def __init__(self, stream: BinaryIO, *, shown: str) -> None:
        self._stream, self._shown = stream, shown

    def write(self, block: Any) -> int:
        """Write the bytes and return how many."""
        with naming(self._shown):
            return self._stream.write(block)

    def writelines(self, blocks: Iterable[Any]) -> None:
        """Write all of them."""
        for block in blocks:
            self.write(block)

    def flush(self) -> None:
        """Send what is held on."""
        with naming(self._shown):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def check_reader(stream: BinaryIO) -> None:
    """Raise NoReaderError if the reader of `stream` has gone away; a stream in memory has a reader."""
    try:
        descriptor = stream.fileno()
    except (OSError, AttributeError):
        return
    if has_no_reader(descriptor):
        raise NoReaderError("the reader of the output has gone away")


@contextlib.contextmanager
def _without_reader(stream: BinaryIO) -> Iterator[None]:
    """A broken pipe elsewhere is an ordinary error; a broken pipe of the output has its own error and exit code."""
    try:
        yield
    except BrokenPipeError:
        check_reader(stream)
        raise


class Writer:
    """Writes translations, one after the other."""

    def __init__(self, output: BinaryIO, alignment: BinaryIO | None, *, form: str, details: Details) -> None:
        """`form` is one of FORMATS; `details` are written in addition to text and score."""
        self.output = output
        self._alignment = alignment
        self._written = FORMATS[form]
        self._shows_alignment = "alignment" in details
        self.details: Details = details if alignment is None else tuple(dict.fromkeys((*details, "alignment")))
        """The details that each translation must have."""

    def write(self, number: int, result: Result, *, n_best: int, notes: Sequence[str]) -> None:
        """Write the translation of line `number`, counted from 0."""
        if self._alignment is not None:
            self._alignment.write(as_pharaoh(result).encode())
            result = result if self._shows_alignment else without_alignment(result)
        self.output.write(self._written(number, result, n_best=n_best, notes=notes).encode())

    def flush(self) -> None:
        """Flush the output."""
        self.output.flush()
        if self._alignment is not None:
            self._alignment.flush()


@contextlib.contextmanager
def opened_writer(arguments: argparse.Namespace, *, inputs: Sequence[str], is_main: bool) -> Iterator[Writer]:
    """A writer to the files of a command line; with several processes only the main one writes.

    Raises the errors of `output_stream`, and ConfigError for two outputs in one file.
    """
    output, alignment = (
        name if name is None or is_main else os.devnull for name in (arguments.output, arguments.alignment)
    )
    if alignment is not None and is_one_file(output or STDOUT, alignment):
        raise ConfigError(f"--alignment {alignment}: is also the output; choose another file")
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(output_stream(output, inputs=inputs, models=arguments.models))
        aligned = None
        if alignment is not None:
            aligned = stack.enter_context(output_stream(alignment, inputs=inputs, models=arguments.models))
        yield Writer(stream, aligned, form=arguments.format, details=arguments.details)
