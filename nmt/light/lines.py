"""Lines of a file or of standard input, read as they arrive: a sender that waits after each line gets its answer. What
text that is not UTF-8 looks like, and how to convert it."""

from __future__ import annotations

from contextlib import contextmanager

from .errors import EngineError, missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Final

POLICIES: Final = ("strict", "replace", "empty")
FIRST: Final = 16
MOST: Final = 1000
SHORT, LONG = 0.1, 0.3
"""Seconds of a call of the engine, in which nothing else is done, and which must end before anything that Ctrl-C asks
for. In calls of fewer lines threads wait for each other more often."""
MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8, which every reader drops at the beginning of a file."""
LONGEST_LINE: Final = 1 << 24
"""Bytes of a line. Far more than a sentence has, and little enough that a packed file of one line fills no memory.
SentencePiece ends the process where memory for a line is missing, and needs 60 bytes for each of its bytes."""
_BLOCK: Final = 1 << 20
_WIDE_MARKS: Final = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")
_CONTROLS: Final = bytes(byte for byte in range(32) if byte != 9)
_FEWEST: Final = 3  # characters of a line that tell an encoding without a mark, twice as many where none is 0
_LOOKED_AT: Final = 4096  # bytes of a long line


class Pace:
    """How many lines a call of the engine gets: so many that it is short. `lines` is the size of the next call."""

    def __init__(self) -> None:
        self.lines = FIRST

    def add(self, lines: int, seconds: float) -> None:
        """Note that a call of so many lines has taken so long."""
        if seconds > LONG:
            self.lines = max(1, lines // 2)
        elif seconds < SHORT and lines >= self.lines:
            self.lines = min(2 * lines, MOST)


def windows(path: str | None, pace: Pace) -> Iterator[list[bytes]]:
    """Lines without their ends, at most as many at a time as `pace` then has; None is standard input.

    Only a line feed ends a line, and one carriage return before it belongs to it. EngineError names what cannot be
    read.
    """
    name = path or "standard input"
    with _reading(path, name) as source:
        for lines in _complete(source, name):
            start = 0
            while start < len(lines):
                window = lines[start : start + pace.lines]
                yield window
                start += len(window)


def arriving(path: str | None, policy: str) -> Iterator[str]:
    """Text as it comes, in pieces that end wherever the sender has paused; part of a character waits for its rest.

    `policy` is that of `--errors`, strict or replace. EngineError names what cannot be read or is not UTF-8.
    """
    import codecs  # late, as few need it

    name = path or "standard input"
    decoder = codecs.getincrementaldecoder("utf-8-sig")(policy)
    with _reading(path, name) as source:
        while True:
            block = _block(source)
            try:
                text = decoder.decode(block, not block)
            except UnicodeDecodeError as error:
                byte = error.object[error.start]
                raise EngineError(f"{name}: byte 0x{byte:02x} is not UTF-8, or see --errors") from None
            yield text
            if not block:
                return


def line_by_line(texts: Iterable[str], begin: Callable[[], Any]) -> Iterator[str]:
    """What live sessions return of text that comes in pieces: each line is a session of its own, which `begin` opens,
    and has one line of output."""
    session, is_open = begin(), False
    for text in texts:
        first, *others = text.split("\n")
        yield session.feed(first)
        for part in others:
            yield session.end() + "\n"
            session = begin()
            yield session.feed(part)
        is_open = bool(others[-1]) if others else is_open or bool(first)
    if is_open:
        yield session.end() + "\n"


@contextmanager
def _reading(path: str | None, name: str) -> Iterator[Any]:
    """The open input, whose errors name it."""
    try:
        with _opened(path) as source:
            yield source
    except FileNotFoundError:
        raise EngineError(missing(name)) from None
    except OSError as error:
        reason = f"cannot be read ({error.strerror})" if error.strerror else f"not a readable gzip file ({error})"
        raise EngineError(f"{name}: {reason}") from None
    except Exception as error:
        import zlib  # only where something has gone wrong

        if not isinstance(error, EOFError | zlib.error):
            raise
        raise EngineError(f"{name}: not a readable gzip file ({error})") from None


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
        if held > LONGEST_LINE:
            raise EngineError(f"{name}, line {count + 1}: longer than {LONGEST_LINE >> 20} MiB; is it text?")
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


def is_wide(raw: bytes) -> bool:
    """Whether a line seems to be UTF-16 or UTF-32, which may be valid UTF-8 with a control character beside each
    letter: 0 for Latin ones, 4 for Cyrillic ones."""
    return raw.startswith(_WIDE_MARKS) or (_has_controls(raw) and _spelled(raw) is not None)


def looks_like(raw: bytes) -> str | None:
    """The encoding that a line which is not UTF-8 seems to have, as `iconv` calls it; None where none is likely."""
    if raw.startswith(_WIDE_MARKS):
        return "UTF-32" if raw[:4] in (b"\xff\xfe\0\0", b"\0\0\xfe\xff") else "UTF-16"
    if found := _spelled(raw):
        return found
    part = raw[:_LOOKED_AT]
    plain = sum(byte in b"\t\r\n" or 32 <= byte < 127 for byte in part)
    if 10 * plain < 7 * len(part) or any(byte in b"\x81\x8d\x8f\x90\x9d" for byte in part):
        return None
    return None if part.translate(None, _CONTROLS) != part.translate(None, b"\n\f\r") else "WINDOWS-1252"


def _has_controls(raw: bytes) -> bool:
    """Whether three in ten bytes are control characters; tabs are, too, in a line with zeros (a part of Devanagari)."""
    part = raw[:_LOOKED_AT].rstrip(b"\r\n")
    left = part.translate(None, _CONTROLS)
    if len(left) < len(part) and b"\0" in part:
        left = left.replace(b"\t", b"")
    return 10 * len(left) <= 7 * len(part)


def _spelled(raw: bytes) -> str | None:
    """UTF-16 or UTF-32, if a line without a mark spells text in it; nothing tells in which order its bytes are.

    Nearly all characters must be readable. Without control characters between the bytes, as in Chinese, they must also
    be of a script of East Asia, and some be letters or punctuation that no other encoding spells with these bytes.
    """
    part = raw[:_LOOKED_AT].rstrip(b"\r\n")
    fewest, has_controls = _FEWEST if b"\0" in part else 2 * _FEWEST, _has_controls(part)
    for width, name in ((4, "UTF-32"), (2, "UTF-16")):
        for order in ("LE", "BE"):
            for start in (0, width - 1):  # after what the end of the line before has left
                own = part[start : start + (len(part) - start) // width * width]
                text = own.decode(name + order, "replace").strip("\r")
                readable = sum(letter.isprintable() or letter in "\t\u3000" for letter in text) - text.count("\ufffd")
                if len(text) < fewest or 20 * readable < 19 * len(text):
                    continue
                if width == 2 and has_controls:
                    if 3 * part.count(b" ") <= len(part) and _is_of_one_script(text):
                        return name
                    continue
                if width == 4:
                    return name
                plain = sum(letter < "\x7f" or "\u3000" <= letter < "\u3100" for letter in text)
                eastern = sum("\u3100" <= letter < "\ua000" or "\uac00" <= letter < "\ud7a4" for letter in text)
                full = sum("\uff00" <= letter < "\uffef" for letter in text)
                if plain and 20 * (plain + eastern + full) >= 19 * len(text):
                    return name
    return None


def _is_of_one_script(text: str) -> bool:
    """Whether a text, of which half can be seen, is no one character over and over, and mostly of Latin-1 or of one
    other block of characters.

    Text in UTF-8 with control characters of its own can spell characters of UTF-16, too, but not such ones.
    """
    blocks = [ord(letter) >> 8 for letter in text]
    others = {*blocks} - {0} if len(text) >= 2 * _FEWEST else ()
    of_one = blocks.count(0) + max(map(blocks.count, others), default=0)
    most = max(map(text.count, {*text}))
    return 2 * max(sum(map(str.isspace, text)), most) <= len(text) and 5 * of_one >= 4 * len(text)


def not_utf8(raw: bytes) -> str:
    """What is wrong with a line that is not UTF-8, and what helps."""
    try:
        raw.decode("utf-8")
        place = "a control character beside each letter"
    except UnicodeDecodeError as error:
        place = f"byte 0x{raw[error.start]:02x} at position {error.start + 1} of the line"
    found = looks_like(raw)
    if found is None:
        return f"not UTF-8 ({place}); convert the file to UTF-8"
    called = "Latin-1 (WINDOWS-1252)" if found == "WINDOWS-1252" else found
    return f"not UTF-8 ({place}), but it looks like {called}; convert the file to UTF-8 (iconv -f {found} -t UTF-8)"
