"""The tensors of an engine's model file: which there are, and their values as the engine reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.errors import ConfigError
from nmt.ops.matrices.inference import quantize_rows

Precision = Literal["int8", "fp32", "bf16"]

STRIP: Final = 32
"""Rows of a matrix that are stored together."""
SMALLEST_INT8: Final = 16
"""Columns from which on a matrix is stored in int8 where that is asked for."""


class Kind(IntEnum):
    """Types of tensors by their numbers in the file."""

    VECTOR = 0
    F32 = 1
    BF16 = 2
    INT8 = 3


GROUPS: Final = {Kind.F32: 1, Kind.BF16: 2, Kind.INT8: 4}
"""Neighbouring columns of a matrix that lie together."""


class Stored(NamedTuple):
    """A tensor in the form of the file."""

    kind: Kind
    rows: int
    columns: int
    values: bytes
    scales: bytes = b""
    """f32 of each row; only int8"""
    sums: bytes = b""
    """i32 of each row; only int8"""


class Tensors:
    """The tensors of a model in the order of the file; a tensor used twice is stored once."""

    def __init__(self, precision: Precision) -> None:
        self.precision = precision
        self._parts: list[tuple[Tensor, ...]] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._used = set[int]()

    def matrix(self, parts: Sequence[Tensor]) -> int:
        """The number of the matrix of these parts [M_i, K], one below the other."""
        return self._number(parts)

    def vector(self, parts: Sequence[Tensor]) -> int:
        """The number of the vector of these parts [K_i], side by side."""
        return self._number(parts)

    def use(self, *parameters: Tensor) -> None:
        """Note that these are in the file, or that no translation depends on them."""
        self._used.update(map(id, parameters))

    def has(self, parameter: Tensor) -> bool:
        """Whether it, or a tensor that contains it, is in the file."""
        return id(parameter) in self._used

    def values(self, number: int) -> Tensor:
        """The tensor of this number in fp32, a matrix [M, K] or a vector [K]."""
        return torch.cat([part.detach() for part in self._parts[number]]).float().cpu()

    def stored(self) -> Iterator[Stored]:
        """All of them, as they are written, one after the other.

        ConfigError for what the engine refuses: a sum of two finite weights can be infinite.
        """
        for number in range(len(self._parts)):
            values = self.values(number)
            if not bool(values.isfinite().all()):
                raise ConfigError("model: the sum of a bias and an offset of a layer norm is beyond the range of fp32")
            yield _stored(values, self.precision)

    def size(self) -> int:
        """Bytes of all tensors, without gaps between them; known without their values."""
        total = 0
        for parts in self._parts:
            rows, columns = sum(len(part) for part in parts), parts[0].shape[-1]
            kind = _kind(parts[0].dim(), columns, self.precision)
            if kind == Kind.VECTOR:
                total += 4 * rows
            else:
                total += 4 // GROUPS[kind] * _padded(rows, columns, kind) + (8 * rows if kind == Kind.INT8 else 0)
        return total

    def _number(self, parts: Sequence[Tensor]) -> int:
        key = tuple(map(id, parts))
        if key not in self._numbers:
            self._numbers[key] = len(self._parts)
            self._parts.append(tuple(parts))  # kept, so that no other tensor gets its id
            self.use(*parts)
        return self._numbers[key]


def _stored(tensor: Tensor, precision: Precision) -> Stored:
    kind = _kind(tensor.dim(), tensor.shape[-1], precision)
    if kind == Kind.VECTOR:
        return Stored(kind, 1, len(tensor), _bytes(tensor))
    rows, columns = tensor.shape
    if kind == Kind.INT8:
        values, scales = quantize_rows(tensor)
        sums = values.sum(1, dtype=torch.int32)
        return Stored(kind, rows, columns, _bytes(strips(values, kind)), _bytes(scales), _bytes(sums))
    # numpy has no bf16
    values = tensor.to(torch.bfloat16).view(torch.int16) if kind == Kind.BF16 else tensor
    return Stored(kind, rows, columns, _bytes(strips(values, kind)))


def _kind(dimensions: int, columns: int, precision: Precision) -> Kind:
    if dimensions == 1:
        return Kind.VECTOR
    if precision == "int8":
        return Kind.INT8 if columns >= SMALLEST_INT8 else Kind.F32
    return Kind.BF16 if precision == "bf16" else Kind.F32


def _padded(rows: int, columns: int, kind: Kind) -> int:
    """Values of a matrix in the stored form."""
    return (rows + -rows % STRIP) * (columns + -columns % GROUPS[kind])


def strips(matrix: Tensor, kind: Kind) -> Tensor:
    """The values of a matrix [M, K] in the order of the file, [strips, groups, STRIP, size of a group]."""
    rows, columns = matrix.shape
    group = GROUPS[kind]
    padded = F.pad(matrix, (0, -columns % group, 0, -rows % STRIP))
    return padded.view(-1, STRIP, padded.shape[1] // group, group).transpose(1, 2).contiguous()


def _bytes(tensor: Tensor) -> bytes:
    array = tensor.contiguous().numpy()
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
