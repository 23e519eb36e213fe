"""All scan units with their C kernels, see nmt/ops/native/scan.h."""

from __future__ import annotations

import functools
from typing import Final

import torch
from torch import Tensor

from nmt.ops.kernel import Sizes, States, Step
from nmt.ops.native import column_sums, kernel
from nmt.ops.recurrence import readable_rows
from nmt.ops.scan import Given, Scan

_NONE: Final = torch.empty(0)


class NativeScan(Scan):
    """A scan unit computed by its C kernels; a call can have any number of steps."""

    reverse: bool = False
    """Whether the last step of a call comes first."""

    @classmethod
    def run_forward(cls, given: Given) -> tuple[Tensor, Tensor, Tensor]:
        given = _readable(given)
        directions, batch, length, width = given.x.shape
        hidden = width // given.unit.inputs
        outputs = given.x.new_empty(batch, length, directions, hidden).permute(2, 0, 1, 3)
        states = torch.empty(directions, given.unit.states, length + 1, batch, hidden)
        last = torch.empty(directions, given.unit.states, batch, hidden)
        for d in range(directions):
            one, before, after = cls._direction(given, d, states[d], outputs[d])
            begin, end = (-1, 0) if one.reverse else (0, -1)
            states[d][:, begin] = 0 if given.first is None else given.first[d]
            one.forward(Step(0, given.x[d], before, after, given.mask))
            last[d] = states[d][:, end]
        return outputs, last, states

    @classmethod
    def run_backward(
        cls, given: Given, outputs: Tensor, kept: Tensor, d_outputs: Tensor | None, d_last: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        given = _readable(given)
        dx, gradient = torch.empty_like(given.x, memory_format=torch.contiguous_format), d_last.clone()
        d_vectors = torch.empty(len(outputs), given.unit.vectors_each, *d_last.shape[2:])
        for d in range(len(outputs)):
            one, before, after = cls._direction(given, d, kept[d], outputs[d])
            added = None if d_outputs is None else readable_rows(d_outputs[d])
            step = Step(0, given.x[d], before, after, given.mask)
            one.backward(step, gradient[d], pending=None, d_output=added, dx=dx[d])
            d_vectors[d] = one.d_vectors[0]
        return dx, d_vectors, gradient

    @classmethod
    def _direction(cls, given: Given, d: int, states: Tensor, h: Tensor) -> tuple[NativeScan, States, States]:
        """The kernel of one direction and, of states [P, T + 1, B, H], those before and after each step."""
        _, steps, batch, hidden = states.shape
        one = cls(given.unit, Sizes(steps - 1, batch, hidden, given.x.dtype, given.x.device))
        one.reverse, one.vectors = given.reverse or d == 1, None if given.vectors is None else given.vectors[d]
        early, late = (States(part, h.transpose(0, 1)) for part in (states[:, :-1], states[:, 1:]))
        return (one, late, early) if one.reverse else (one, early, late)

    @staticmethod
    def over_rows(d_vectors: Tensor) -> Tensor:
        return torch.stack([torch.stack([column_sums(vector) for vector in one]) for one in d_vectors])

    def forward(self, step: Step) -> None:
        _, x, before, after, mask = step
        kernel(f"{self.unit.name}_forward", x.dtype, source=self.unit.native_source)(
            *(*_steps(x), self._weights, *_steps(mask), before.parts, before.parts.stride(0)),
            *(after.parts, after.parts.stride(0), after.parts.stride(2), after.parts.stride(1)),
            *(*_steps(after.operand.transpose(0, 1)), len(x), x.size(1), self.sizes.hidden, self.reverse, self._form),
        )

    def backward(
        self, step: Step, gradient: Tensor, *, pending: Tensor | None, d_output: Tensor | None, dx: Tensor
    ) -> None:
        _, x, before, after, mask = step
        if pending is not None:
            kernel("add_rows", pending.dtype)(pending, pending.stride(0), gradient[0], *pending.shape)
        kernel(f"{self.unit.name}_backward", x.dtype, source=self.unit.native_source)(
            *(*_steps(x), self._weights, *_steps(mask), before.parts, before.parts.stride(0)),
            *(after.parts, after.parts.stride(0), after.parts.stride(2), after.parts.stride(1)),
            *(*_steps(d_output), gradient, *_steps(dx), self.d_vectors, len(x), x.size(1), self.sizes.hidden),
            *(self.reverse, self._form),
        )

    @property
    def _weights(self) -> Tensor:
        """The weights of the unit, or an empty tensor."""
        return _NONE if self.vectors is None else self.vectors

    @functools.cached_property
    def _form(self) -> int:
        """The argument `form` of scan.h."""
        return self.unit.bits << 1 | self.unit.cells - 1


def _readable(given: Given) -> Given:
    """The inputs in a layout that the kernels can read."""
    return given._replace(x=readable_rows(given.x), mask=None if given.mask is None else given.mask.bool())


def _steps(x: Tensor | None) -> tuple[Tensor | None, int, int]:
    """A tensor [B, n, ...] and its strides from row to row and in time."""
    return (None, 0, 0) if x is None else (x, x.stride(0), x.stride(1))
