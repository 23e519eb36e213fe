"""A weight matrix in int8 with a scale for each output, and its product with rows of activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.dispatch import use_native
from nmt.ops.int8.native import SMALLEST_SCALE, linear_native, pack, packed_native, packs
from nmt.ops.int8.product import MULTIPLE, int8_product

LARGEST: Final = 127
"""Values are -127..127: symmetric."""
_BLOCK: Final = 1 << 19
"""Sums computed at a time on a CPU, 2 MiB: so they are still in the cache when they are scaled."""


class Int8Matrix(Tensor):
    """A matrix [M, K] as int8 values and fp32 scales [M]; made by `quantize`.

    To modules it is the weight that it was made from: `F.linear` with it is `int8_linear`, `index_select` of rows
    gives another one, and all else sees fp32 values, computed anew each time. It has no storage, so asking for its
    address fails. For inference only.
    """

    values: Tensor  # type: ignore[assignment]
    """int8 [M', K'], both widths padded with zeros to a multiple of 8"""
    scales: Tensor
    """fp32 [M]"""
    _packed: Tensor | None

    @staticmethod
    def __new__(cls, values: Tensor, scales: Tensor, *, width: int) -> Int8Matrix:
        """`width` is K."""
        shape = (len(scales), width)
        self: Int8Matrix = Tensor._make_wrapper_subclass(cls, shape, dtype=scales.dtype, device=scales.device)
        self.values, self.scales, self._packed = values, scales, None
        return self

    def packed(self) -> Tensor:
        """The values as the C kernel reads them, kept from the first time on; see `nmt.ops.int8.native`."""
        if self._packed is None:
            self._packed = pack(self.values)
        return self._packed

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear and isinstance(args[1], Int8Matrix):
            return int8_linear(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunctionSubclass():
            if func in _OF_THE_WRAPPER:
                return func(*args, **(kwargs or {}))
            plain = [arg.dequantize() if isinstance(arg, Int8Matrix) else arg for arg in args]
            return func(*plain, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise NotImplementedError(f"{func} on an Int8Matrix")

    def index_select(self, dim: int, index: Tensor) -> Int8Matrix:
        """Some of its rows; `dim` must be 0."""
        if dim != 0:
            raise ValueError(f"an Int8Matrix selects rows, not dimension {dim}")
        width = self.shape[1]
        return Int8Matrix(_pad(self.values.index_select(0, index)), self.scales.index_select(0, index), width=width)

    def dequantize(self) -> Tensor:
        """The values that it stands for, fp32 [M, K]."""
        rows, width = self.shape
        return self.values[:rows, :width] * self.scales.unsqueeze(1)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Int8Matrix{list(self.shape)}"


_OF_THE_WRAPPER: Final = frozenset(
    (
        *(Tensor.shape.__get__, Tensor.dtype.__get__, Tensor.device.__get__, Tensor.is_cuda.__get__),  # type: ignore[attr-defined]
        *(Tensor.size, Tensor.dim, Tensor.numel, Tensor.__len__, Tensor.data_ptr),
    )
)
"""What the matrix itself answers, without computing its values."""


def quantize(weight: Tensor) -> Int8Matrix:
    """The nearest int8 values of a weight [M, K], with a scale for each row."""
    values, scales = quantize_rows(weight)
    return Int8Matrix(_pad(values), scales.squeeze(1), width=weight.shape[1])


def plain_parts(matrix: Tensor) -> list[Tensor]:
    """What a matrix consists of: values and scales of an Int8Matrix, any other itself."""
    return [matrix.values, matrix.scales] if isinstance(matrix, Int8Matrix) else [matrix]


def rebuilt_matrix(parts: Sequence[Tensor], *, like: Tensor) -> Tensor:
    """The matrix of these `plain_parts`, of the kind and width of another."""
    return Int8Matrix(parts[0], parts[1], width=like.shape[1]) if isinstance(like, Int8Matrix) else parts[0]


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """int8 values [N, K] and fp32 scales [N, 1] of x [N, K]; each row depends on itself alone."""
    x = x.detach().float()
    scales = x.abs().amax(1, keepdim=True).div_(LARGEST).clamp_min_(SMALLEST_SCALE)
    return (x / scales).round_().to(torch.int8), scales


def int8_linear(input: Tensor, weight: Int8Matrix, bias: Tensor | None = None) -> Tensor:
    """`F.linear` of input [..., K] with an Int8Matrix [M, K]: fp32 [..., M]."""
    outputs, width = weight.shape
    rows = input.detach().reshape(-1, width)
    if use_native(rows):
        if packs():
            result = packed_native(rows, weight.packed(), weight.scales, bias)
        else:
            result = linear_native(rows, weight.values, weight.scales, bias)
        return result.view(*input.shape[:-1], outputs)
    x, scales = quantize_rows(rows)
    padded = weight.values.shape[1] - width
    x = F.pad(x, (0, padded)) if padded else x
    result = scales.new_empty(len(x), outputs)
    block = max(1, len(x) if x.is_cuda else _BLOCK // max(1, outputs))
    for start in range(0, len(x), block):
        sums = int8_product(x[start : start + block], weight.values)[:, :outputs]
        torch.mul(sums, weight.scales, out=result[start : start + block])
    result = result.mul_(scales) if bias is None else torch.addcmul(bias.detach().float(), result, scales, out=result)
    return result.view(*input.shape[:-1], outputs)


def _pad(values: Tensor) -> Tensor:
    rows, width = values.shape
    return F.pad(values, (0, -width % MULTIPLE, 0, -rows % MULTIPLE)).contiguous()
