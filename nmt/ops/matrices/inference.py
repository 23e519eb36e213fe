"""Weights in bf16 or int8 for inference, which compute their products themselves.

An int8 product is exact except for the rounding of its factors. There is one scale for each output and one for each row
of activations, which depends on this row only:

    y[n, j] = s_n t_j sum_k q[n, k] w[j, k] + b_j,   s_n = max_k |x[n, k]| / 127,   q = round(x / s_n),   w alike

If the CPU has the instructions, values are packed once in the layout of a C kernel, so that products with few rows take
little more time than reading the values. No row depends on the others.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.dispatch import use_native
from nmt.ops.matrices.training import pack
from nmt.ops.native import has, kernel

M = TypeVar("M", bound="InferenceMatrix")

LARGEST: Final = 127
"""Values are -127..127: symmetric."""

SMALLEST_SCALE: Final = 1e-30
"""For rows of zeros."""

_BLOCK: Final = 1 << 19
"""Sums computed at a time on a CPU, 2 MiB, so that they are still in the cache when they are scaled."""


class InferenceMatrix(Tensor):
    """A matrix [M, K] for inference, of one of two kinds.

    Modules can use it like the weight that it was made from: `F.linear` with it is its `product`, `index_select` of
    rows gives another InferenceMatrix, and all other operations see its plain values. It has no storage, so asking for
    its address fails.
    """

    kind: ClassVar[str]
    """The first part of the names of its C kernels."""
    values: Tensor  # type: ignore[assignment]
    """int8 or bf16 [M', K'], both widths padded with zeros"""
    scales: Tensor | None
    """fp32 [M], one for each output; None for bf16"""

    @staticmethod
    def make(kind: type[M], values: Tensor, scales: Tensor | None, *, rows: int, width: int) -> M:
        """A matrix of this kind; `rows` and `width` are M and K."""
        dtype = values.dtype if scales is None else scales.dtype
        self: M = Tensor._make_wrapper_subclass(kind, (rows, width), dtype=dtype, device=values.device)
        self.values, self.scales = values, scales
        return self

    @classmethod
    def has_kernel(cls) -> bool:
        """Whether there are kernels for packed values; they are compiled only for CPUs that have the instructions."""
        return has(f"{cls.kind}_best", torch.float32)

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """`F.linear` of x [..., K]: fp32 [..., M]. A row does not depend on the others."""
        outputs, width = self.shape
        rows = x.detach().reshape(-1, width)
        bias = None if bias is None else bias.detach().float().contiguous()
        native = use_native(rows) and self.has_kernel()
        result = (self.packed_product if native else self.plain_product)(rows, bias)
        return result.view(*x.shape[:-1], outputs)

    @functools.cached_property
    def packed(self) -> Tensor:
        """The values in the layout of the C kernels; see tiles.h."""
        return pack(self.values)

    def operands(self, x: Tensor) -> tuple[Tensor, ...]:
        """The arguments of the C kernels for x [N, K] and the matrix; the first one is [N, K']."""
        raise NotImplementedError

    def packed_product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """The product of x [N, K] with the kernel for packed values."""
        raise NotImplementedError

    def plain_product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """The product of x [N, K] without the kernel for packed values."""
        raise NotImplementedError

    def chosen(self: M, index: Tensor) -> M:
        """The rows `index` [N]."""
        scales = None if self.scales is None else self.scales.index_select(0, index)
        return _padded(type(self), self.values[:, : self.shape[1]].index_select(0, index), scales)

    def dequantize(self) -> Tensor:
        """The values that it represents, [M, K]."""
        rows, width = self.shape
        plain = self.values[:rows, :width]
        return plain if self.scales is None else plain * self.scales.unsqueeze(1)

    def index_select(self: M, dim: int, index: Tensor) -> M:
        """Some of its rows; `dim` must be 0."""
        if dim != 0:
            raise ValueError(f"a {type(self).__name__} selects rows, not dimension {dim}")
        return self.chosen(index)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear and isinstance(args[1], InferenceMatrix):
            return args[1].product(args[0], *args[2:], **(kwargs or {}))
        with torch._C.DisableTorchFunctionSubclass():
            if func in _OF_THE_WRAPPER:
                return func(*args, **(kwargs or {}))
            plain = [arg.dequantize() if isinstance(arg, InferenceMatrix) else arg for arg in args]
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
"""Functions that the matrix itself answers, without computing its values."""


class Bf16Matrix(InferenceMatrix):
    """A matrix [M, K] as bf16 values; products are summed in fp32; made by `to_bf16`."""

    kind = "bf16"

    def operands(self, x: Tensor) -> tuple[Tensor, ...]:
        return _widened(x.to(torch.bfloat16), self.values.shape[1]).contiguous(), self.packed

    def packed_product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        (rows, packed), out = self.operands(x), x.new_empty(x.shape[0], self.shape[0], dtype=torch.float32)
        run = kernel("bf16_product", torch.bfloat16)
        run(rows, rows.shape[1], packed, bias, 0, out, out.shape[1], True, *rows.shape, out.shape[1])
        return out

    def plain_product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return F.linear(x.to(torch.bfloat16).float(), self.dequantize().float(), bias)


class Int8Matrix(InferenceMatrix):
    """A matrix [M, K] as int8 values and fp32 scales [M]; made by `quantize`."""

    kind = "int8"
    scales: Tensor

    @functools.cached_property
    def packed(self) -> Tensor:
        return pack((self.values ^ -128).view(torch.bfloat16))  # plus 128, as unsigned bytes

    def operands(self, x: Tensor) -> tuple[Tensor, ...]:
        return *_rows(x, self.values.shape[1]), self.packed, self.scales

    def packed_product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        operands, out = self.operands(x), x.new_empty(x.shape[0], self.shape[0], dtype=torch.float32)
        kernel("int8_product", torch.float32)(*operands, bias, out, *operands[0].shape, out.shape[1])
        return out

    def plain_product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        outputs = len(self.scales)
        result = self.scales.new_empty(len(x), outputs)
        if use_native(x):
            rows, _, scales = _rows(x, self.values.shape[1])
            sums = int8_product(rows, self.values)
            run = kernel("int8_scale", torch.float32)
            run(sums, sums.stride(0), scales, self.scales, bias, result, len(x), outputs)
            return result
        rows, scales = quantize_rows(x)
        rows = _widened(rows, self.values.shape[1])
        block = max(1, len(x) if x.is_cuda else _BLOCK // max(1, outputs))
        for start in range(0, len(x), block):
            sums = int8_product(rows[start : start + block], self.values)[:, :outputs]
            torch.mul(sums, self.scales, out=result[start : start + block])
        return result.mul_(scales) if bias is None else torch.addcmul(bias, result, scales, out=result)


def to_bf16(weight: Tensor) -> Bf16Matrix:
    """The nearest bf16 values of a weight [M, K]."""
    return _padded(Bf16Matrix, weight.detach().to(torch.bfloat16), None)


def quantize(weight: Tensor) -> Int8Matrix:
    """The nearest int8 values of a weight [M, K], with a scale for each row."""
    values, scales = quantize_rows(weight)
    return int8_matrix(values, scales.squeeze(1))


def int8_matrix(values: Tensor, scales: Tensor) -> Int8Matrix:
    """The matrix of int8 values [M, K], -127..127, and fp32 scales [M], as `quantize_rows` makes them."""
    return _padded(Int8Matrix, values, scales)


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """int8 values [N, K] and fp32 scales [N, 1] of x [N, K]; rows do not depend on each other."""
    x = x.detach().float()
    scales = x.abs().amax(1, keepdim=True).div_(LARGEST).clamp_min_(SMALLEST_SCALE)
    return (x / scales).round_().to(torch.int8), scales


def worth_packing(device: torch.device) -> bool:
    """Whether this device is a CPU with a kernel for packed bf16 matrices."""
    return device.type == "cpu" and Bf16Matrix.has_kernel()


def int8_implementation(device: torch.device) -> str:
    """The name of the implementation of int8 products on `device`."""
    if device.type == "cpu" and Int8Matrix.has_kernel():
        return "a kernel for AVX-512 VNNI"
    return "torch._int_mm" if kernel_problem(device.type) is None else "the floating-point reference"


def plain_parts(matrix: Tensor) -> list[Tensor]:
    """The parts of a matrix: values and scales of an InferenceMatrix, else the matrix itself."""
    if not isinstance(matrix, InferenceMatrix):
        return [matrix]
    return [matrix.values] if matrix.scales is None else [matrix.values, matrix.scales]


def rebuilt_matrix(parts: Sequence[Tensor], *, like: Tensor) -> Tensor:
    """The matrix with these `plain_parts`, of the kind and size of `like`."""
    if not isinstance(like, InferenceMatrix):
        return parts[0]
    rows, width = like.shape
    return InferenceMatrix.make(type(like), parts[0], parts[1] if len(parts) > 1 else None, rows=rows, width=width)


def _rows(x: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """x [N, K] in fp32 or bf16 by a C kernel: int8 rows [N, width], 128 times their sums, and their scales."""
    x = x if x.stride(1) == 1 else x.contiguous()
    values = torch.empty(x.shape[0], width, dtype=torch.int8)
    excess, scales = (torch.empty(x.shape[0], dtype=kind) for kind in (torch.int32, torch.float32))
    kernel("int8_rows", x.dtype)(x, x.stride(0), values, width, scales, excess, *x.shape, SMALLEST_SCALE)
    return values, excess, scales


def _widened(x: Tensor, width: int) -> Tensor:
    """x [N, K] padded with zeros to a width."""
    return F.pad(x, (0, width - x.shape[1])) if x.shape[1] < width else x


def _padded(kind: type[M], values: Tensor, scales: Tensor | None) -> M:
    """The matrix of values [M, K], whose widths must be multiples of some number."""
    rows, width = values.shape
    values = F.pad(values, (0, -width % MULTIPLE, 0, -rows % MULTIPLE)).contiguous()
    return InferenceMatrix.make(kind, values, None if scales is None else scales.contiguous(), rows=rows, width=width)


logger = logging.getLogger(__name__)

MULTIPLE: Final = 8
"""Both widths of a weight are padded to a multiple of this, which the GPU kernel requires."""

_GPU_ROWS: Final = 32
"""The GPU kernel requires more than 16 rows; fewer are padded."""

_EXACT_IN_FP32: Final = (1 << 24) // (127 * 127)
"""Number of terms whose sum is exact in fp32."""


def int8_product(x: Tensor, weight: Tensor) -> Tensor:
    """x [N, K] times the transpose of weight [M, K], both int8 in -127..127: int32 [N, M], exact.

    K and M are multiples of MULTIPLE. Computed by `torch._int_mm` if it works, else by `reference_product`, which is
    reported once.
    """
    if kernel_problem(x.device.type) is not None:
        return reference_product(x, weight)
    if x.is_cuda and len(x) < _GPU_ROWS:
        return torch._int_mm(F.pad(x, (0, 0, 0, _GPU_ROWS - len(x))), weight.t())[: len(x)]
    return torch._int_mm(x, weight.t())


def reference_product(x: Tensor, weight: Tensor) -> Tensor:
    """The same in floating point, also exact, but slower than the product that int8 should replace."""
    dtype = torch.float32 if x.shape[1] <= _EXACT_IN_FP32 else torch.float64
    with torch.autocast(x.device.type, enabled=False):
        return (x.to(dtype) @ weight.to(dtype).t()).to(torch.int32)


@functools.cache
def kernel_problem(device: str) -> str | None:
    """Why the integer kernel cannot be used on such a device, None if it can; reported once."""
    problem = _problem(device, getattr(torch, "_int_mm", None))
    if problem is not None:
        logger.warning("int8: the slow floating-point reference runs on this %s: %s.", device, problem)
    return problem


def _problem(device: str, kernel: Callable[[Tensor, Tensor], Tensor] | None) -> str | None:
    if kernel is None:
        return f"torch {torch.__version__} has no torch._int_mm"
    if device == "cpu" and not torch.backends.mkldnn.is_available():
        return "this build of torch has no oneDNN, without which torch._int_mm is a plain loop"
    # Some older instruction sets add 8-bit products in 16 bits, which overflow for large values.
    x = torch.full((_GPU_ROWS, 64), 127, dtype=torch.int8, device=device)
    x[::2] = -127
    weight = x[: 2 * MULTIPLE].roll(1, 0).contiguous()
    try:
        found = kernel(x, weight.t())
    except (RuntimeError, NotImplementedError) as error:
        return f"torch._int_mm fails ({str(error).strip().splitlines()[0]})"
    return None if torch.equal(found, reference_product(x, weight)) else "torch._int_mm is not exact"
