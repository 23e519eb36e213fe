"""Reading text: lines, also those that are not UTF-8, in blocks, in windows or as a sample; the sides of a corpus."""

from __future__ import annotations

import errno
import io
import os
import sys
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, filterfalse, islice, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final, Literal, NamedTuple, TypeVar

from nmt.errors import DataError, counted, missing
from nmt.light.counts import Noted
from nmt.light.lines import LONGEST_LINE, MARK, is_wide, not_utf8
from nmt.registry import FORMS
from nmt.system import expanded
from nmt.texts import PACKED, Names, as_list, directed, placed, read_name

T = TypeVar("T")

_FETCHED_BY = {("data", name): f"nmt-data {name}" for name in ("multi30k", "tatoeba", "wmt14")}

PAUSE = 0.001
"""Seconds without a line that end a window: a sender that waits for the answer is not kept waiting, and one that is
just writing a file into the pipe has not stopped."""
PATIENCE = 0.02
"""Seconds, counted from its first line, after which a window takes only what is already here. Without it, one line
every half millisecond would delay the first until the window is full."""
CHARACTERS = 1 << 22
"""A window that holds so many gets no further line, so that long lines do not fill the memory."""

Arrives = Callable[[float], bool]
"""Whether the next line, or the end of the input, is here within so many seconds."""


Policy = Literal["strict", "replace", "empty"]
POLICIES: Final[Sequence[Policy]] = ("strict", "replace", "empty")
_FATE: Final = MappingProxyType({"replace": "such bytes replaced by U+FFFD", "empty": "read as empty"})


class NotUtf8Error(DataError):
    """A line that is not UTF-8, where the user of the text chose, or could have chosen, what becomes of it."""


class Undecodable:
    """The rule for such lines of one text, and the lines found.

    `strict` raises DataError at the first, `replace` reads it with U+FFFD in place of the bytes that are not UTF-8,
    `empty` as an empty line.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        """Without a policy the text must be UTF-8, as with `strict`, but nobody can choose otherwise."""
        self.policy: Policy = policy or "strict"
        self._error = DataError if policy is None else NotUtf8Error
        self.noted = Noted()
        self.first = ""
        """The message about the first of them, where the policy is not `strict`."""
        self._unasked: set[int] = set()

    def decoded(self, raw: bytes, *, name: str, number: int) -> str:
        """The text of line `number` (from 1) of the text `name`, its line end included.

        Raises DataError naming both for bytes that are not UTF-8 where the policy is `strict`.
        """
        try:
            if not is_wide(raw):
                return raw.decode("utf-8")
        except UnicodeDecodeError:
            pass
        if self.policy == "strict":
            raise self._error(f"{name}, line {number}: {not_utf8(raw)}")
        self.first = self.first or f"{name}, line {number}: {not_utf8(raw)}"
        self.noted.add(number)
        self._unasked.add(number)
        return raw.decode("utf-8", "replace") if self.policy == "replace" else ""

    def had(self, number: int) -> bool:
        """Whether line `number`, from 1, was such a line; may be called once for each line."""
        found = number in self._unasked
        self._unasked.discard(number)
        return found

    def summary(self) -> str:
        """A message about these lines and their treatment; only if there were any."""
        return self.noted.said(f"not UTF-8, {_FATE[self.policy]}")


class FilePair(NamedTuple):
    """Source and target file of one prefix."""

    source: Path
    target: Path


class ParallelText(NamedTuple):
    """Lines of both sides, equally many; line i of one translates line i of the other."""

    source: list[str]
    target: list[str]


def read_lines(
    source: str | os.PathLike[str] | IO[Any],
    *,
    name: str | None = None,
    keep_returns: bool = False,
    keep_mark: bool = False,
    undecodable: Undecodable | None = None,
) -> Iterator[str]:
    r"""Yield the lines of a file (plain or .gz) or of an open stream, without their line ends.

    Only "\n" ends a line, and one "\r" before it belongs to the line end. Every other character,
    U+0085, U+2028 and NUL included, is data; with `keep_returns` every "\r" is. A byte order mark at the beginning is
    not, unless with `keep_mark`. `name` is the name of a stream in errors. Raises DataError naming file and line for
    bytes that are not UTF-8, unless `undecodable` has another rule, and naming the file if it is missing or damaged.
    """
    undecodable = Undecodable() if undecodable is None else undecodable
    mark = "" if keep_mark else "\ufeff"
    if isinstance(source, (str, os.PathLike)):
        name = name or os.fspath(source)
        try:
            with open_bytes(Path(source)) as stream:
                yield from _lines(stream, name, undecodable, ending="\n" if keep_returns else "\r\n", mark=mark)
        except FileNotFoundError as error:
            raise DataError(missing(name)) from error
        except (OSError, EOFError, zlib.error) as error:
            said = getattr(error, "strerror", None)
            reason = f"cannot be read ({said})" if said else f"not a readable gzip file ({error})"
            raise DataError(f"{name}: {reason}") from error
    else:
        name = name or str(getattr(source, "name", "<stream>"))
        # A text stream would translate line ends itself; the bytes below it are what was sent.
        stream = getattr(source, "buffer", source)
        yield from _lines(stream, name, undecodable, ending="\n" if keep_returns else "\r\n", mark=mark)


def open_bytes(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked if its name ends in .gz or .zst; lines are those that "\n" ends."""
    return unpacked_stream(path.open("rb"), path)


