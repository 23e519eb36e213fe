"""Output layer and label-smoothed cross entropy in one: the logits exist only for one chunk of the rows at a time."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from nmt.ops.linear_cross_entropy.chunks import Losses, chunked, weighted_sum
from nmt.ops.linear_cross_entropy.reference import Loss
from nmt.ops.linear_cross_entropy.two_passes import chunked_passes
from nmt.ops.recurrence import product_type

__all__ = ["Losses", "linear_cross_entropy", "linear_r_drop"]


def linear_cross_entropy(
    features: Tensor, table: Tensor, *, targets: Tensor, weights: Tensor, label_smoothing: float = 0.0
) -> Losses:
    """The weighted sum of the losses of the logits `features` [N, E] times `table` [V, E]; the losses [N]; the nll [N].

    targets: ids [N]. weights: [N], or a scalar for all. The losses (see `reference`) are in nats, in fp32
    (fp64 for fp64 features); only their weighted sum, a scalar, is differentiable, in features and table. Its
    gradient is computed together with it; therefore the weights must already be known. The negative log-likelihoods
    are the losses without smoothing, from the same pass over the logits.

    Matrix products are computed in the type of autocast; the gradient of the table is summed in fp32.

    Raises IndexError for a target that is not in the table; on a GPU its loss can be NaN instead.
    """
    dtype, weights = product_type(features), _wide_weights(weights, features, count=len(targets))
    loss = Loss.smoothed(len(table), label_smoothing)
    compute = partial(chunked, features, table, targets=targets.long(), weights=weights, loss=loss, dtype=dtype)
    return weighted_sum(features, table, weights=weights, compute=lambda needed: compute(needed=needed))


def linear_r_drop(
    features: Tensor, table: Tensor, *, targets: Tensor, weights: Tensor, alpha: float, label_smoothing: float = 0.0
) -> Losses:
    """Like `linear_cross_entropy`, but the losses are those of R-Drop (see `two_passes`) for features [2, N, E] of two
    passes.

    The negative log-likelihoods are means over both passes. alpha: weight of the divergence, 0 or more.
    """
    dtype, weights = product_type(features), _wide_weights(weights, features, count=len(targets))
    loss = Loss.smoothed(len(table), label_smoothing)
    given = partial(chunked_passes, features, table, targets=targets.long(), weights=weights, dtype=dtype)
    compute = partial(given, loss=loss, alpha=alpha)
    return weighted_sum(features, table, weights=weights, compute=lambda needed: compute(needed=needed))


def _wide_weights(weights: Tensor, features: Tensor, *, count: int) -> Tensor:
    """The weights [count] in the type of the losses."""
    wide = torch.promote_types(product_type(features), torch.float32)
    return weights.to(wide).expand(count).contiguous()
