"""Units over whole sequences, in one direction or in both, single steps, and layers of two or more cells per step which
read contexts, from attention or aligned with the input: the entry point to all kernels of units.

A function for several cells returns None if there are no kernels for the loop; the model then runs the steps itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.dispatch import load, no_kernel, runs_triton, use_native
from nmt.ops.loop import Attention, Given, Memory, run_loop
from nmt.ops.native import problem as native_problem
from nmt.ops.recurrence import (
    Projection,
    State,
    at_least_fp32,
    layer_norm,
    live_rows,
    product_type,
    readable_rows,
    time_order,
)
from nmt.ops.scan import pair_of
from nmt.ops.unit import Kernel, Sizes, States, Step, Unit


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
    found = kinds[0].whole([unit], projected.unsqueeze(0), None if state is None else [state], mask, reverse=reverse)
    if found is None:
        given = Given(projected, mask, first_state(unit, projected, state), [unit])
        outputs, last = run_loop(given, kinds, dtype=product_dtype(unit, projected), reverse=reverse)
    else:
        outputs, last = found[0][0], found[1][0]
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


def bidirectional(
    ahead: tuple[Unit, Projection], back: tuple[Unit, Projection], x: Tensor, *, mask: Tensor | None
) -> tuple[Tensor, list[State]] | None:
    """Both directions over x [B, T, D] from zeros, in one launch; None if they have to run one after the other.

    The cell `ahead` runs from the first time step to the last and `back` from the last to the first; rows keep their
    state where mask [B, T], if given, is false. A single product with the input matrices of both directions computes
    the inputs. Returns the outputs [B, T, 2H] in input order, the forward direction first, in the type of the products,
    and the last computed state of each direction.
    """
    units, projections = (ahead[0], back[0]), (ahead[1], back[1])
    if x.numel() == 0 or units[0].design != units[1].design:
        return None
    kinds = kernels_of("bidirectional", *units, like=x)
    if not kinds:
        return None
    products = F.linear(x, torch.cat([projection.weight for projection in projections]))
    (_, _, scale, offset, widths), (_, _, back_scale, back_offset, back_widths) = projections
    if scale is not None and offset is not None and back_scale is not None and back_offset is not None:
        both = torch.cat([scale, back_scale]), torch.cat([offset, back_offset])
        products = layer_norm(products, *both, widths=widths + back_widths)
    found = kinds[0].whole(units, products.unflatten(-1, (2, -1)).permute(2, 0, 1, 3), None, mask, reverse=False)
    if found is None:
        return None
    outputs, last = found
    return units[0].output(outputs.permute(1, 2, 0, 3).flatten(2)), [tuple(state.unbind()) for state in last]


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
    if not native:
        words = " and ".join(dict.fromkeys(unit.words for unit in units))
        if not runs_triton(f"{operation} {words}", like=like, there=all(unit.triton for unit in units)):
            return []
    kinds: list[type[Kernel]] = []
    for unit in units:
        path = unit.native if native else unit.triton
        kind: type[Kernel] | None = load(path) if path else None
        hidden, dtype = like.size(-1) // unit.inputs, like.dtype
        if unit.matrices:
            hidden, dtype = unit.weights[0].size(-1), dtype if native else product_type(unit.weights[0])
        problem = kind.problem(unit, dtype=dtype, hidden=hidden) if kind else "there is none in C"
        problem = problem or (native_problem(unit.native_file) if native else None)
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


class Attended(NamedTuple):
    """The result of `attended_sequence`, with shapes for one level; several levels are side by side."""

    outputs: Tensor  # [B, T, H]
    contexts: Tensor  # [B, T, M]
    weights: Tensor  # [B, G, T, S] of attention, in at least fp32
    last: State  # [B, H] each, in at least fp32


def attended_sequence(
    lower: Unit,
    levels: Sequence[tuple[Attention, Unit]],
    projected: Tensor,
    *,
    memory: Memory,
    state: State,
    mask: Tensor | None,
) -> Attended | None:
    """s = lower(h', x_t); in each level c = attention(s), s = higher(s, context(c)); h = s for each time step.

    A level is an attention and the cell that reads its context. projected [B, T, kH] are the input products of the
    lower cell, `state` tensors [B, H]. Rows keep their state where mask [B, T] is false. With one level this is the
    conditional RNN, with several levels deep attention. Outputs have the type of `projected`.
    """
    attentions, cells = [attention for attention, _ in levels], [lower, *(higher for _, higher in levels)]
    kinds = kernels_of("conditional", *cells, like=projected) if projected.numel() and memory.keys.numel() else []
    if not kinds:
        return None
    recorded = kinds[0].recorded
    dtype = product_type(attentions[0].context.weight) if recorded else projected.dtype
    attention = load(f"nmt.ops.attention{'.triton' if recorded else ''}:AttentionKernel")
    problem = attention.problem(memory.keys)
    if {memory.keys.dtype, memory.values.dtype} != {dtype}:
        problem = "the memory is not in the type of the products"
    if problem:
        no_kernel("conditional", like=projected, problem=problem)
        return None
    given = Given(projected, mask, first_state(lower, projected, state), cells, (), memory, attentions)
    outputs, last, contexts, weights = run_loop(given, kinds, dtype=dtype, attention=attention)
    return Attended(lower.output(outputs), contexts, weights, tuple(last.unbind()))


def one_to_one_sequence(
    lower: Unit, higher: Unit, projected: Tensor, *, context: Tensor, state: State, mask: Tensor | None, reverse: bool
) -> tuple[Tensor, State] | None:
    """s = lower(h', x_t); h = higher(s, context_t) for each time step, and what `sequence` returns.

    projected [B, T, kH] and context [B, T, k'H] are the input products of the cells; the other arguments are as for
    `sequence`.
    """
    if not projected.numel() or projected.dtype != context.dtype:
        return None
    pair = pair_of(lower, higher)
    if pair is not None:  # without matrices, the steps of both cells are steps of one unit
        return sequence(pair, torch.cat([projected, context], -1), state, mask, reverse=reverse)
    kinds = kernels_of("one_to_one", lower, higher, like=projected)
    if not kinds:
        return None
    given = Given(projected, mask, first_state(lower, projected, state), [lower, higher], [context])
    outputs, last = run_loop(given, kinds, dtype=product_dtype(lower, projected), reverse=reverse)
    return higher.output(outputs), tuple(last.unbind())
