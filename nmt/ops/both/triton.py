"""Both directions in one launch of a unit's Triton kernel, after one product with the input matrices of both.

Imported only by kernels, because Triton is not installed everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.atr import ATR
from nmt.ops.atr.triton import atr_whole, fits_on_chip
from nmt.ops.both import Both, Direction
from nmt.ops.layer_norm import layer_norm_parts
from nmt.ops.lrn.triton import lrn_both_triton
from nmt.ops.olrn.triton import olrn_both_triton
from nmt.ops.recurrence import product_type
from nmt.ops.sru.triton import sru_both_triton
from nmt.ops.steps import unsupported
from nmt.ops.unit import Projection, Unit

Run = Callable[[Unit, Unit, Tensor, Tensor], tuple[Tensor, ...]]
"""From two units, projected [B, T, 2, kH] and mask [B, T] to outputs [B, T, 2H] and the last states [2, B, H]."""


def _lrn(ahead: Unit, back: Unit, projected: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    return lrn_both_triton(projected, None, mask, tanh=ahead.options["tanh"])


def _olrn(ahead: Unit, back: Unit, projected: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    return olrn_both_triton(projected, None, mask, tanh=ahead.options["tanh"])


def _sru(ahead: Unit, back: Unit, projected: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    forget, reset = (torch.stack(pair) for pair in zip(ahead.weights, back.weights, strict=True))
    return sru_both_triton(projected, forget, reset, None, None, mask)


def _atr(ahead: Unit, back: Unit, projected: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    units = [ATR(weights=unit.weights, normalized=unit.normalized, **unit.options) for unit in (ahead, back)]
    found = atr_whole(units, projected.permute(2, 0, 1, 3), None, mask, reverse=False)
    assert found is not None
    outputs = found[0].permute(1, 2, 0, 3).flatten(2)
    return torch.tanh(outputs) if units[0].activation == "output" else outputs, found[1][:, 0]


RUNS: Final[Mapping[str, Run]] = MappingProxyType({"atr": _atr, "lrn": _lrn, "olrn": _olrn, "sru": _sru})


def both_directions_triton(
    ahead: Direction, back: Direction, x: Tensor, *, mask: Tensor, written_out: Callable[[], Both]
) -> Both:
    """See `nmt.ops.both.both_directions`. Outputs are in the type of the products."""
    first, second = ahead.unit, back.unit
    if first is None or second is None or ahead.projection is None or back.projection is None or x.numel() == 0:
        return written_out()
    if first.words != second.words or first.name not in RUNS or not _fits(first, batch=len(x)):
        return written_out()
    projected = _projected(x, ahead.projection, back.projection)
    outputs, *last = RUNS[first.name](first, second, projected, mask)
    return Both(outputs, (tuple(part[0] for part in last), tuple(part[1] for part in last)))


def _fits(unit: Unit, *, batch: int) -> bool:
    """Whether there is a kernel that runs all steps: of ATR if both directions fit on the GPU."""
    if unit.name != "atr":
        return True
    weight = unit.weights[0]
    dtype, hidden = product_type(weight), weight.size(-1)
    if unsupported(dtype, hidden=hidden):
        return False
    return fits_on_chip(weight.to(dtype).expand(2, hidden, hidden), batch=batch)


def _projected(x: Tensor, ahead: Projection, back: Projection) -> Tensor:
    """The products of x [B, T, D] with both input matrices [kH, D]: [B, T, 2, kH]."""
    products = F.linear(x, torch.cat([ahead.weight, back.weight]))
    if ahead.scale is not None and ahead.offset is not None and back.scale is not None and back.offset is not None:
        scale, offset = torch.cat([ahead.scale, back.scale]), torch.cat([ahead.offset, back.offset])
        products = layer_norm_parts(products, scale, offset, widths=ahead.widths + back.widths)
    return products.unflatten(-1, (2, -1))
