"""The base of weights in a narrow format: what modules and the kernels see of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.dispatch import use_native
from nmt.ops.narrow.native import Rows, pack, packs, product_native

M = TypeVar("M", bound="NarrowMatrix")


class NarrowMatrix(Tensor):
    """A matrix [M, K] in a narrow format, for inference.

    To modules it is the weight that it was made from: `F.linear` with it is its `product`, `index_select` of rows gives
    another one, and all else sees its plain values. It has no storage, so asking for its address fails.
    """

    values: Tensor  # type: ignore[assignment]
    """int8 or bf16 [M', K'], both widths padded with zeros"""
    scales: Tensor | None
    """fp32 [M], of the outputs; None for bf16"""
    _packed: Tensor | None

    @staticmethod
    def make(kind: type[M], values: Tensor, scales: Tensor | None, *, rows: int, width: int) -> M:
        """One of this kind; `rows` and `width` are M and K."""
        dtype = values.dtype if scales is None else scales.dtype
        self: M = Tensor._make_wrapper_subclass(kind, (rows, width), dtype=dtype, device=values.device)
        self.values, self.scales, self._packed = values, scales, None
        return self

    def product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """`F.linear` of x [..., K]: fp32 [..., M]. A row does not depend on the others."""
        outputs, width = self.shape
        rows = x.detach().reshape(-1, width)
        if use_native(rows) and packs(self.values.dtype):
            result = product_native(self.operand(rows), self.packed(), self.scales, bias, outputs=outputs)
        else:
            result = self.plain_product(rows, bias)
        return result.view(*x.shape[:-1], outputs)

    def packed(self) -> Tensor:
        """The values as the C kernel reads them, kept from the first time on; see `nmt.ops.narrow.native`."""
        if self._packed is None:
            self._packed = pack(self.values)
        return self._packed

    def operand(self, x: Tensor) -> Rows:
        """Rows x [N, K] on a CPU in the format of the matrix."""
        raise NotImplementedError

    def plain_product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """The product of x [N, K] without the kernel for packed matrices."""
        raise NotImplementedError

    def chosen(self: M, index: Tensor) -> M:
        """The rows `index` [N]."""
        raise NotImplementedError

    def dequantize(self) -> Tensor:
        """The values that it stands for [M, K]."""
        raise NotImplementedError

    def index_select(self: M, dim: int, index: Tensor) -> M:
        """Some of its rows; `dim` must be 0."""
        if dim != 0:
            raise ValueError(f"a {type(self).__name__} selects rows, not dimension {dim}")
        return self.chosen(index)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear and isinstance(args[1], NarrowMatrix):
            return args[1].product(*_input_and_bias(args[0], *args[2:], **(kwargs or {})))
        with torch._C.DisableTorchFunctionSubclass():
            if func in _OF_THE_WRAPPER:
                return func(*args, **(kwargs or {}))
            plain = [arg.dequantize() if isinstance(arg, NarrowMatrix) else arg for arg in args]
            return func(*plain, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise NotImplementedError(f"{func} on a {cls.__name__}")

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"{type(self).__name__}{list(self.shape)}"


_OF_THE_WRAPPER: Final = frozenset(
    (
        *(Tensor.shape.__get__, Tensor.dtype.__get__, Tensor.device.__get__, Tensor.is_cuda.__get__),  # type: ignore[attr-defined]
        *(Tensor.size, Tensor.dim, Tensor.numel, Tensor.__len__, Tensor.data_ptr),
    )
)
"""What the matrix itself answers, without computing its values."""


def plain_parts(matrix: Tensor) -> list[Tensor]:
    """What a matrix consists of: values and scales of a NarrowMatrix, any other itself."""
    if not isinstance(matrix, NarrowMatrix):
        return [matrix]
    return [matrix.values] if matrix.scales is None else [matrix.values, matrix.scales]


def rebuilt_matrix(parts: Sequence[Tensor], *, like: Tensor) -> Tensor:
    """The matrix of these `plain_parts`, of the kind and size of another."""
    if not isinstance(like, NarrowMatrix):
        return parts[0]
    rows, width = like.shape
    return NarrowMatrix.make(type(like), parts[0], parts[1] if len(parts) > 1 else None, rows=rows, width=width)


def _input_and_bias(x: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    return x, bias


def padded(values: Tensor, multiple: int) -> Tensor:
    """Values [M, K] with zeros up to a multiple in both widths."""
    rows, width = values.shape
    return F.pad(values, (0, -width % multiple, 0, -rows % multiple)).contiguous()
