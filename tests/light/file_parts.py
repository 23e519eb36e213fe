"""A model file taken apart, changed and put together again with a checksum that is right."""

from __future__ import annotations

import struct
import zlib

from nmt.interop.engine.export import file_of

HEADER, ENTRY = 32, 24


def parts_of(content: bytes) -> dict[str, bytes]:
    """Its sections."""
    (count,) = struct.unpack_from("<I", content, 12)
    table = (struct.unpack_from("<4sIQQ", content, HEADER + ENTRY * i) for i in range(count))
    return {name.decode(): content[place : place + size] for name, _, place, size in table}


def with_sections(content: bytes, **sections: bytes | None) -> bytes:
    """The same file with other sections, or without those that are None."""
    changed = parts_of(content) | sections
    return b"".join(file_of({name: value for name, value in changed.items() if value is not None}))


def patched(section: bytes, place: int, form: str, *values: float) -> bytes:
    """A section with other values at a place."""
    changed = bytearray(section)
    struct.pack_into("<" + form, changed, place, *values)
    return bytes(changed)


def with_values(content: bytes, name: str, place: int, form: str, *values: float) -> bytes:
    """The same file with other values in a section."""
    return with_sections(content, **{name: patched(parts_of(content)[name], place, form, *values)})


def with_checksum(content: bytes, *, size: int | None = None) -> bytes:
    """Whatever has been changed, with the size and the checksum that it should have."""
    changed = bytearray(content)
    struct.pack_into("<Q", changed, 16, len(changed) if size is None else size)
    struct.pack_into("<I", changed, 24, zlib.crc32(changed[HEADER:]))
    return bytes(changed)
