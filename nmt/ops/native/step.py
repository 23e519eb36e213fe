"""One time step of a unit with its C kernel, as searches call it; without gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.ops.native.unit import States, make_kernel
from nmt.ops.unit import Unit


def native_step(unit: Unit, projected: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The state [N, H], fp32, after the input products `projected` [N, kH] and the state before."""
    projected = projected if projected.stride(-1) == 1 else projected.contiguous()
    rows, hidden, dtype = len(projected), state[0].size(-1), projected.dtype
    kernel = make_kernel(unit, length=1, batch=rows, hidden=hidden, dtype=dtype)
    h = state[0].float().contiguous()
    wide = h[None, None] if len(state) == 1 else torch.stack(state)[:, None].float()
    narrow = wide[0] if dtype == torch.float32 or not unit.weights else h.to(dtype)[None]
    after = States.empty(len(state), 1, rows, hidden, dtype=dtype)
    kernel.forward(projected.unsqueeze(1), States(wide, narrow), after, None, start=0, reverse=False)
    return tuple(part[0] for part in after.parts)
