"""The bytes of an engine's model file: sections, tables and checksum, as docs/engine_format.md has them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from torch import Tensor

from nmt.interop.engine.opened import MAGIC
from nmt.interop.engine.program import NONE, Instruction, Lowered, Value
from nmt.interop.engine.settings import Settings
from nmt.interop.engine.tensors import Stored

VERSION: Final = 1
_ALIGNMENT: Final = 64
_HEADER: Final = 32
_OPERANDS: Final = 3
_TENSORS: Final = 4

Content = bytes | bytearray


class WordLists(Protocol):
    """A shortlist: target tokens of every sentence, and those of each source token; see `nmt.search.shortlist`."""

    frequent: Tensor
    partners: Tensor
    starts: Tensor
    """Where those of each source token begin in `partners` [V_source + 1]"""


def sections_of(
    lowered: Lowered,
    *,
    settings: Settings,
    vocabularies: tuple[int, int],
    subwords: tuple[bytes, bytes],
    shortlist: WordLists | None,
) -> dict[str, Content]:
    """All sections but `META`, in their order.

    Args:
        vocabularies: entries of source and target.
        subwords: SentencePiece models of source and target.
    """
    tensors, data = _tensors(lowered.tensors.stored())
    source, target = subwords
    found: dict[str, Content] = {
        "SETT": _settings(lowered, settings, vocabularies),
        "TENS": tensors,
        "REGS": b"".join(struct.pack("<2I", *register) for register in lowered.registers),
        "STAT": b"".join(struct.pack("<3I", *(_whole(lowered, each) for each in state)) for state in lowered.states),
        "ENCO": b"".join(map(_instruction, lowered.encode)),
        "STEP": b"".join(map(_instruction, lowered.step)),
        "DATA": data,
        "SPMS": source,
    }
    if settings.others:
        found["OPTS"] = _others(settings)
    if target != source:
        found["SPMT"] = target
    if shortlist is not None:
        found["LIST"] = _shortlist(shortlist)
    return found


def file_of(sections: Mapping[str, Content]) -> list[Content]:
    """The whole file, in pieces, so that no large one is copied."""
    place = _HEADER + 24 * len(sections)
    table, body = b"", list[Content]()
    for name, content in sections.items():
        gap = -place % _ALIGNMENT
        table += struct.pack("<4sIQQ", name.encode("ascii"), 0, place + gap, len(content))
        body += [b"\0" * gap, content]
        place += gap + len(content)
    sums = zlib.crc32(table)
    for piece in body:
        sums = zlib.crc32(piece, sums)
    return [MAGIC + struct.pack("<IIQII", VERSION, len(sections), place, sums, 0) + table, *body]


def _settings(lowered: Lowered, settings: Settings, vocabularies: tuple[int, int]) -> bytes:
    features = _whole(lowered, lowered.features)
    return struct.pack(
        "<7If2I24x",
        *vocabularies,
        lowered.table,
        features,
        lowered.attentions,
        lowered.caches,
        settings.beam_size,
        settings.length_penalty,
        settings.max_length_offset,
        settings.longest_source,
    )


def _others(settings: Settings) -> bytes:
    """Options that are stored by their names."""
    return b"".join(struct.pack("<28sf", name.encode("ascii"), value) for name, value in settings.others.items())


def _whole(lowered: Lowered, value: Value) -> int:
    """The register that is this value and nothing else."""
    assert value == (value.register, 0, lowered.registers[value.register].width)
    return value.register


def _instruction(instruction: Instruction) -> bytes:
    values = [instruction.out, *instruction.operands, *[None] * (_OPERANDS - len(instruction.operands))]
    places = [(NONE, 0) if value is None else (value.register, value.column) for value in values]
    tensors = [*instruction.tensors, *[NONE] * (_TENSORS - len(instruction.tensors))]
    numbers = [number for place in places for number in place]
    return struct.pack("<14Iif", instruction.op, *numbers, *tensors, instruction.n, instruction.p, instruction.f)


def _tensors(stored: Iterable[Stored]) -> tuple[bytes, bytearray]:
    """Table and values."""
    table, data = bytearray(), bytearray()

    def put(content: bytes) -> int:
        if not content:
            return 0
        data.extend(b"\0" * (-len(data) % _ALIGNMENT))
        data.extend(content)
        return len(data) - len(content)

    for each in stored:
        places = put(each.values), put(each.scales), put(each.sums)
        table.extend(struct.pack("<4I3Q", each.kind, each.rows, each.columns, 0, *places))
    return bytes(table), data


def _shortlist(lists: WordLists) -> bytes:
    parts = [part.to("cpu").long().tolist() for part in (lists.frequent, lists.starts, lists.partners)]
    numbers = [len(parts[0]), len(parts[2]), *parts[0], *parts[1], *parts[2]]
    return struct.pack(f"<{len(numbers)}I", *numbers)
