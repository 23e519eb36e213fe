"""Text that is not UTF-8, what it looks like and how to convert it; the mark that some programs put before UTF-8."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8, which every reader drops at the beginning of a file."""
_LEAST: Final = 8  # bytes of a line that tell an encoding without a mark
_LOOKED_AT: Final = 4096  # bytes of a long line


def is_wide(raw: bytes) -> bool:
    """Whether a line seems to be UTF-16 or UTF-32, which may be valid UTF-8 with a 0 beside each letter."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff") or raw[:4] == b"\0\0\xfe\xff":
        return True
    if b"\0" not in raw or len(raw) < _LEAST:
        return False
    part = raw[:_LOOKED_AT]
    zeros = [part[place::4].count(0) for place in range(4)]
    most, half = len(part) / 4, len(part) / 8
    pairs = sorted((zeros[0] + zeros[2], zeros[1] + zeros[3]))
    return (pairs[1] >= 2.4 * half and pairs[0] <= 0.4 * half) or sum(zeros) >= 2.5 * most > sum(zeros) - 0.6 * most


def looks_like(raw: bytes) -> str | None:
    """The encoding that a line which is not UTF-8 seems to have, as `iconv` calls it; None where none is likely."""
    if is_wide(raw):
        is_longer = raw[:4] in (b"\xff\xfe\0\0", b"\0\0\xfe\xff") or raw.count(0) > 0.6 * len(raw)
        return "UTF-32" if is_longer else "UTF-16"
    part = raw[:_LOOKED_AT]
    plain = sum(byte in b"\t\r\n" or 32 <= byte < 127 for byte in part)
    if 10 * plain < 7 * len(part) or any(byte in b"\x81\x8d\x8f\x90\x9d" for byte in part):
        return None
    return "WINDOWS-1252"


def not_utf8(raw: bytes) -> str:
    """What is wrong with a line that is not UTF-8, and what helps."""
    try:
        raw.decode("utf-8")
        place = "a byte 0 beside each letter"
    except UnicodeDecodeError as error:
        place = f"byte 0x{raw[error.start]:02x} at position {error.start + 1} of the line"
    found = looks_like(raw)
    if found is None:
        return f"not UTF-8 ({place}); convert the file to UTF-8"
    called = "Latin-1 (WINDOWS-1252)" if found == "WINDOWS-1252" else found
    return f"not UTF-8 ({place}), but it looks like {called}; convert the file to UTF-8 (iconv -f {found} -t UTF-8)"
