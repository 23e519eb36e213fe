"""ATR over whole sequences in Triton: the launches of its kernels, with autograd."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton.runtime import driver

from nmt.ops.atr import ATR
from nmt.ops.atr.kernels import COUNTER, atr_backward_kernel, atr_forward_kernel
from nmt.ops.recurrence import EPSILON, State, product_type
from nmt.ops.triton_tools import gradient_like, mask_bytes, mask_strides, or_zeros, readable

FP32_PRODUCTS: Final = "ieee"
"""Products of fp32 are exact: on tensor cores (tf32, tf32x3) the kernels run out of registers."""

MOST_LAUNCHES: Final = 4
"""If the programs of a batch do not all fit on the GPU, at most this many persistent launches share the batch."""

STAGES: Final = 1
"""Without Triton's pipeliner, which ignores barriers and would load states before they are written."""

REGISTERS: Final = 255
"""Most registers of a thread: with the 65536 registers of a multiprocessor, enough for two programs of four warps, or
one of eight. Without this limit the assembler would use fewer, for more programs than exist, and spill."""


class Tiles(NamedTuple):
    """How a batch is split into programs, and whether one launch runs all steps."""

    rows: int
    """Sentences of a program."""
    columns: int
    """Channels of a program."""
    depth: int
    """Channels multiplied at once. All three are powers of two and at least 16."""
    warps: int
    persistent: bool


