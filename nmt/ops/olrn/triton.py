"""oLRN in Triton: the kernels of LRN with the output gate switched on."""

from __future__ import annotations

from torch import Tensor

from nmt.ops.lrn.triton import lrn_op
from nmt.ops.olrn.reference import olrn_reference
from nmt.ops.triton_tools import Launch, one_direction


def olrn_triton(
    projected: Tensor,
    h: Tensor | None,
    mask: Tensor | None,
    *,
    reverse: bool,
    tanh: bool,
    launch: Launch | None = None,
) -> tuple[Tensor, Tensor]:
    """See `nmt.ops.olrn.olrn_sequence`; `launch` overrides the rule of `nmt.ops.triton_tools.launch_rule`."""
    if projected.numel() == 0:
        return olrn_reference(projected, h, mask, reverse=reverse, tanh=tanh)
    outputs, last = lrn_op(projected.unsqueeze(0), mask, one_direction(h), True, tanh, reverse, launch)
    return outputs[0], last[0]


def olrn_both_triton(
    projected: Tensor, h: Tensor | None, mask: Tensor | None, *, tanh: bool, launch: Launch | None = None
) -> tuple[Tensor, Tensor]:
    """Both directions in one launch; see `nmt.ops.lrn.triton.lrn_both_triton`. projected [B, T, 2, 4H]."""
    h = None if h is None else h.float()
    outputs, last = lrn_op(projected.permute(2, 0, 1, 3), mask, h, True, tanh, False, launch)
    return outputs.permute(1, 2, 0, 3).flatten(2), last