def unpacked_stream(stream: Any, path: Path) -> Any:
    """The bytes of an open file of this name, unpacked; DataError where that needs a library that is missing."""
    if path.suffix == ".gz":
        import gzip  # late: a command that has nothing to unpack starts sooner

        # Buffered once more, because GzipFile itself takes several times as long for a line.
        return io.BufferedReader(gzip.GzipFile(fileobj=stream))
    if path.suffix == ".zst":
        try:
            import zstandard  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise DataError(f"{path}: needs zstandard: pip install 'nmt-recurrent[zstd]'") from None
        unpacked = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
        return io.BufferedReader(_Zst(unpacked, zstandard.ZstdError))
    return stream


class _Zst(io.RawIOBase):
    """The bytes of a .zst file; OSError where they cannot be unpacked."""

    def __init__(self, unpacked: Any, error: type[Exception]) -> None:
        self._unpacked, self._error = unpacked, error

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return int(self._unpacked.readinto(buffer))
        except self._error as error:
            raise OSError(errno.EINVAL, f"not a readable zstd file: {error}") from None


def _lines(stream: IO[Any], name: str, undecodable: Undecodable, *, ending: str, mark: str) -> Iterator[str]:
    """Lines without `mark` before the first and without `ending`, or the "\n" of it where they end in no more."""
    lines: Iterable[Any] = stream  # whose length the caller limits, unless it can be limited here, to bound the memory
    if hasattr(stream, "readline"):
        lines = iter(partial(stream.readline, LONGEST_LINE + 1), stream.read(0))
    for number, raw in enumerate(lines, start=1):
        if len(raw) > LONGEST_LINE:
            raise DataError(f"{name}, line {number}: longer than {LONGEST_LINE >> 20} MiB; is it text?")
        # A StringIO has no bytes below it.
        line = raw if isinstance(raw, str) else undecodable.decoded(raw, name=name, number=number)
        if number == 1:
            line = line.removeprefix(mark)
        if line.endswith("\n"):
            line = line[: -len(ending)] if line.endswith(ending) else line[:-1]
        yield line


def stored(plain: str | Path) -> Path | None:
    """This file or, where it is missing, the same name with .gz or .zst after it; None if none exists."""
    names = [Path(f"{plain}{ending}") for ending in ("", *PACKED)]
    return next((path for path in names if path.is_file()), None)


def named_files(names: str | Sequence[str] | None) -> list[Path]:
    """The files of a key of the configuration: each as it is named or, where that is missing, packed."""
    return [stored(name) or Path(name) for name in as_list(names)]


def find_file(prefix: str | os.PathLike[str], language: str) -> Path:
    """The file PREFIX.language or, where that is missing, PREFIX.language.gz.

    Raises DataError naming both, and the command that fetches them for the data the shipped configurations use.
    """
    plain = Path(f"{os.fspath(prefix)}.{language}")
    found = stored(plain)
    if found is not None:
        return found
    message = f"neither {plain} nor {plain}.gz exists"
    for folder, command in _FETCHED_BY.items():
        if plain.parent.parts[-2:] == folder:
            message += f"; {command} fetches the data"
    raise DataError(message)


def check_hides_no_packed(plain: Path) -> None:
    """Raise DataError if PLAIN.gz exists, which `find_file` would find no longer once the file `plain` is written."""
    for packed in (Path(f"{plain}{ending}") for ending in PACKED):
        if packed.exists():
            what = f"{packed}: exists, but {plain} would be read in its place"
            raise DataError(f"{what}; move it away or give another prefix")


def find_pair(name: str, source_language: str, target_language: str) -> FilePair:
    """The files of both sides of a text: those of a prefix, two that are named, or those that one file is read into.

    The languages are those that the name itself says, if it does. Raises DataError for the first that is missing.
    """
    text = directed(name)
    languages = text.languages or (source_language, target_language)
    found = read_name(text.name)
    files: list[Path | None] = []
    if is_prefix(text.name, languages):
        files += [find_file(text.name, language) for language in languages]
    else:
        files += [stored(expanded(file)) for file in found.files]
        for file, path in zip(found.files, files, strict=True):
            if path is None:
                raise DataError(missing(file))
        if found.form:
            files = [*FORMS.get(found.form)().sides(files[0], found.columns, languages)]
    return FilePair(*filter(None, reversed(files) if text.arrow == "<" else files))


