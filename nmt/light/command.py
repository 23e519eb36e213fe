"""nmt-light: lines of text in, their translations out, by the engine alone."""

from __future__ import annotations

import argparse
import gzip
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

from .errors import EngineError
from .translator import Translator

_BLOCK: Final = 1 << 20
_LONGEST: Final = 64 << 20  # bytes of a line
_SHOWN: Final = 5


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-light."""
    parser = argparse.ArgumentParser(
        prog="nmt-light",
        description="Translate text line by line, standard input to standard output by default. Lines are answered in "
        "order, an empty line with an empty line.",
        allow_abbrev=False,
    )
    parser.add_argument("models", metavar="MODEL", nargs="+", help="what nmt-export wrote; several are an ensemble")
    parser.add_argument("-i", "--input", metavar="FILE", help="text to translate, .gz too (default: standard input)")
    parser.add_argument("-o", "--output", metavar="FILE", help="written when all is done (default: standard output)")
    parser.add_argument("--search", choices=("auto", "beam", "greedy"), help="auto: greedy for a beam of 1, else beam")
    parser.add_argument("--beam-size", metavar="K", type=int, help="hypotheses kept")
    parser.add_argument("--length-penalty", metavar="A", type=float, help="0 to 10")
    parser.add_argument("--max-length-offset", metavar="N", type=int, help="tokens more than the source has")
    parser.add_argument(
        "--split-long", metavar="N", type=_number_or_none, help="lines of more tokens in parts, or none"
    )
    parser.add_argument("--no-shortlist", action="store_true", help="choose from all words")
    parser.add_argument("--threads", metavar="N", type=int, default=os.cpu_count() or 1, help="(default: %(default)s)")
    parser.add_argument("--kernels", metavar="NAME", help="instruction set to compute with (default: the best)")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but mistakes")
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 done, 1 data, 2 usage, 130 interrupted, 143 terminated."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever reads has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except (EngineError, OSError) as error:
        if arguments.debug:
            raise
        print(f"nmt-light: {_said(error)}", file=sys.stderr)
        return 2 if isinstance(error, _UsageError) else 1


class _UsageError(EngineError):
    """An option that cannot be had."""


def _terminate(*_: object) -> None:
    sys.exit(143)


def _said(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'standard output'}: {error.strerror or error}"
    return str(error)


def _number_or_none(text: str) -> int | str:
    return text if text == "none" else int(text)


def _run(arguments: argparse.Namespace) -> int:
    translator = Translator(arguments.models, kernels=arguments.kernels)
    options: dict[str, Any] = {
        name: getattr(arguments, name)
        for name in ("search", "beam_size", "length_penalty", "max_length_offset", "split_long", "threads")
    }
    options |= {"scores": False, "shortlist": not arguments.no_shortlist}
    try:
        translator.texts([], **options)
    except EngineError as error:
        raise _UsageError(str(error)) from None
    counts = _Counts()
    with _input(arguments.input) as source, _Output(arguments.output, source=arguments.input) as output:
        for lines in _windows(source):
            output.write("".join(f"{text}\n" for text in counts.translated(translator, lines, options)).encode())
    if counts.problems and not arguments.quiet:
        print(f"nmt-light: {counts.lines} lines; {'; '.join(counts.problems)}", file=sys.stderr)
    return 1 if counts.not_finite else 0


class _Counts:
    """Lines, and those that are to be looked at."""

    def __init__(self) -> None:
        self.lines = 0
        self.not_utf8: list[int] = []
        self.cut: list[int] = []
        self.split: list[int] = []
        self.not_finite: list[int] = []

    def translated(self, translator: Translator, lines: Sequence[bytes], options: dict[str, Any]) -> Iterator[str]:
        """The translations of more lines."""
        texts = [line.decode("utf-8", "replace") for line in lines]
        kinds = {"length_limit": self.cut, "split": self.split, "no_finite_translation": self.not_finite}
        for raw, result in zip(lines, translator.translate(texts, **options), strict=True):
            self.lines += 1
            if "\ufffd" in result.source and raw != result.source.encode():
                self.not_utf8.append(self.lines)
            for note in result.notes:
                kinds[note].append(self.lines)
            yield result.text

    @property
    def problems(self) -> list[str]:
        """What there is to say, with the numbers of the first lines."""
        said = (
            (self.not_finite, "without a translation of finite probability"),
            (self.cut, "stopped at the length limit"),
            (self.split, "translated in parts (--split-long)"),
            (self.not_utf8, "not UTF-8, read with U+FFFD in place of such bytes"),
        )
        return [f"{len(found)} {what} ({_numbers(found)})" for found, what in said if found]


def _numbers(found: Sequence[int]) -> str:
    more = ", ..." if len(found) > _SHOWN else ""
    return "line " + ", ".join(map(str, found[:_SHOWN])) + more


def _input(path: str | None) -> IO[bytes]:
    if path in (None, "-"):
        return open(0, "rb", buffering=0, closefd=False)
    return gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb", buffering=0)  # type: ignore[return-value]


def _windows(source: IO[bytes]) -> Iterator[list[bytes]]:
    """Complete lines, as many as are there at a time: of a pipe what has come, of a file about a megabyte."""
    rest = b""
    while block := source.read(_BLOCK):
        *lines, rest = (rest + block).split(b"\n")
        if len(rest) > _LONGEST:
            raise EngineError(f"{source.name}: a line is longer than {_LONGEST >> 20} MiB; is it text?")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest.removesuffix(b"\r")]


class _Output:
    """Standard output, or a file that gets its name when all is written."""

    def __init__(self, path: str | None, *, source: str | None) -> None:
        self._path = None if path in (None, "-") else Path(path)
        if self._path is not None and source is not None and self._path.exists() and self._path.samefile(source):
            raise _UsageError(f"{path}: is also the input; the output needs another name")
        self._part = None if self._path is None else self._path.with_name(f".{self._path.name}.{os.getpid()}")
        self._stream: IO[bytes] = os.fdopen(os.dup(1), "wb") if self._part is None else self._part.open("xb")

    def write(self, block: bytes) -> None:
        """Write, so that a reader has it now."""
        self._stream.write(block)
        self._stream.flush()

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stream.close()
        if self._path is None or self._part is None:
            return
        if kind is None:
            self._part.replace(self._path)
        else:
            self._part.unlink()


if __name__ == "__main__":
    sys.exit(main())
