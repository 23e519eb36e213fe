"""LRN with its C kernel."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from nmt.ops.native import kernel
from nmt.ops.native.sequence import native_sequence
from nmt.ops.native.unit import Kernel, States, mask_arguments, output_arguments
from nmt.ops.unit import Unit


def lrn_native(
    projected: Tensor, h: Tensor | None, mask: Tensor | None, *, reverse: bool, tanh: bool
) -> tuple[Tensor, Tensor]:
    """See `nmt.ops.lrn.lrn_sequence`."""
    outputs, last = native_sequence(Unit("lrn", options={"tanh": tanh}), projected, (h,), mask, reverse=reverse)
    return outputs, last


class LRNKernel(Kernel):
    """LRN; no weights; option `tanh`."""

    products: ClassVar[int] = 3

    def forward(
        self, x: Tensor, before: States, after: States, mask: Tensor | None, *, start: int, reverse: bool
    ) -> None:
        run = kernel(f"{self.unit.name}_forward", self.dtype)
        run(
            *(x, *x.stride()[:2], *mask_arguments(mask)),
            *(before.parts[0], after.parts[0], after.narrow, *after.strides),
            *(self.batch, x.size(1), self.hidden, reverse, self.unit.options["tanh"]),
        )

    def backward(
        self,
        x: Tensor,
        before: States,
        after: States,
        mask: Tensor | None,
        *,
        start: int,
        reverse: bool,
        gradient: Tensor,
        outputs: Tensor | None,
        dx: Tensor,
    ) -> None:
        run = kernel(f"{self.unit.name}_backward", self.dtype)
        run(
            *(x, *x.stride()[:2], *mask_arguments(mask)),
            *(before.parts[0], after.parts[0], *after.strides, *output_arguments(outputs)),
            *(gradient, dx, *dx.stride()[:2], self.batch, x.size(1), self.hidden, reverse, self.unit.options["tanh"]),
        )
