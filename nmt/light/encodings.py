"""Text that is not UTF-8, what it looks like and how to convert it; the mark that some programs put before UTF-8."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8, which every reader drops at the beginning of a file."""
_WIDE_MARKS: Final = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")
_CONTROLS: Final = bytes(byte for byte in range(32) if byte != 9)
_FEWEST: Final = 3  # characters of a line that tell an encoding without a mark, twice as many where none is 0
_LOOKED_AT: Final = 4096  # bytes of a long line


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
