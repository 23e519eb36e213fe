"""Products with weight matrices, packed for the C kernels or by torch: in training, with their gradients, and for
inference in bf16 or int8; beside them the best words of a search step (best_words.py)."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Any, ClassVar, Final, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.dispatch import use_native
from nmt.ops.native import column_sums, has, kernel
from nmt.ops.recurrence import at_least_fp32, product_type, readable_rows

logger = logging.getLogger(__name__)

STRIP: Final = 32
"""Outputs side by side in a packed matrix, see native.c."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., K] times the transposed weight [M, K], plus bias [M], in the type of autocast.

    The same as `torch.nn.functional.linear`. A packed matrix computes it if a gradient is needed and the types fit; the
    gradients of weight and bias are then sums in fp32.
    """
    dtype = product_type(x)
    if torch.is_grad_enabled() and weight.requires_grad and x.numel() and packable(weight, dtype):
        result: Tensor = _Linear.apply(x, weight, bias, dtype)
        return result
    return F.linear(x, weight, bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
        rows = readable_rows(x.reshape(-1, x.size(-1)).to(dtype))
        result = torch.empty(*x.shape[:-1], len(weight), dtype=dtype)
        matrix_of(weight, dtype).forward(rows, out=result.view(len(rows), -1), bias=bias)
        ctx.save_for_backward(rows, weight)
        ctx.shape, ctx.dtype = x.shape, x.dtype
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        d_rows = readable_rows(gradients[0].reshape(len(x), -1))
        matrix, dx, d_weight, d_bias = matrix_of(weight, x.dtype), None, None, None
        if ctx.needs_input_grad[0]:
            dx = torch.empty(ctx.shape, dtype=ctx.dtype)
            matrix.backward(d_rows, out=dx.view(len(x), -1))
        if ctx.needs_input_grad[1]:
            d_weight = matrix.weight_gradient(d_rows, x)
        if ctx.needs_input_grad[2]:
            d_bias = column_sums(d_rows)
        return dx, d_weight, d_bias, None


def packable(weight: Tensor, dtype: torch.dtype) -> bool:
    """Whether the C kernels multiply with `weight` [M, K] in products of `dtype`.

    In fp32 they do with AVX-512, which torch's library leaves unused on CPUs of AMD: there they are 2.3 times as fast.
    """
    if dtype == torch.float32:
        return weight.dtype == dtype and use_native(weight) and has("fp32_product", dtype)
    even = weight.size(0) % 2 == weight.size(1) % 2 == 0  # values are summed two at a time
    return dtype == torch.bfloat16 and even and use_native(weight) and has("bf16_product", dtype)


def matrix_of(weight: Tensor, dtype: torch.dtype) -> PlainMatrix:
    """The products with `weight` [M, K] in `dtype`; packing saves time from some dozen rows on."""
    weight = weight.detach()
    if not packable(weight, dtype):
        return PlainMatrix(weight.to(dtype))
    return (PackedWideMatrix if dtype == torch.float32 else PackedMatrix)(weight)


def matrix_of_steps(weight: Tensor, dtype: torch.dtype, *, steps: int) -> PlainMatrix:
    """The products with `weight` [M, K] in `dtype` for so many time steps: for one, packing would take longer."""
    if isinstance(weight, InferenceMatrix):
        return InferenceProduct(weight)
    return PlainMatrix(weight.detach().to(dtype)) if steps == 1 else matrix_of(weight, dtype)


class PlainMatrix:
    """Products of rows with a matrix W [M, K] by torch, in its type; rows can have any stride, values in a row cannot.

    They are written with `out=`, which autocast does not change.
    """

    packed: ClassVar[bool] = False
    """Whether its products use C kernels that can run in one team, see `nmt.ops.native.in_one_team`."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def forward(self, x: Tensor, *, out: Tensor, bias: Tensor | None = None) -> None:
        """out [N, M] = x [N, K] W' + bias [M]"""
        if bias is None:
            torch.mm(x, self.weight.t(), out=out)
        else:
            torch.addmm(bias.to(out.dtype), x, self.weight.t(), out=out)

    def backward(self, d_out: Tensor, *, out: Tensor, added: Tensor | None = None) -> None:
        """out [N, K] = d_out [N, M] W + added [N, K], of the type of `out`"""
        if added is None:
            torch.mm(d_out, self.weight, out=out)
        else:
            torch.addmm(added, d_out, self.weight, out=out)

    def weight_gradient(self, d_out: Tensor, x: Tensor, *, to: Tensor | None = None) -> Tensor:
        """d_out' x [M, K] in at least fp32; if `to` is given, added to it in place."""
        if to is not None and to.dtype == x.dtype:
            return torch.addmm(to, d_out.t(), x, out=to)
        gradient = torch.empty_like(self.weight)
        torch.mm(d_out.t(), x, out=gradient)
        return at_least_fp32(gradient) if to is None else to.add_(gradient)


