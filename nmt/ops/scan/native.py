"""All scan units with their C kernels, see nmt/ops/native/scan.h."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.ops.kernel import States
from nmt.ops.native import column_sums, kernel
from nmt.ops.scan import Given, Scan, ScanUnit


class NativeScan(Scan):
    """A scan unit by its C kernels."""

    @staticmethod
    def run_forward(given: Given) -> tuple[Tensor, Tensor, Tensor]:
        unit, _, _, x, vectors, first = given = _readable(given)
        directions, batch, length, width = x.shape
        hidden = width // unit.inputs
        outputs = x.new_empty(batch, length, directions, hidden).permute(2, 0, 1, 3)
        states = torch.empty(directions, unit.states, length + 1, batch, hidden)
        last = torch.empty(directions, unit.states, batch, hidden)
        for d in range(directions):
            reverse = given.reverse or d == 1
            begin, end, before, after = _ends(states[d], reverse=reverse)
            begin.copy_(torch.zeros(()) if first is None else first[d])
            one = None if vectors is None else vectors[d]
            _forward(unit, x[d], one, given.mask, before, after, outputs[d], reverse=reverse)
            last[d] = end
        return outputs, last, states

    @staticmethod
    def run_backward(
        given: Given, outputs: Tensor, kept: Tensor, d_outputs: Tensor | None, d_last: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        unit, _, _, x, vectors, _ = given = _readable(given)
        directions, batch, _, hidden = outputs.shape
        dx, gradient = torch.empty_like(x, memory_format=torch.contiguous_format), d_last.clone()
        d_vectors = torch.zeros(directions, unit.vectors_each, batch, hidden)
        for d in range(directions):
            reverse = given.reverse or d == 1
            _, _, before, after = _ends(kept[d], reverse=reverse)
            added, one = None if d_outputs is None else _rows(d_outputs[d]), None if vectors is None else vectors[d]
            results = gradient[d], dx[d], d_vectors[d]
            _backward(unit, x[d], one, given.mask, before, after, added, *results, reverse=reverse)
        return dx, d_vectors, gradient

    @staticmethod
    def over_rows(d_vectors: Tensor) -> Tensor:
        return torch.stack([torch.stack([column_sums(vector) for vector in one]) for one in d_vectors])

    @property
    def deferrable(self) -> bool:
        return self.sizes.dtype == torch.bfloat16

    def forward(self, t: int, x: Tensor, before: States, after: States, mask: Tensor | None) -> None:
        outputs = after.operand.transpose(0, 1)
        _forward(self.unit, x, self.vectors, mask, before.parts, after.parts, outputs, reverse=False)

    def backward(
        self,
        t: int,
        x: Tensor,
        before: States,
        after: States,
        mask: Tensor | None,
        *,
        gradient: Tensor,
        pending: Tensor | None,
        d_output: Tensor | None,
        dx: Tensor,
    ) -> None:
        if pending is not None:
            kernel("add_rows", pending.dtype)(pending, pending.stride(0), gradient[0], *pending.shape)
        states, results = (before.parts, after.parts), (gradient, dx, self.d_vectors)
        _backward(self.unit, x, self.vectors, mask, *states, d_output, *results, reverse=False)


def _rows(x: Tensor) -> Tensor:
    """x itself if values of its last axis lie side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _readable(given: Given) -> Given:
    """As the kernels can read it."""
    return given._replace(x=_rows(given.x), mask=None if given.mask is None else given.mask.bool())


def _ends(states: Tensor, *, reverse: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of states [P, T + 1, B, H] the first and the last, and those before and after each step in input order."""
    early, late = states[:, :-1], states[:, 1:]
    return (states[:, -1], states[:, 0], late, early) if reverse else (states[:, 0], states[:, -1], early, late)


def _forward(
    unit: ScanUnit,
    x: Tensor,
    vectors: Tensor | None,
    mask: Tensor | None,
    before: Tensor,
    after: Tensor,
    outputs: Tensor,
    *,
    reverse: bool,
) -> None:
    """From x [B, n, kH] and the states `before` to `after`, fp32 [P, n, B, H], and h [B, n, H] in the type of x."""
    kernel(f"{unit.name}_forward", x.dtype, source=unit.native_source)(
        *(x, *x.stride()[:2], vectors, *_steps(mask), before, before.stride(0), after, after.stride(0)),
        *(before.stride(2), before.stride(1), *_steps(outputs), len(x), x.size(1), before.size(-1)),
        *(reverse, unit.bits << 1 | unit.cells - 1),
    )


def _backward(
    unit: ScanUnit,
    x: Tensor,
    vectors: Tensor | None,
    mask: Tensor | None,
    before: Tensor,
    after: Tensor,
    d_outputs: Tensor | None,
    gradient: Tensor,
    dx: Tensor,
    d_vectors: Tensor,
    *,
    reverse: bool,
) -> None:
    """The gradient of `_forward`, see scan.h."""
    kernel(f"{unit.name}_backward", x.dtype, source=unit.native_source)(
        *(x, *x.stride()[:2], vectors, *_steps(mask), before, before.stride(0), after, after.stride(0)),
        *(before.stride(2), before.stride(1), *_steps(d_outputs), gradient, *_steps(dx), d_vectors),
        *(len(x), x.size(1), before.size(-1), reverse, unit.bits << 1 | unit.cells - 1),
    )


def _steps(x: Tensor | None) -> tuple[Tensor | None, int, int]:
    """A tensor [B, n, ...] and the steps in memory from row to row and in time."""
    return (None, 0, 0) if x is None else (x, x.stride(0), x.stride(1))