def is_prefix(name: str, languages: Sequence[str]) -> bool:
    """Whether a text is named by the prefix of its files: one of these exists, or it could be nothing else."""
    return read_name(name) == ((name,), "", ()) or any(stored(f"{name}.{language}") for language in languages)


def find_pairs(prefixes: Names, source_language: str, target_language: str, *, key: str) -> list[FilePair]:
    """The files of every text; DataError starts with `key`, the configuration key that names them."""
    try:
        return [find_pair(prefix, source_language, target_language) for prefix in as_list(prefixes)]
    except DataError as error:
        raise DataError(f"{key}: {error}") from error


def missing_pairs(prefixes: Names, source_language: str, target_language: str, *, key: str) -> list[tuple[str, str]]:
    """The key of each text of which a file is missing or cannot be read, with each message about it."""
    found = []
    for place, name in placed(prefixes, key):
        text = directed(name)
        languages = text.languages or (source_language, target_language)
        sides = [[language] for language in languages] if is_prefix(text.name, languages) else [languages]
        for side in sides:
            try:
                find_pair(name, *languages) if len(side) == 2 else find_file(text.name, *side)
            except DataError as error:
                found.append((place, str(error)))
    return found


def read_pairs(
    pair: FilePair, *, undecodable: tuple[Undecodable, Undecodable] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the (source, target) lines of two files; `undecodable` has a rule for each, see `read_lines`.

    Raises DataError naming both files and their line counts when those differ.
    """
    sides = [0, 0]
    rules = (Undecodable(), Undecodable()) if undecodable is None else undecodable
    texts = [read_lines(path, undecodable=rule) for path, rule in zip(pair, rules, strict=True)]
    for source, target in zip_longest(*texts):
        sides[0] += source is not None
        sides[1] += target is not None
        if sides[0] == sides[1]:
            yield source, target
    if sides[0] != sides[1]:
        raise unequal(pair, *sides)


def unequal(pair: FilePair, source_lines: int, target_lines: int) -> DataError:
    """The message about two files that cannot belong together, one of which may be UTF-16, with lines of its own."""
    return wide(*pair) or DataError(
        f"{pair.source} has {counted(source_lines, 'line')} but {pair.target} has {target_lines}; "
        "the two sides of a corpus must have the same number"
    )


def wide(*paths: Path) -> DataError | None:
    """The message about the first of these files that is UTF-16 or UTF-32, whose lines are others than ours."""
    for path in paths:
        with open_bytes(path) as stream:
            first = stream.readline(LONGEST_LINE)
        if is_wide(first):
            return DataError(f"{path}, line 1: {not_utf8(first)}")
    return None


def nothing_in(pairs: Sequence[FilePair]) -> DataError:
    """The message about files without a line."""
    return DataError(f"the corpus is empty: no line in {', '.join(str(path) for pair in pairs for path in pair)}")


def read_parallel(
    prefixes: str | Sequence[str],
    source_language: str,
    target_language: str,
    *,
    key: str = "data",
    tagged: bool = False,
) -> ParallelText:
    """Read both sides of all prefixes, every line kept, in order.

    `tagged`: each source is what a model with `data.target_tag` reads, such as `>>de<< A dog.`

    Raises DataError naming the files if they are missing, undecodable, of unequal length or empty.
    """
    text = ParallelText([], [])
    pairs = find_pairs(prefixes, source_language, target_language, key=key)
    for name, pair in zip(as_list(prefixes), pairs, strict=True):
        tag = f"{directed(name).target_tag(target_language)} " if tagged else ""
        for source, target in read_pairs(pair):
            text.source.append(tag + source if source.strip() else source)
            text.target.append(target)
    if not text.source:
        raise DataError(f"{key}: {', '.join(str(pair.source) for pair in pairs) or 'no file'} has no line")
    return text


class TextPosition(NamedTuple):
    """A place between two lines of a list of file pairs."""

    pair: int = 0
    """Pairs of files that are behind it."""
    lines: int = 0
    """Lines of the next pair that are behind it."""
    source_byte: int = 0
    """Where the next source line begins in the (unpacked) file."""
    target_byte: int = 0


class Block(NamedTuple):
    """Consecutive lines of one pair of files, the same number from each side."""

    files: FilePair
    first_line: int
    """Number of its first line, from 1."""
    source: bytes
    target: bytes
    after: TextPosition


def read_blocks(pairs: Sequence[FilePair], *, lines: int, start: TextPosition) -> Iterator[Block]:
    """Yield all text of `pairs` from `start` on, `lines` lines at a time.

    Raises DataError naming the files when one side of a pair ends before the other, or a file
    cannot be read.
    """
    for part in range(start.pair, len(pairs)):
        files, at = pairs[part], start if part == start.pair else TextPosition(part)
        try:
            with open_bytes(files.source) as source, open_bytes(files.target) as target:
                source.seek(at.source_byte)
                target.seek(at.target_byte)
                while True:
                    left, right = list(islice(source, lines)), list(islice(target, lines))
                    if len(left) != len(right):
                        raise unequal(files, *(sum(1 for _ in read_lines(path)) for path in files))
                    if not left:
                        break
                    texts, first = (b"".join(left), b"".join(right)), at.lines + 1
                    at = TextPosition(
                        part, at.lines + len(left), at.source_byte + len(texts[0]), at.target_byte + len(texts[1])
                    )
                    yield Block(files, first, *texts, at)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{files.source} and its other side: cannot be read ({error})") from error


def split_lines(block: bytes, path: Path, *, first_line: int = 1) -> list[str]:
    r"""The lines of whole lines of a file, split as `read_lines` does.

    Only "\n" ends a line, and one "\r" before it belongs to the line end. Raises DataError naming
    file and line for bytes that are not UTF-8.
    """
    is_marked = first_line == 1 and block.startswith(MARK)
    block = block.removeprefix(MARK) if is_marked else block
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError as error:
        begin, end = block.rfind(b"\n", 0, error.start) + 1, block.find(b"\n", error.start)
        number = first_line + block.count(b"\n", 0, error.start)
        raise DataError(f"{path}, line {number}: {not_utf8(block[begin : end if end >= 0 else None])}") from error
    lines = text.split("\n")
    last = lines.pop()  # nothing after the last line end, or a line without one
    if "\r" in text:
        lines = [line[:-1] if line.endswith("\r") else line for line in lines]
    return [*lines, last] if last or (is_marked and not lines) else lines


def sample_lines(files: Sequence[Path], size: int, *, seed: int) -> Iterator[str]:
    """Yield `size` lines of all files together that are not empty, or all if there are no more.

    Raises DataError naming file and line for text that cannot be read.
    """
    try:
        for line in reservoir(_not_empty(files), size, seed=seed):
            text = line.decode("utf-8")
            yield text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        for path in files:
            deque(read_lines(path), maxlen=0)  # which names the line
        raise


def reservoir(items: Iterable[T], size: int, *, seed: int) -> list[T]:
    """A uniform sample of `size` items in one pass that computes nothing for most of them.

    Reservoir sampling by Li's algorithm L (Reservoir-sampling algorithms of time complexity
    O(n(1 + log(N/n))), ACM TOMS 1994), which draws how many items to pass over.
    """
    import math  # late, as few need these
    import random

    generator, remaining = random.Random(seed), iter(items)
    kept = list(islice(remaining, size))
    threshold = 1.0
    while True:
        threshold *= (1.0 - generator.random()) ** (1.0 / size)
        passed_over = 0.0
        if threshold < 1.0:  # it may be 1 after rounding
            passed_over = math.log(1.0 - generator.random()) / math.log1p(-threshold)
        item = next(islice(remaining, int(min(passed_over, sys.maxsize // 2)), None), None)
        if item is None:
            return kept
        kept[generator.randrange(size)] = item


def _not_empty(files: Sequence[Path]) -> Iterator[bytes]:
    """The lines that are not empty, as bytes with their line ends: most are passed over, and need no decoding."""
    for path in files:
        with open_bytes(path) as stream:
            first = stream.readline().removeprefix(MARK)
            yield from filterfalse(frozenset((b"", b"\n", b"\r\n")).__contains__, chain([first], stream))


def windows(
    lines: Iterable[T], *, size: int, arrives: Arrives | None = None, length: Callable[[Any], int] = len
) -> Iterator[list[T]]:
    """`lines` in lists of at most `size`; with `arrives`, of what comes until there is a PAUSE.

    `length` says how many characters an item has. Where reading fails, what was read before comes first, then the
    error.
    """
    remaining = iter(lines)
    failure: Exception | None = None
    has_ended = False
    while failure is None and not has_ended:
        window: list[T] = []
        held, deadline = 0, 0.0
        try:
            while len(window) < size and held < CHARACTERS:
                if window and arrives is not None and not arrives(min(PAUSE, deadline - time.monotonic())):
                    break
                line = next(remaining)
                if not window:
                    deadline = time.monotonic() + PATIENCE
                window.append(line)
                held += length(line)
        except StopIteration:
            has_ended = True
        except Exception as error:
            failure = error
        if window:
            yield window
    if failure is not None:
        raise failure