class InferenceProduct(PlainMatrix):
    """Products with a matrix in an inference format, which have no gradients."""

    def forward(self, x: Tensor, *, out: Tensor, bias: Tensor | None = None) -> None:
        out.copy_(F.linear(x, self.weight, bias))


class PackedMatrix(PlainMatrix):
    """The same by the C kernels, in bf16; `out` is bf16 or fp32, the gradient of the weight fp32."""

    packed: ClassVar[bool] = True
    gradient: ClassVar[str] = "bf16_gradient"

    def __init__(self, weight: Tensor) -> None:
        super().__init__(readable_rows(weight))

    @functools.cached_property
    def _packed(self) -> Tensor:
        return pack(self.weight)

    @functools.cached_property
    def _transposed(self) -> Tensor:
        return self._transpose(self.weight)

    def _transpose(self, x: Tensor) -> Tensor:
        """The transpose of x [N, K] in strips."""
        rows, width = x.shape
        packed = torch.empty((rows + rows % 2) * -(-width // STRIP) * STRIP, dtype=torch.bfloat16)
        kernel("pack_transposed", x.dtype)(x, x.stride(0), packed, rows, width)
        return packed

    def forward(self, x: Tensor, *, out: Tensor, bias: Tensor | None = None) -> None:
        _product(x, self._packed, added=None if bias is None else bias.detach().to(out.dtype), step=0, out=out)

    def backward(self, d_out: Tensor, *, out: Tensor, added: Tensor | None = None) -> None:
        _product(d_out, self._transposed, added=added, step=0 if added is None else added.stride(0), out=out)

    def weight_gradient(self, d_out: Tensor, x: Tensor, *, to: Tensor | None = None) -> Tensor:
        add, to = to is not None, torch.empty(self.weight.shape, dtype=torch.float32) if to is None else to
        run, packed = kernel(self.gradient, d_out.dtype), self._transpose(x)
        run(d_out, d_out.stride(0), packed, to, *d_out.shape, x.size(1), add)
        return to


class PackedWideMatrix(PackedMatrix):
    """The same in fp32."""

    packed: ClassVar[bool] = False
    gradient: ClassVar[str] = "fp32_gradient"

    @functools.cached_property
    def _packed(self) -> Tensor:
        return self._strips("pack_fp32", self.weight, *self.weight.shape)

    @functools.cached_property
    def _transposed(self) -> Tensor:
        return self._transpose(self.weight)

    def _transpose(self, x: Tensor) -> Tensor:
        return self._strips("pack_transposed_fp32", x, *x.t().shape)

    def _strips(self, name: str, x: Tensor, outputs: int, width: int) -> Tensor:
        packed = torch.empty(-(-outputs // STRIP) * width * STRIP)
        kernel(name, torch.float32)(x, x.stride(0), packed, *x.shape)
        return packed


def pack(weight: Tensor) -> Tensor:
    """A matrix [M, K] in strips of bf16, for products with rows [N, K]; K is even."""
    outputs, width = weight.shape
    packed = torch.empty(-(-outputs // STRIP) * width * STRIP, dtype=torch.bfloat16)
    kernel("pack", weight.dtype)(weight, weight.stride(0), packed, outputs, width)
    return packed


def _product(x: Tensor, packed: Tensor, *, added: Tensor | None, step: int, out: Tensor) -> None:
    """out = x times a matrix in strips, in the type of these, plus `added`, whose rows have the stride `step`."""
    wide = packed.dtype == torch.float32
    run = kernel("fp32_product" if wide else "bf16_product", packed.dtype)
    form = () if wide else (out.dtype == torch.float32,)
    run(x, x.stride(0), packed, added, step, out, out.stride(0), *form, *x.shape, out.size(1))


M = TypeVar("M", bound="InferenceMatrix")

LARGEST: Final = 127
"""Values are -127..127: symmetric."""

SMALLEST_SCALE: Final = 1e-30
"""For rows of zeros."""

_BLOCK: Final = 1 << 19
"""Sums computed at a time on a CPU, 2 MiB, so that they are still in the cache when they are scaled."""


class InferenceMatrix(Tensor):
    """A matrix [M, K] in bf16 or int8 for inference, which computes its products itself.

    An int8 product is exact except for the rounding of its factors. There is one scale for each output and one for each
    row of activations, which depends on this row only:

        y[n, j] = s_n t_j sum_k q[n, k] w[j, k] + b_j,   s_n = max_k |x[n, k]| / 127,   q = round(x / s_n),   w alike

    If the CPU has the instructions, values are packed once in the layout of a C kernel, so that products with few rows
    take little more time than reading the values. No row depends on the others.

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
        """The values in the layout of the C kernels; see native.c."""
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

    def dequantize(self) -> Tensor:
        """The values that it represents, [M, K]."""
        rows, width = self.shape
        plain = self.values[:rows, :width]
        return plain if self.scales is None else plain * self.scales.unsqueeze(1)

    def index_select(self: M, dim: int, index: Tensor) -> M:
        """The rows `index` [N]; `dim` must be 0."""
        if dim != 0:
            raise ValueError(f"a {type(self).__name__} selects rows, not dimension {dim}")
        scales = None if self.scales is None else self.scales.index_select(0, index)
        return _padded(type(self), self.values[:, : self.shape[1]].index_select(0, index), scales)

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
        rows, more = x.to(torch.bfloat16), self.values.shape[1] - x.shape[1]
        return (F.pad(rows, (0, more)) if more else rows.contiguous()), self.packed

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
        rows = F.pad(rows, (0, self.values.shape[1] - rows.shape[1]))
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


def quantize_rows(x: Tensor, scales: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """int8 values [N, K] and fp32 scales [N, 1] of x [N, K]; rows do not depend on each other.

    By default the largest of a row becomes 127.
    """
    x = x.detach().float()
    if scales is None:
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


def _padded(kind: type[M], values: Tensor, scales: Tensor | None) -> M:
    """The matrix of values [M, K], whose widths must be multiples of some number."""
    rows, width = values.shape
    values = F.pad(values, (0, -width % MULTIPLE, 0, -rows % MULTIPLE)).contiguous()
    return InferenceMatrix.make(kind, values, None if scales is None else scales.contiguous(), rows=rows, width=width)


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
    problem, kernel = None, getattr(torch, "_int_mm", None)
    if kernel is None:
        problem = f"torch {torch.__version__} has no torch._int_mm"
    elif device == "cpu" and not torch.backends.mkldnn.is_available():
        problem = "this build of torch has no oneDNN, without which torch._int_mm is a plain loop"
    else:  # some older instruction sets add 8-bit products in 16 bits, which overflow for large values
        x = torch.full((_GPU_ROWS, 64), 127, dtype=torch.int8, device=device)
        x[::2] = -127
        weight = x[: 2 * MULTIPLE].roll(1, 0).contiguous()
        try:
            if not torch.equal(kernel(x, weight.t()), reference_product(x, weight)):
                problem = "torch._int_mm is not exact"
        except (RuntimeError, NotImplementedError) as error:
            problem = f"torch._int_mm fails ({str(error).strip().splitlines()[0]})"
    if problem is not None:
        logger.warning("int8: the slow floating-point reference runs on this %s: %s.", device, problem)
    return problem
