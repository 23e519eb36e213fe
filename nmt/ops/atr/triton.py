"""ATR in Triton: how its kernels are launched, and the custom operator around them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import torch
import triton
from torch import Tensor
from triton.runtime import driver

from nmt.ops.atr.kernels import COUNTER, atr_backward_kernel, atr_forward_kernel
from nmt.ops.atr.reference import Activation, Gates, atr_reference
from nmt.ops.loop import run_loop
from nmt.ops.recurrence import Recurrent, product_type
from nmt.ops.steps import unsupported
from nmt.ops.triton_tools import (
    gradient_like,
    mask_bytes,
    mask_strides,
    or_zeros,
    readable,
    sequence_like,
    state_like,
)

FP32_PRODUCTS: Final = "ieee"
"""Products of fp32 are exact: on tensor cores (tf32, tf32x3) the kernels run out of registers."""

MOST_LAUNCHES: Final = 4
"""Where the programs of a batch do not all fit on the GPU, up to so many persistent launches share the batch."""

STAGES: Final = 1
"""Without Triton's pipeliner: it looks at no barrier, and would load states before they are there."""


class Tiles(NamedTuple):
    """How a batch is cut into programs, and whether one launch runs all steps."""

    rows: int
    """Sentences of a program."""
    columns: int
    """Channels of a program."""
    depth: int
    """Channels multiplied at once; powers of two, 16 at least, all three."""
    warps: int
    persistent: bool


class Launch(NamedTuple):
    """One launch of a kernel."""

    rows: tuple[int, int]
    steps: tuple[int, int]


def shared_bytes(hidden: int, tiles: Tiles, *, element_size: int) -> int:
    """Shared memory of a program: its rows of the matrix and the states they are multiplied with."""
    width = triton.cdiv(hidden, tiles.depth) * tiles.depth
    return width * (tiles.columns + tiles.rows) * element_size


def tile_rule(weight: Tensor, *, batch: int) -> Tiles:
    """The tiles for weight [D, H, H] and `batch` sentences; see docs/benchmarks/kernels-resources.md."""
    hidden = weight.size(-1)
    if weight.element_size() > 2:
        tiles = Tiles(rows=16, columns=16, depth=32, warps=8, persistent=False)
    else:
        tiles = Tiles(rows=16, columns=32, depth=64 if hidden % 128 else 128, warps=4, persistent=False)
    if not weight.is_cuda:
        return tiles
    resident = programs_resident(hidden, tiles, weight=weight)
    groups = triton.cdiv(triton.cdiv(batch, tiles.rows), MOST_LAUNCHES)
    fits = weight.size(0) * groups * triton.cdiv(hidden, tiles.columns) <= resident
    return tiles._replace(persistent=fits)


def programs_resident(hidden: int, tiles: Tiles, *, weight: Tensor) -> int:
    """How many programs run at the same time on the GPU of `weight`."""
    multiprocessors, shared = _device_limits(weight.get_device())
    return multiprocessors * programs_each(hidden, tiles, shared=shared, element_size=weight.element_size())


