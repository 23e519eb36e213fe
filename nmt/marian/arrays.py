"""Marian's files of weights, `.npz` and `.bin`: arrays by name, and the settings that were saved with them.

The layout follows marian-dev's src/common/io.cpp and binary.cpp. Nothing in a file is believed before it is compared
with the bytes that are there: a file of B bytes takes no more than a few times B of memory.
"""

from __future__ import annotations

import io
import math
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from nmt.errors import CheckpointError, printable, shown
from nmt.files import replacing
from nmt.marian.package import BROKEN_ZIP, LARGEST

SETTINGS = "special:model.yml"
"""The name of the array whose bytes are YAML, ending in a NUL."""
LARGEST_SETTINGS = 1 << 20
DEEPEST_RANK = 8
FLOAT32, FLOAT16, INT8, INTGEMM8 = 0x0404, 0x0402, 0x0101, 0x4101
_NUMPY = {FLOAT32: "<f4", FLOAT16: "<f2", INT8: "i1"}
_REFUSED_TYPES = {0x4102: "intgemm16", 0x0201: "16-bit integers"}
_FBGEMM = 0x0800
"""Types from here on are matrices that FBGEMM has packed."""
_VERSION = 1
_ALIGNMENT = 256
_ZIP = b"PK"


@dataclass(frozen=True)
class Quantized:
    """A matrix as intgemm stores it: round(w * multiplier), between -127 and 127."""

    values: np.ndarray
    """int8, in the layout of the fp32 matrix: [in, out], embeddings [V, E]"""
    multiplier: np.float32
    """127 / max|w|"""

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the matrix."""
        return self.values.shape

    def dequantized(self) -> np.ndarray:
        """The fp32 matrix that a product with these values computes with."""
        return self.values.astype(np.float32) / self.multiplier


Value = np.ndarray | Quantized


@dataclass(frozen=True)
class MarianWeights:
    """What a file of Marian holds."""

    path: Path
    values: Mapping[str, Value]
    settings: Mapping[str, Any]

    def array(self, name: str) -> np.ndarray:
        """A value in fp32; CheckpointError, naming the file, if there is none."""
        value = self.values.get(name)
        if value is None:
            raise CheckpointError(f"{self.path}: {name} is missing")
        return value.dequantized() if isinstance(value, Quantized) else value.astype(np.float32)


def read_weights(content: bytes, path: Path) -> MarianWeights:
    """The arrays of a `.npz` or `.bin`; which it is, its first bytes say. `path` is the file's name in messages.

    Raises CheckpointError, naming file and value, for anything that is not such a file.
    """
    try:
        values = dict(_read_npz(content) if content[:2] == _ZIP else _read_bin(content))
        settings = _settings(values.pop(SETTINGS, None))
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return MarianWeights(path, values, settings)


def _read_npz(content: bytes) -> Iterator[tuple[str, Value]]:
    """The arrays of a zip file; no name in it is used as a path."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except BROKEN_ZIP as error:
        raise ValueError(f"not a readable zip file ({error})") from error
    if sum(member.file_size for member in archive.infolist()) > LARGEST:
        raise ValueError(f"unpacks to more than {LARGEST >> 20:,} MiB")
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        try:
            raw = archive.read(member)
        except BROKEN_ZIP as error:
            raise ValueError(f"{shown(name)}: cannot be unpacked ({error})") from error
        yield name, _npy(raw, shown(name))


def _npy(content: bytes, name: str) -> np.ndarray:
    """An array of numpy's format, whose size its header claims: it is compared with the bytes."""
    stream = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(stream)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in read_header:
            raise ValueError(f"version {version} of numpy's format is not read")
        shape, fortran_order, dtype = read_header[version](stream)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    data = content[stream.tell() :]
    if dtype.hasobject or dtype.kind not in "fiu":
        raise ValueError(f"{name}: holds {dtype}, not numbers")
    _check_shape(name, shape)
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"{name}: {len(data):,} bytes are no array of shape {tuple(shape)} of {dtype}")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran_order else "C")


def _check_shape(name: str, shape: Sequence[int]) -> None:
    if len(shape) > DEEPEST_RANK or any(size < 0 for size in shape):
        raise ValueError(f"{name}: the shape {shown(list(shape)[:9])} is none of a weight")


class _Cursor:
    """A place in bytes that only moves forward, and never past their end."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = memoryview(content), 0

    def take(self, size: int, what: str) -> memoryview:
        """The next `size` bytes; ValueError, which says `what` is cut off, if there are not so many."""
        if size > len(self.content) - self.at:
            raise ValueError(f"{what} would end behind the end of the file: it is cut off, or not a Marian file")
        self.at += size
        return self.content[self.at - size : self.at]

    def numbers(self, form: str, count: int, what: str) -> tuple[int, ...]:
        """The next `count` numbers of a form of `struct`."""
        return struct.unpack(f"<{count}{form}", self.take(struct.calcsize(form) * count, what))


def _read_bin(content: bytes) -> Iterator[tuple[str, Value]]:
    """The values of Marian's binary format, each as long as its header says, which may be more than its shape needs."""
    rest = _Cursor(content)
    version, count = rest.numbers("Q", 2, "the header")
    if version != _VERSION:
        raise ValueError("neither a .npz nor a .bin of Marian: its first number is not 1")
    if count * 32 > len(content):
        raise ValueError(f"the headers of {count} values would end behind the end of the file")
    headers = [rest.numbers("Q", 4, "a header") for _ in range(count)]
    names = []
    for length, *_ in headers:
        stored = bytes(rest.take(length, "a name"))
        if not stored.endswith(b"\0") or b"\0" in stored[:-1]:
            raise ValueError(f"the name {shown(stored)} does not end in its only NUL")
        names.append(printable(stored[:-1].decode("utf-8", "backslashreplace")))
    if len(set(names)) < len(names):
        raise ValueError(f"{shown(next(name for name in names if names.count(name) > 1))} is there twice")
    shapes = []
    for name, (_, _, rank, _) in zip(names, headers, strict=True):
        if rank > DEEPEST_RANK:
            raise ValueError(f"{name}: has {rank} dimensions; a weight has at most {DEEPEST_RANK}")
        shapes.append(rest.numbers("i", rank, f"the shape of {name}"))
    (gap,) = rest.numbers("Q", 1, "the place of the values")
    rest.take(gap, "the gap before the values")
    for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True):
        yield name, _value(name, kind, shape, rest.take(size, f"the value of {name}"))


