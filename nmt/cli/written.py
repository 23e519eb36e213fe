"""The output of nmt-translate: translations in a format, and optionally their alignments in a separate file."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from nmt.cli.formats import as_result
from nmt.cli.output import output_stream
from nmt.errors import ConfigError
from nmt.light.formats import FORMATS, as_pharaoh, without_alignment
from nmt.light.output import STDOUT, is_one_file

if TYPE_CHECKING:
    from nmt.search import Translation
    from nmt.search.values import Details


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

    def write(self, number: int, translation: Translation, *, n_best: int, notes: Sequence[str]) -> None:
        """Write the translation of line `number`, counted from 0."""
        result = as_result(translation)
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
    given: list[str | None] = [arguments.output, arguments.alignment]
    output, alignment = (name if name is None or is_main else os.devnull for name in given)
    if alignment is not None and is_one_file(output or STDOUT, alignment):
        raise ConfigError(f"--alignment {alignment}: is also the output; choose another file")
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(output_stream(output, inputs=inputs, models=arguments.models))
        aligned = None
        if alignment is not None:
            aligned = stack.enter_context(output_stream(alignment, inputs=inputs, models=arguments.models))
        yield Writer(stream, aligned, form=arguments.format, details=arguments.details)
