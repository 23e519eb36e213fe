"""Output layer and label-smoothed cross entropy in one: the logits exist for a chunk of the rows at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.ops.linear_cross_entropy.chunks import LinearCrossEntropy, Losses, chunked
from nmt.ops.linear_cross_entropy.reference import Loss
from nmt.ops.recurrence import product_type

__all__ = ["Losses", "linear_cross_entropy"]


def linear_cross_entropy(
    features: Tensor, table: Tensor, *, targets: Tensor, weights: Tensor, label_smoothing: float = 0.0
) -> Losses:
    """The weighted sum of the losses of the logits `features` [N, E] times `table` [V, E]; the losses [N]; the nll [N].

    targets: ids [N]. weights: [N], or a scalar for all. The losses (see `reference`) are in nats, in fp32
    (fp64 for fp64 features); only their weighted sum, a scalar, is differentiable, in features and table. Its
    gradient is made together with it, which is why the weights must be known now. The negative log-likelihoods
    are the losses without smoothing, from the same pass over the logits.

    Matrix products are computed in the type that autocast asks for; the gradient of the table adds up in fp32.

    Raises IndexError for a target that is not in the table; on a GPU its loss can be NaN instead.
    """
    dtype = product_type(features)
    targets = targets.long()
    wide = torch.promote_types(dtype, torch.float32)
    weights = weights.to(wide).expand(len(targets)).contiguous()
    loss = Loss.smoothed(len(table), label_smoothing)
    if torch.is_grad_enabled() and (features.requires_grad or table.requires_grad):
        total, losses, nll = LinearCrossEntropy.apply(features, table, targets, weights, loss, dtype)
        return Losses(total, losses, losses if nll is None else nll)
    found = chunked(features, table, targets=targets, weights=None, loss=loss, dtype=dtype)
    return Losses((found.losses * weights).sum(), found.losses, found.nll)