def _value(name: str, kind: int, shape: tuple[int, ...], data: memoryview) -> Value:
    _check_shape(name, shape)
    count = math.prod(shape)
    if kind in _NUMPY:
        dtype = np.dtype(_NUMPY[kind])
        if count * dtype.itemsize > len(data):
            raise ValueError(f"{name}: {len(data):,} bytes are too few for the shape {shape}")
        return np.frombuffer(data, dtype, count).reshape(shape)
    if kind != INTGEMM8:
        known = _REFUSED_TYPES.get(kind, "packed by FBGEMM" if kind & _FBGEMM else "unknown")
        raise ValueError(
            f"{name}: its type {kind:#x} ({known}) is not read. Allowed: fp32, fp16, and intgemm8 as marian-conv "
            "--gemm-type intgemm8 writes it"
        )
    if len(shape) != 2 or count + 4 > len(data):
        raise ValueError(f"{name}: {len(data):,} bytes are too few for an 8-bit matrix of the shape {shape}")
    (multiplier,) = struct.unpack_from("<f", data, count)
    if not 0 < multiplier < math.inf:
        raise ValueError(f"{name}: its multiplier is {multiplier}")
    values = np.frombuffer(data, np.int8, count)
    # Matrices are stored transposed, whatever their shape says; tables of embeddings are not.
    matrix = values.reshape(shape) if name.endswith("Wemb") else values.reshape(shape[::-1]).T
    return Quantized(matrix, np.float32(multiplier))


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases, by which a short text can stand for an endless value."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)


def read_yaml(text: str) -> dict[str, Any]:
    """The mapping in YAML of Marian; ValueError for anything else."""
    try:
        found = yaml.load(text, _PlainLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"not readable as YAML ({' '.join(str(error).split())[:200]})") from error
    if not isinstance(found, dict):
        raise ValueError("holds no YAML mapping of settings")
    return {str(key): value for key, value in found.items()}


def _settings(stored: Value | None) -> dict[str, Any]:
    if stored is None:
        raise ValueError(f"{SETTINGS}, the model's settings, is missing: not a model of Marian")
    if isinstance(stored, Quantized) or stored.dtype.itemsize != 1 or stored.size > LARGEST_SETTINGS:
        raise ValueError(f"{SETTINGS} is no text")
    try:
        return read_yaml(stored.tobytes().split(b"\0")[0].decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"{SETTINGS}: {error}") from error


def write_npz(path: Path, values: Mapping[str, np.ndarray], settings: Mapping[str, Any]) -> None:
    """Write fp32 arrays as Marian's `.npz`. Raises OSError."""
    text = np.frombuffer(_settings_text(settings), np.int8)
    with replacing(path) as stream:
        np.savez(stream, allow_pickle=False, **{**values, SETTINGS: text})


def write_bin(path: Path, values: Mapping[str, Value], settings: Mapping[str, Any]) -> None:
    """Write arrays as Marian's `.bin`, int8 matrices as intgemm8; every value begins at a multiple of 256 bytes.

    Raises OSError.
    """
    items = [(name, *_stored(name, value)) for name, value in values.items()]
    text = _settings_text(settings)
    items.append((SETTINGS, INT8, (len(text),), _padded(text)))
    head = io.BytesIO()
    head.write(struct.pack("<QQ", _VERSION, len(items)))
    for name, kind, shape, data in items:
        head.write(struct.pack("<QQQQ", len(name.encode()) + 1, kind, len(shape), len(data)))
    for name, *_ in items:
        head.write(name.encode() + b"\0")
    for _, _, shape, _ in items:
        head.write(struct.pack(f"<{len(shape)}i", *shape))
    gap = _ALIGNMENT - (head.tell() + 8) % _ALIGNMENT  # never 0, as in marian-dev
    head.write(struct.pack("<Q", gap) + bytes(gap))
    with replacing(path) as stream:
        stream.write(head.getvalue())
        for *_, data in items:
            stream.write(data)


def _stored(name: str, value: Value) -> tuple[int, tuple[int, ...], bytes]:
    """Type, shape and padded bytes of a value in a `.bin`."""
    if isinstance(value, Quantized):
        matrix = value.values if name.endswith("Wemb") else value.values.T
        kind, data = INTGEMM8, np.ascontiguousarray(matrix).tobytes() + struct.pack("<f", value.multiplier)
    else:
        kind, data = FLOAT32, np.ascontiguousarray(value, "<f4").tobytes()
    return kind, value.shape, _padded(data)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)


def _settings_text(settings: Mapping[str, Any]) -> bytes:
    return yaml.safe_dump(dict(settings), sort_keys=False).encode() + b"\0"
