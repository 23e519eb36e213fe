"""Lines of a file or of standard input, read as they arrive: a sender that waits after each line gets its answer."""

from __future__ import annotations

from .encodings import MARK, is_wide, not_utf8
from .errors import EngineError, missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

    from .pace import Pace

POLICIES: Final = ("strict", "replace", "empty")
_BLOCK: Final = 1 << 20
_LONGEST: Final = 64 << 20  # bytes of a line


def windows(path: str | None, pace: Pace) -> Iterator[list[bytes]]:
    """Lines without their ends, at most as many at a time as `pace` then has; None is standard input.

    Only a line feed ends a line, and one carriage return before it belongs to it. EngineError names what cannot be
    read.
    """
    name = path or "standard input"
    try:
        with _opened(path) as source:
            for lines in _complete(source, name):
                start = 0
                while start < len(lines):
                    window = lines[start : start + pace.lines]
                    yield window
                    start += len(window)
    except FileNotFoundError:
        raise EngineError(missing(name)) from None
    except OSError as error:
        reason = f"cannot be read ({error.strerror})" if error.strerror else f"not a readable gzip file ({error})"
        raise EngineError(f"{name}: {reason}") from None
    except (EOFError, _packing_error()) as error:
        raise EngineError(f"{name}: not a readable gzip file ({error})") from None


def _packing_error() -> type[Exception]:
    import zlib  # only where something has gone wrong, or lines are packed

    return zlib.error


def _opened(path: str | None) -> Any:
    if path is None:
        return open(0, "rb", buffering=0, closefd=False)
    if path.endswith(".gz"):
        import gzip

        return gzip.open(path, "rb")
    return open(path, "rb", buffering=0)


def _complete(source: Any, name: str) -> Iterator[list[bytes]]:
    """The lines that each block completes, and what is left at the end."""
    begun: list[bytes] = []
    held = count = 0
    is_marked = False
    while block := _block(source):
        if not (count or begun):
            while len(block) < len(MARK) and MARK.startswith(block) and (more := _block(source)):
                block += more
            is_marked = block.startswith(MARK)
            block = block.removeprefix(MARK)
        first, *others = block.split(b"\n")
        begun.append(first)
        held += len(first)
        if others:
            lines = [b"".join(begun), *others[:-1]]
            begun, held, count = [others[-1]], len(others[-1]), count + len(lines)
            yield [line[:-1] if line.endswith(b"\r") else line for line in lines]
        if held > _LONGEST:
            raise EngineError(f"{name}, line {count + 1}: longer than {_LONGEST >> 20} MiB; is it text?")
    if held or (is_marked and not count):
        yield [b"".join(begun)]


def _block(source: Any) -> bytes:
    """The next bytes, for which it waits; empty at the end."""
    while (block := source.read(_BLOCK)) is None:  # a pipe that does not block by itself, and is empty now
        import select  # late, as few need it

        select.select([source], [], [])
    return bytes(block)


def decodable(lines: list[bytes], policy: str, *, name: str, first: int) -> tuple[list[bytes], list[int], str | None]:
    """Decoded lines, the numbers of lines that were not UTF-8, and the error to end with.

    `first` is the number of the first line. With `strict` the lines before such a line are returned, and the error
    about it ends the work; `replace` reads it with U+FFFD in place of the bytes that are not UTF-8, `empty` as an empty
    line.
    """
    found: list[bytes] = []
    odd: list[int] = []
    for number, line in enumerate(lines, start=first):
        try:
            line.decode("utf-8")
            is_text = not is_wide(line)
        except UnicodeDecodeError:
            is_text = False
        if not is_text:
            if policy == "strict":
                return found, odd, f"{name}, line {number}: {not_utf8(line)}, or see --errors"
            odd.append(number)
            line = line.decode("utf-8", "replace").encode() if policy == "replace" else b""
        found.append(line)
    return found, odd, None
