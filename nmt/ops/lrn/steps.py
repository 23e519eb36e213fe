"""LRN and oLRN one step at a call, for loops with other work between steps; see `nmt.ops.steps`.

Imported only by kernels, because Triton is not installed everywhere.
"""

from __future__ import annotations

from typing import Any, ClassVar

import triton
from torch import Tensor

from nmt.ops.lrn.triton import lrn_backward_kernel, lrn_forward_kernel
from nmt.ops.steps import States, Steps, added, row_mask
from nmt.ops.triton_tools import step_launch


class LRNSteps(Steps):
    """LRN; no weights; option `tanh`. Its sequence kernels run sequences of one step."""

    products: ClassVar[int] = 3
    matrices: ClassVar[int] = 0
    saved_widths: ClassVar[tuple[int, ...]] = ()
    gradient_widths: ClassVar[tuple[int, ...]] = ()
    gated: ClassVar[bool] = False

    def _options(self, mask: Tensor | None) -> dict[str, Any]:
        return {"GATED": self.gated, "TANH": "tanh" in self.words, "MASKED": mask is not None, **step_launch()}

    @property
    def _grid(self) -> tuple[int, int]:
        return triton.cdiv(self.hidden, step_launch()["BLOCK"]) * self.batch, 1

    def forward(self, t: int, x: Tensor, mask: Tensor | None, *, before: States, after: States) -> None:
        mask, sm_b = row_mask(mask)
        lrn_forward_kernel[self._grid](
            x, mask, before.parts[0], after.narrow, after.parts[0],
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
        lrn_backward_kernel[self._grid](
            x, mask, before.parts[0], before.narrow, d_output, gradient[0], dx, gradient[0],
            0, x.stride(0), 0, sm_b, 0, 0, self.hidden, 0, 0, so_b, 0, 0, dx.stride(0), 0,
            self.batch, 1, self.hidden, **self._options(mask),
        )  # fmt: skip

    def weight_gradients(self, before: States, dx: Tensor) -> list[Tensor]:
        return []


class OLRNSteps(LRNSteps):
    """oLRN; no weights; option `tanh`."""

    products: ClassVar[int] = 4
    gated: ClassVar[bool] = True
