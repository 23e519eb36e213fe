"""A unit over whole sequences, in one direction or in both, and single steps: the entry point to all its kernels."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.dispatch import load, no_kernel, runs_triton, use_native
from nmt.ops.kernel import Kernel, Sizes, States, Step
from nmt.ops.loop import Given, run_loop
from nmt.ops.recurrence import (
    State,
    at_least_fp32,
    layer_norm,
    live_rows,
    product_type,
    readable_rows,
    time_order,
)
from nmt.ops.unit import Projection, Unit


def sequence(
    unit: Unit, projected: Tensor, state: State | None = None, mask: Tensor | None = None, *, reverse: bool = False
) -> tuple[Tensor, State]:
    """Run `unit` over its input products `projected` [B, T, kH], from `state`, tensors [B, H], or zeros.

    Rows keep their state where mask [B, T] is 0; `reverse` runs from the last time step to the first. Returns the
    outputs [B, T, H] in input order and the last computed state, in at least fp32 (outputs of kernels have the type of
    `projected`). Under autocast recurrent products are computed in its type.
    """
    kinds = kernels_of("sequence", unit, like=projected) if projected.numel() else []
    if not kinds:
        return reference(unit, projected, state, mask, reverse=reverse)
    (kind,) = kinds
    found = kind.whole([unit], projected.unsqueeze(0), None if state is None else [state], mask, reverse=reverse)
    if found is not None:
        outputs, last = found[0][0], found[1][0]
    else:
        first = first_state(unit, projected, state)
        given = Given(projected, mask, first, [unit])
        outputs, last, *_ = run_loop(given, [kind], dtype=product_dtype(unit, projected), reverse=reverse)
    return unit.output(outputs), tuple(last.unbind())


def reference(
    unit: Unit, projected: Tensor, state: State | None, mask: Tensor | None, *, reverse: bool
) -> tuple[Tensor, State]:
    """`sequence` computed with the unit's equation and autograd."""
    x = at_least_fp32(projected)
    hidden = x.size(-1) // unit.inputs
    now = tuple(at_least_fp32(part) for part in state or x.new_zeros(unit.states, len(x), hidden))
    inputs, live, outputs = x.unbind(1), live_rows(mask, length=x.size(1)), []
    for t in time_order(len(inputs), reverse=reverse):
        new, rows = unit.equation(inputs[t], now, now), live[t]
        if rows is not None:
            new = tuple(torch.where(rows, after, before) for after, before in zip(new, now, strict=True))
        now = new
        outputs.append(now[0])
    if reverse:
        outputs.reverse()
    stacked = torch.stack(outputs, 1) if outputs else x[..., :hidden]
    return unit.output(stacked), now


def step(unit: Unit, projected: Tensor, state: State) -> State | None:
    """One time step with the C kernel, without gradients, for searches: the state [N, H] after `projected` [N, kH] in
    fp32; None if there is no such kernel."""
    if not use_native(projected):
        return None
    kinds = kernels_of("sequence", unit, like=projected)
    if not kinds:
        return None
    rows, hidden = len(projected), state[0].size(-1)
    sizes = Sizes(1, rows, hidden, projected.dtype, projected.device)
    wide = torch.stack(state).float() if len(state) > 1 else state[0].float().contiguous().unsqueeze(0)
    operand = wide[0] if sizes.dtype == torch.float32 or not unit.matrices else wide[0].to(sizes.dtype)
    after = States.empty(len(state), 1, sizes)
    before = States(wide.unsqueeze(1), operand.unsqueeze(0))
    kinds[0](unit, sizes).forward(Step(0, readable_rows(projected).unsqueeze(1), before, after, None))
    return tuple(after.parts[:, 0].unbind())


class Direction(NamedTuple):
    """The cell of one direction."""

    unit: Unit
    projection: Projection


class Bidirectional(NamedTuple):
    """The result of `bidirectional`."""

    outputs: Tensor
    """[B, T, 2H] in input order, the forward direction first"""
    last: tuple[State, State]
    """The last computed state of each direction, tensors [B, H]"""


def bidirectional(ahead: Direction, back: Direction, x: Tensor, *, mask: Tensor | None) -> Bidirectional | None:
    """Both directions over x [B, T, D] from zeros, in one launch; None if they have to run one after the other.

    `ahead` runs from the first time step to the last and `back` from the last to the first; rows keep their state where
    mask [B, T], if given, is false. A single product with the input matrices of both directions computes the inputs.
    Outputs have the type of the products.
    """
    units = [ahead.unit, back.unit]
    if use_native(x) or x.numel() == 0 or ahead.unit.design != back.unit.design:
        return None
    kinds = kernels_of("bidirectional", *units, like=x)
    if not kinds:
        return None
    products = F.linear(x, torch.cat([ahead.projection.weight, back.projection.weight]))
    (_, _, scale, offset, widths), (_, _, back_scale, back_offset, back_widths) = ahead.projection, back.projection
    if scale is not None and offset is not None and back_scale is not None and back_offset is not None:
        both = torch.cat([scale, back_scale]), torch.cat([offset, back_offset])
        products = layer_norm(products, *both, widths=widths + back_widths)
    found = kinds[0].whole(units, products.unflatten(-1, (2, -1)).permute(2, 0, 1, 3), None, mask, reverse=False)
    if found is None:
        return None
    outputs, last = found
    first, second = (tuple(state.unbind()) for state in last)
    return Bidirectional(ahead.unit.output(outputs.permute(1, 2, 0, 3).flatten(2)), (first, second))


def kernels_of(operation: str, *units: Unit, like: Tensor) -> list[type[Kernel]]:
    """The kernels that run `units` on tensors such as `like` in an operation, one for each unit; none if PyTorch runs
    them, which is reported once if kernels could be expected.

    Raises ConfigError if the user requires Triton and there is no Triton kernel for the operation.
    """
    for unit in units:
        if not unit.usual or not (unit.native or unit.triton):
            no_kernel(unit.words, like=like)
            return []
    native = use_native(like)
    paths = [unit.native if native else unit.triton for unit in units]
    if not native:
        words = " and ".join(dict.fromkeys(unit.words for unit in units))
        if not runs_triton(f"{operation} {words}", like=like, there=None not in paths):
            return []
    kinds: list[type[Kernel]] = []
    for unit, path in zip(units, paths, strict=True):
        kind: type[Kernel] | None = load(path) if path else None
        hidden = unit.weights[0].size(-1) if unit.matrices else like.size(-1) // unit.inputs
        problem = kind.problem(unit, dtype=product_dtype(unit, like), hidden=hidden) if kind else "there is none in C"
        if kind is None or problem:
            no_kernel(unit.words, like=like, problem=problem or "")
            return []
        kinds.append(kind)
    return kinds


def product_dtype(unit: Unit, projected: Tensor) -> torch.dtype:
    """The type of its recurrent products in a loop over `projected`; without such products the type of the inputs."""
    return product_type(unit.weights[0]) if unit.matrices and not use_native(projected) else projected.dtype


def first_state(unit: Unit, projected: Tensor, state: State | None) -> Tensor:
    """The initial state in the form that kernels take, fp32 [P, B, H]."""
    if state is not None:
        return torch.stack([part.float() for part in state])
    hidden = projected.size(-1) // unit.inputs
    return projected.new_zeros(unit.states, len(projected), hidden, dtype=torch.float32)