def programs_each(hidden: int, tiles: Tiles, *, shared: int, element_size: int) -> int:
    """How many run on a multiprocessor that gives a program at most `shared` bytes; at most two.

    It has 65536 registers, enough for two programs of four warps, whose threads can have 255 at most. Those of eight
    take more than their half of them, or not, as the version of Triton is.
    """
    most = 2 if tiles.warps <= 4 else 1
    needed = shared_bytes(hidden, tiles, element_size=element_size) + 2048
    return min(most, (shared + 1024) // needed)


@functools.cache
def _device_limits(device: int) -> tuple[int, int]:
    """Multiprocessors of a GPU, and bytes of shared memory that a program can have."""
    properties = driver.active.utils.get_device_properties(device)
    return properties["multiprocessor_count"], properties["max_shared_mem"]


def launches(batch: int, steps: int, tiles: Tiles, *, weight: Tensor) -> Iterator[Launch]:
    """Cut `steps` steps of `batch` sentences into launches."""
    if not tiles.persistent:
        yield from (Launch((0, batch), (step, step + 1)) for step in range(steps))
        return
    rows = batch
    if weight.is_cuda:
        group = weight.size(0) * triton.cdiv(weight.size(-1), tiles.columns)
        rows = tiles.rows * max(1, programs_resident(weight.size(-1), tiles, weight=weight) // group)
    yield from (Launch((row, min(row + rows, batch)), (0, steps)) for row in range(0, batch, rows))


def run(
    kernel: Any, tensors: tuple[Any, ...], strides: tuple[int, ...], shape: Any, steps: int, options: dict[str, Any],
    *, weight: Tensor, tiles: Tiles,
) -> None:  # fmt: skip
    """Launch `kernel` for all sentences and steps of sequences of `shape` [D, B, T, H]."""
    directions, batch, length, hidden = shape
    # A cooperative launch fails, instead of waiting for ever, where its programs cannot all run at once.
    cooperative = {"launch_cooperative_grid": True} if tiles.persistent and weight.is_cuda else {}
    counters = None
    for rows, (first, last) in launches(batch, steps, tiles, weight=weight):
        groups = directions * triton.cdiv(rows[1] - rows[0], tiles.rows)
        if tiles.persistent or counters is None:  # each persistent launch counts from zero, the others not at all
            counters = torch.zeros(groups * COUNTER.value, dtype=torch.int32, device=weight.device)
        with torch.cuda.device_of(weight):
            kernel[(groups * triton.cdiv(hidden, tiles.columns),)](
                *tensors, counters, *strides, batch, length, *rows, first, last,
                H=hidden, PERSISTENT=tiles.persistent, PRECISION=FP32_PRODUCTS,
                BM=tiles.rows, BN=tiles.columns, KC=tiles.depth, num_warps=tiles.warps, num_stages=STAGES,
                **options, **cooperative,
            )  # fmt: skip


def _kernel_options(x: Tensor, mask: Tensor | None, *, reverse: bool, activation: str, gates: str) -> dict[str, Any]:
    return {
        "GATES": gates,
        "TANH_CANDIDATE": activation == "candidate",
        "TANH_STATE": activation == "state",
        "MASKED": mask is not None,
        "REVERSE": int(reverse),
        "BOTH": x.size(0) == 2,
    }


@torch.library.custom_op(
    "nmt::atr",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor bias, Tensor? mask, Tensor first, bool reverse, str activation,"
    " str gates, int[]? tiles) -> (Tensor, Tensor)",
)
def atr_op(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    first: Tensor,
    reverse: bool,
    activation: str,
    gates: str,
    tiles: list[int] | None,
) -> tuple[Tensor, Tensor]:
    """States [D, B, T, H] in the type of x and the last state fp32 [D, B, H].

    x [D, B, T, H]; weight [D, H, H] in the type products are computed in, bias fp32 [D, H]; mask [B, T] or None;
    first fp32 [D, B, H]; activation "state", "candidate", or another word for none. One direction (D = 1) runs as
    `reverse` says; of two the first runs forward and the second backward.
    """
    x, mask, weight, first = readable(x), mask_bytes(mask), _as_loaded(weight), first.contiguous()
    options = _kernel_options(x, mask, reverse=reverse, activation=activation, gates=gates)
    outputs, state = sequence_like(x, hidden=x.size(-1)), first.clone()
    run(
        atr_forward_kernel,
        (x, weight, bias.contiguous(), mask, first, state, outputs),
        (*weight.stride()[1:], *x.stride()[:3], *mask_strides(mask), *outputs.stride()[:3]),
        x.shape, x.size(2), options, weight=weight, tiles=_tiles(tiles, weight, x),
    )  # fmt: skip
    return outputs, state


def _as_loaded(weight: Tensor) -> Tensor:
    """weight [D, H, H] as the forward kernel is to read it: fp32 in columns.

    Tiles keep their order in shared memory. Where the tensor cores multiply, Triton swizzles them, and any will do;
    fp32 is multiplied without them, and threads that read different columns of a row-wise tile hit the same banks.
    """
    return weight.mT.contiguous().mT if weight.element_size() > 2 else weight.contiguous()


def _tiles(numbers: list[int] | None, weight: Tensor, x: Tensor) -> Tiles:
    if numbers is None:
        return tile_rule(weight, batch=x.size(1))
    rows, columns, depth, warps, persistent = numbers
    return Tiles(rows, columns, depth, warps, bool(persistent))


@atr_op.register_fake
def _(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    first: Tensor,
    reverse: bool,
    activation: str,
    gates: str,
    tiles: list[int] | None,
) -> tuple[Tensor, Tensor]:
    return sequence_like(x, hidden=x.size(-1)), state_like(x, hidden=x.size(-1))


@torch.library.custom_op(
    "nmt::atr_backward",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor bias, Tensor? mask, Tensor first, Tensor outputs, Tensor d_outputs,"
    " Tensor d_last, bool reverse, str activation, str gates, int[]? tiles) -> (Tensor, Tensor, Tensor, Tensor)",
)
def atr_backward_op(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    first: Tensor,
    outputs: Tensor,
    d_outputs: Tensor,
    d_last: Tensor,
    reverse: bool,
    activation: str,
    gates: str,
    tiles: list[int] | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, weight, bias and the first state.

    One GEMM before the loop gives the products of all states again, one after it the gradient of the weight.
    """
    x, mask, d_outputs = readable(x), mask_bytes(mask), readable(d_outputs)
    weight, first, dx, d_first = weight.contiguous(), first.contiguous(), gradient_like(x), d_last.contiguous().clone()
    product, product0 = torch.empty_like(outputs, dtype=weight.dtype), torch.empty_like(first, dtype=weight.dtype)
    with torch.autocast(x.device.type, enabled=False):
        for states, result in zip(_matrices(outputs, first), _matrices(product, product0), strict=True):
            for one, matrix, out in zip(states, weight, result, strict=True):
                torch.mm(one.to(weight.dtype), matrix.t(), out=out)
    dq, dq0 = torch.empty_like(product), torch.empty_like(product0)
    run(
        atr_backward_kernel,
        (x, product, product0, weight, bias.contiguous(), mask, first, outputs, d_outputs, d_first, dx, dq, dq0),
        (*x.stride()[:3], *mask_strides(mask), *outputs.stride()[:3], *d_outputs.stride()[:3], *dx.stride()[:3]),
        x.shape, x.size(2) + 1,
        _kernel_options(x, mask, reverse=reverse, activation=activation, gates=gates),
        weight=weight, tiles=_tiles(tiles, weight, x),
    )  # fmt: skip
    d_weight = torch.empty_like(weight)
    with torch.autocast(x.device.type, enabled=False):
        (gradients, gradients0), (states, states0) = _matrices(dq, dq0), _matrices(outputs, first)
        for d, out in enumerate(d_weight):
            torch.mm(gradients[d].t(), states[d].to(weight.dtype), out=out)
            out.addmm_(gradients0[d].t(), states0[d].to(weight.dtype))
    d_bias = dq.sum((1, 2), dtype=torch.float32).add_(dq0.sum(1, dtype=torch.float32))
    return dx, d_weight, d_bias, d_first


def _matrices(sequences: Tensor, states: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """[D, B, T, H] laid out as `sequence_like` and [D, B, H], as matrices [B * T, H] and [B, H] of each direction."""
    return [sequence.view(-1, sequence.size(-1)) for sequence in sequences], list(states)


@atr_backward_op.register_fake
def _(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    first: Tensor,
    outputs: Tensor,
    d_outputs: Tensor,
    d_last: Tensor,
    reverse: bool,
    activation: str,
    gates: str,
    tiles: list[int] | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    d_bias = bias.new_empty(bias.shape, dtype=torch.float32)
    return gradient_like(x), weight.new_empty(weight.shape), d_bias, d_last.new_empty(d_last.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, bias, mask, first, *ctx.options = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, weight, bias, mask, first, output[0])


def _backward(ctx: Any, d_outputs: Tensor | None, d_last: Tensor | None) -> tuple[Tensor | None, ...]:
    x, weight, bias, mask, first, outputs = ctx.saved_tensors
    d_outputs, d_last = or_zeros(d_outputs, like=outputs), or_zeros(d_last, like=first)
    dx, d_weight, d_bias, d_first = atr_backward_op(
        x, weight, bias, mask, first, outputs, d_outputs, d_last, *ctx.options
    )
    return dx, d_weight, d_bias, None, d_first, None, None, None, None


atr_op.register_autograd(_backward, setup_context=_setup_context)


def fits_on_chip(weight: Tensor, *, batch: int) -> bool:
    """Whether the programs that keep the parts of weight [H, H] on chip can run together, in a few launches."""
    return not weight.is_cuda or tile_rule(weight.unsqueeze(0), batch=batch).persistent


def atr_triton(
    projected: Tensor,
    recurrent: Recurrent,
    h: Tensor | None,
    mask: Tensor | None,
    *,
    reverse: bool,
    activation: Activation,
    gates: Gates,
    tiles: Tiles | None = None,
) -> tuple[Tensor, Tensor]:
    """See `nmt.ops.atr.atr_sequence`; `tiles` overrides `tile_rule`.

    With layer norm, and where matrix or batch are too large for persistent launches, `nmt.ops.atr.steps` runs: its
    steps are one CUDA graph, where those of these kernels would each be launched by Python. Under autocast products
    are computed in its type, as those of the reference are.
    """
    weight = recurrent.weight.to(product_type(recurrent.weight))
    problem = unsupported(weight.dtype, hidden=weight.size(-1))
    fits = tiles is not None or fits_on_chip(weight, batch=len(projected))
    if recurrent.scale is not None or projected.numel() == 0 or problem or not fits:
        outputs, last = run_loop(
            "atr", projected, [recurrent], [h], mask, reverse=reverse,
            options=f"{gates} {activation}",
            reference=lambda: atr_reference(
                projected, recurrent, h, mask, reverse=reverse, activation=_inside(activation), gates=gates
            ),
        )  # fmt: skip
    else:
        first = projected.new_zeros(projected[:, 0].shape, dtype=torch.float32) if h is None else h.float()
        states, lasts = atr_op(
            projected.unsqueeze(0), weight.unsqueeze(0), recurrent.bias.float().unsqueeze(0), mask,
            first.unsqueeze(0), reverse, activation, gates, _numbers(tiles),
        )  # fmt: skip
        outputs, last = states[0], lasts[0]
    return torch.tanh(outputs) if activation == "output" else outputs, last


def _inside(activation: Activation) -> Activation:
    """The activation that belongs into the loop: that of the output comes after it."""
    return "none" if activation == "output" else activation


def _numbers(tiles: Tiles | None) -> list[int] | None:
    return None if tiles is None else [int(number) for number in tiles]


def atr_both_triton(
    projected: Tensor,
    recurrent: Recurrent,
    h: Tensor | None,
    mask: Tensor | None,
    *,
    activation: Activation,
    gates: Gates,
    tiles: Tiles | None = None,
) -> tuple[Tensor, Tensor]:
    """Both directions of an encoder layer in one launch, without layer norm.

    projected [B, T, 2, H], forward first; weight [2, H, H], bias [2, H]; h [2, B, H] or None; mask [B, T] or None.
    Returns the outputs of both directions side by side [B, T, 2H] and their last states [2, B, H].
    """
    x = projected.permute(2, 0, 1, 3)
    first = x.new_zeros(x[:, :, 0].shape, dtype=torch.float32) if h is None else h.float()
    weight, bias = recurrent.weight.to(product_type(recurrent.weight)), recurrent.bias.float()
    outputs, last = atr_op(x, weight, bias, mask, first, False, activation, gates, _numbers(tiles))
    outputs = outputs.permute(1, 2, 0, 3).flatten(2)
    return torch.tanh(outputs) if activation == "output" else outputs, last