class Launch(NamedTuple):
    """One launch of a kernel."""

    rows: tuple[int, int]
    steps: tuple[int, int]
    sums: bool = True
    """Whether it writes the sums that layer norm needs."""
    rest: bool = True
    """Whether it computes the rest of the step, after the sums."""


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
        tiles = Tiles(rows=16, columns=32, depth=64 if triton.cdiv(hidden, 64) % 2 else 128, warps=4, persistent=False)
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
    """How many programs run on a multiprocessor that gives a program at most `shared` bytes; at most two.

    It has 65536 registers, enough for two programs of four warps, whose threads can have 255 at most. Whether programs
    of eight warps use more than half of the registers depends on the version of Triton.
    """
    most = 2 if tiles.warps <= 4 else 1
    needed = shared_bytes(hidden, tiles, element_size=element_size) + 2048
    return min(most, (shared + 1024) // needed)


@functools.cache
def _device_limits(device: int) -> tuple[int, int]:
    """Multiprocessors of a GPU, and bytes of shared memory that a program can have."""
    properties = driver.active.utils.get_device_properties(device)
    return properties["multiprocessor_count"], properties["max_shared_mem"]


def fits_on_chip(weight: Tensor, *, batch: int) -> bool:
    """Whether the programs that keep the parts of weight [D, H, H] on chip can run together, in a few launches."""
    return not weight.is_cuda or tile_rule(weight, batch=batch).persistent


def launches(batch: int, steps: int, tiles: Tiles, *, weight: Tensor, normalized: bool) -> Iterator[Launch]:
    """Split `steps` steps of `batch` sentences into launches."""
    if not tiles.persistent:
        for step in range(steps):
            whole = Launch((0, batch), (step, step + 1))
            yield from [whole._replace(rest=False), whole._replace(sums=False)] if normalized else [whole]
        return
    rows = batch
    if weight.is_cuda:
        group = weight.size(0) * triton.cdiv(weight.size(-1), tiles.columns)
        rows = tiles.rows * max(1, programs_resident(weight.size(-1), tiles, weight=weight) // group)
    yield from (Launch((row, min(row + rows, batch)), (0, steps)) for row in range(0, batch, rows))


class Design(NamedTuple):
    """What the kernels are compiled for, and how work is split, besides their tensors."""

    gates: str
    activation: str
    reverse: bool
    tiles: Tiles | None

    def first_places(self, directions: int) -> list[int]:
        """Where the first state of each direction stands among its states [B, T + 2, H]."""
        return [-1 if self.reverse or d == 1 else 0 for d in range(directions)]


def run(
    kernel: Any, x: Tensor, tensors: Sequence[Tensor | None], strides: Sequence[int], design: Design,
    *, weight: Tensor, scale: Tensor | None, mask: Tensor | None,
) -> None:  # fmt: skip
    """Launch `kernel` for all sentences and steps of x [D, B, T, H]; `tensors` are all except the exchanged ones."""
    directions, batch, length, hidden = x.shape
    tiles = design.tiles or tile_rule(weight, batch=batch)
    blocks = triton.cdiv(hidden, tiles.columns)
    options = {
        "H": hidden, "GATES": design.gates, "TANH_CANDIDATE": design.activation == "candidate",
        "TANH_STATE": design.activation == "state", "MASKED": mask is not None, "REVERSE": int(design.reverse),
        "NORMALIZED": scale is not None, "PERSISTENT": tiles.persistent, "PRECISION": FP32_PRODUCTS,
        "BM": tiles.rows, "BN": tiles.columns, "KC": tiles.depth, "num_warps": tiles.warps, "num_stages": STAGES,
        "maxnreg": REGISTERS,
    }  # fmt: skip
    if tiles.persistent and weight.is_cuda:
        # A cooperative launch fails, instead of hanging, if its programs cannot all run at the same time.
        options["launch_cooperative_grid"] = True
    sums = None if scale is None else scale.new_empty(directions, batch, length, 2, blocks)
    counters = None
    for launch in launches(batch, length, tiles, weight=weight, normalized=scale is not None):
        first, last = launch.rows
        groups = directions * triton.cdiv(last - first, tiles.rows)
        if tiles.persistent or counters is None:  # each persistent launch counts from zero, others do not count
            counters = torch.zeros(groups * COUNTER.value, dtype=torch.int32, device=weight.device)
        with torch.cuda.device_of(weight):
            kernel[(groups * blocks,)](
                *tensors, sums, counters, *strides, batch, length, first, last, *launch.steps,
                SUMS=launch.sums, REST=launch.rest, **options,
            )  # fmt: skip


class ATRSequence(torch.autograd.Function):
    """h after each step [D, B, T, H] in the type of x, and the last h fp32 [D, B, H]."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor | None, first: Tensor | None,
        mask: Tensor | None, design: Design,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """x [D, B, T, H]; weight [D, H, H] in the type of the products; bias [D, H], the sum of all biases; scale
        [D, H], or None without layer norm; first [D, B, H], or None for zeros, all in fp32; mask [B, T] or None."""
        x, weight, mask = readable(x), weight.contiguous(), mask_bytes(mask)
        directions, batch, length, hidden = x.shape
        states = x.new_empty(directions, batch, length + 2, hidden)
        states[:, :, :: length + 1] = 0
        state = x.new_zeros(directions, batch, hidden, dtype=torch.float32) if first is None else first.clone()
        for d, place in enumerate(design.first_places(directions)):
            states[d, :, place] = state[d]
        # Tiles keep their order in shared memory. For tensor cores Triton swizzles them, so any order works. In fp32,
        # threads read different columns: in a row-wise tile they would access the same banks.
        loaded = weight.mT.contiguous() if weight.element_size() > 2 else weight
        run(
            atr_forward_kernel, x, (x, loaded, bias, scale, mask, state, states),
            (*x.stride()[:3], *mask_strides(mask)), design, weight=weight, scale=scale, mask=mask,
        )  # fmt: skip
        ctx.design = design
        ctx.save_for_backward(x, weight, bias, scale, mask, states)
        ctx.set_materialize_grads(False)
        return states[:, :, 1:-1], state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor | None, d_last: Tensor | None) -> tuple[Tensor | None, ...]:
        """One GEMM before the loop recomputes the products of all states; one after it is the weight's gradient."""
        x, weight, bias, scale, mask, states = ctx.saved_tensors
        d_outputs, dx = readable(or_zeros(d_outputs, like=x)), gradient_like(x)
        d_state = x.new_zeros(x[:, :, 0].shape, dtype=torch.float32) if d_last is None else d_last.clone()
        with torch.autocast(x.device.type, enabled=False):
            operand = states.flatten(1, 2).to(weight.dtype)  # [D, B * (T + 2), H]
            product, factor = torch.bmm(operand, weight.mT), None
            du = dq = torch.zeros_like(product)
            if scale is not None:
                du = torch.zeros_like(product)
                product, _, factor = torch.native_layer_norm(product.float(), product.shape[-1:], None, None, EPSILON)
            run(
                atr_backward_kernel, x,
                (x, product, factor, weight, bias, scale, mask, states, d_outputs, d_state, dx, dq, du),
                (*x.stride()[:3], *mask_strides(mask), *d_outputs.stride()[:3], *dx.stride()[:3]),
                ctx.design, weight=weight, scale=scale, mask=mask,
            )  # fmt: skip
            if ctx.needs_input_grad[4]:
                places = enumerate(ctx.design.first_places(len(weight)))
                d_state += torch.bmm(torch.stack([du.view(states.shape)[d, :, place] for d, place in places]), weight)
            d_weight = torch.bmm(du.mT, operand)
        d_scale = None if scale is None else (product * dq).sum(1)
        d_first = d_state if ctx.needs_input_grad[4] else None
        return dx, d_weight, dq.sum(1, dtype=torch.float32), d_scale, d_first, None, None


def atr_whole(
    units: Sequence[ATR],
    x: Tensor,
    state: Sequence[State] | None,
    mask: Tensor | None,
    *,
    reverse: bool,
    tiles: Tiles | None = None,
) -> tuple[Tensor, Tensor] | None:
    """See `nmt.ops.unit.Kernel.whole`; `tiles` overrides `tile_rule`. The tanh of activation "output" is not applied.

    None if x is empty, and if matrix or batch are too large for a few persistent launches: then `nmt.ops.atr.steps`
    runs, whose steps are one CUDA graph, while Python would launch each step of these kernels separately. Under
    autocast products are computed in its type, as in the reference.
    """
    parts = zip(*(unit.weights for unit in units), strict=True)
    weight, bias, *norm = (torch.stack(part) if len(part) > 1 else part[0].unsqueeze(0) for part in parts)
    weight, scale, bias = weight.to(product_type(weight)), None, bias.float()
    if not x.numel() or not (tiles or fits_on_chip(weight, batch=x.size(1))):
        return None
    if norm:
        scale, bias = norm[0].float(), bias + norm[1].float()
    first = None if state is None else torch.stack([h.float() for (h,) in state])
    design = Design(units[0].gates, units[0].activation, reverse, tiles)
    outputs, last = ATRSequence.apply(x, weight, bias, scale, first, mask, design)
    return outputs, last.unsqueeze(1)
