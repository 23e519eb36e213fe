"""SRU one step at a call, for loops with other work between steps; see `nmt.ops.steps`.

Imported only by kernels, because Triton is not installed everywhere.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import triton
from torch import Tensor

from nmt.ops.sru.triton import sru_backward_kernel, sru_forward_kernel
from nmt.ops.steps import States, Steps, added, row_mask
from nmt.ops.triton_tools import step_launch


class SRUSteps(Steps):
    """SRU; weights: both peepholes fp32, forget first; no options. Its sequence kernels run sequences of one step."""

    parts: ClassVar[int] = 2
    products: ClassVar[int] = 4
    matrices: ClassVar[int] = 0
    saved_widths: ClassVar[tuple[int, ...]] = ()
    gradient_widths: ClassVar[tuple[int, ...]] = ()

    def _options(self, mask: Tensor | None) -> dict[str, Any]:
        return {"MASKED": mask is not None, **step_launch()}

    @property
    def _grid(self) -> tuple[int, int]:
        return triton.cdiv(self.hidden, step_launch()["BLOCK"]) * self.batch, 1

    def forward(self, t: int, x: Tensor, mask: Tensor | None, *, before: States, after: States) -> None:
        mask, sm_b = row_mask(mask)
        memory = torch.empty_like(after.narrow)  # c in the type of h, which only a sequence's backward pass reads
        sru_forward_kernel[self._grid](
            x, *self.weights, mask, *before.parts, after.narrow, memory, *after.parts,
            0, x.stride(0), 0, sm_b, 0, 0, self.hidden, 0, self.batch, 1, self.hidden, **self._options(mask),
        )  # fmt: skip

    def backward(
        self,
        t: int,
        x: Tensor,
        mask: Tensor | None,
        *,
        before: States,
        gradient: Tensor,
        pending: Tensor | None,
        d_output: Tensor | None,
        dx: Tensor,
    ) -> None:
        (mask, sm_b), (d_output, so_b) = row_mask(mask), added(d_output, like=gradient[0])
        d_peepholes = gradient.new_empty(2, self.batch, self.hidden)  # formed from dx after the loop instead
        sru_backward_kernel[self._grid](
            x, *self.weights, mask, before.parts[1], before.narrow, d_output, *gradient, dx, d_peepholes, *gradient,
            0, x.stride(0), 0, sm_b, 0, 0, self.hidden, 0, 0, so_b, 0, 0, dx.stride(0), 0,
            1, self.batch, 1, self.hidden, **self._options(mask),
        )  # fmt: skip

    def weight_gradients(self, before: States, dx: Tensor) -> list[Tensor]:
        d_reset, d_forget = dx.unflatten(-1, (4, -1))[:, :, :2].unbind(2)
        memory = before.parts[1]
        return [(gradient * memory).sum((0, 1)) for gradient in (d_forget, d_reset)]
