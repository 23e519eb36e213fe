"""SentencePiece models with other ids: their pieces in another order, everything else as it is.

A model is a message of protobuf (sentencepiece_model.proto), of which this reads and writes only what it changes: the
pieces (field 1) and, in the trainer's settings (field 2), the size and the ids and texts of the special pieces.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
_PIECES, _TRAINER = 1, 2
_TEXT, _SCORE, _KIND = 1, 2, 3
_SIZE = 4
_IDS = {"unk": 40, "bos": 41, "eos": 42, "pad": 43}
_TEXTS = {"unk": 45, "bos": 46, "eos": 47, "pad": 48}
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class Piece(NamedTuple):
    """An entry of the vocabulary."""

    text: str
    """Bytes that are no UTF-8 are lone surrogates."""
    score: float
    kind: int


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    value = shift = 0
    while True:
        if at >= len(content) or shift > 63:
            raise ValueError("not a SentencePiece model: a number in it does not end")
        value |= (content[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if content[at - 1] < 128:
            return value, at


def _fields(content: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Number, wire type and value of each field of a message. ValueError for what is no message."""
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(content, at)
            yield number, wire, value
            continue
        if wire == _LENGTH:
            size, at = _varint(content, at)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"not a SentencePiece model: it has a field of the wire type {wire}")
        if size > len(content) - at:
            raise ValueError("not a SentencePiece model: a field in it is cut off")
        yield number, wire, content[at : at + size]
        at += size


def _encoded(value: int) -> bytes:
    value &= (1 << 64) - 1  # a negative number is its two's complement in 64 bits
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, wire: int, value: int | bytes) -> bytes:
    tag = _encoded(number << 3 | wire)
    if isinstance(value, int):
        return tag + _encoded(value)
    return tag + (_encoded(len(value)) if wire == _LENGTH else b"") + value


def pieces_of(model: bytes) -> list[Piece]:
    """The pieces of a SentencePiece model by their ids; ValueError if it is none."""
    found = []
    for number, _, message in _fields(model):
        if number != _PIECES or isinstance(message, int):
            continue
        text, score, kind = b"", 0.0, NORMAL
        for part, wire, value in _fields(message):
            if part == _TEXT and isinstance(value, bytes):
                text = value
            elif part == _SCORE and wire == _FIXED32 and isinstance(value, bytes):
                (score,) = struct.unpack("<f", value)
            elif part == _KIND and isinstance(value, int):
                kind = value
        found.append(Piece(text.decode("utf-8", "surrogateescape"), score, kind))
    if not found:
        raise ValueError("not a SentencePiece model: it has no pieces")
    return found


def with_pieces(model: bytes, pieces: Sequence[Piece], *, unk: int, eos: int, pad: int = -1) -> bytes:
    """The model with these pieces instead of its own, without a begin of sentence; -1: no padding either.

    The normalisation, the algorithm and all other settings stay. ValueError if `model` is no SentencePiece model.
    """
    out = []
    for text, score, kind in pieces:
        encoded = text.encode("utf-8", "surrogateescape")
        parts = [_field(_TEXT, _LENGTH, encoded), _field(_SCORE, _FIXED32, struct.pack("<f", score))]
        out.append(_field(_PIECES, _LENGTH, b"".join([*parts, _field(_KIND, _VARINT, kind)])))
    ids = {"unk": unk, "bos": -1, "eos": eos, "pad": pad}
    for number, wire, value in _fields(model):
        if number == _PIECES:
            continue
        if number == _TRAINER and isinstance(value, bytes):
            changed = {_SIZE, *_IDS.values(), *_TEXTS.values()}
            parts = [_field(*field) for field in _fields(value) if field[0] not in changed]
            parts.append(_field(_SIZE, _VARINT, len(pieces)))
            parts += [_field(_IDS[name], _VARINT, i) for name, i in ids.items()]
            parts += [
                _field(_TEXTS[name], _LENGTH, pieces[i].text.encode("utf-8", "surrogateescape"))
                for name, i in ids.items()
                if i >= 0
            ]
            value = b"".join(parts)
        out.append(_field(number, wire, value))
    return b"".join(out)
