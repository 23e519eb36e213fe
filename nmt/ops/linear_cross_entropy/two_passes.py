"""The loss of R-Drop with its gradient, over chunks of rows: the definition, and an implementation in plain PyTorch.

Two passes with different dropout give a word the distributions p and q. Its loss (half of eq. 4 in Liang et al.,
NeurIPS 2021) is:

    loss = (CE(p) + CE(q)) / 2 + alpha / 2 * (KL(p || q) + KL(q || p)) / 2

CE is the cross entropy of `reference`, with its label smoothing. With d = ln p - ln q the gradient of the sum of both
KL in the logits of p is p (d - KL(p || q)) + p - q; in the logits of q it is the same with p and q exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from nmt.ops.linear_cross_entropy.chunks import Result, most_rows, rows_of_chunk
from nmt.ops.linear_cross_entropy.reference import Loss
from nmt.ops.matrices.training import matrix_of
from nmt.ops.recurrence import at_least_fp32
from nmt.ops.sizes import aligned_rows

CPU_VALUES: Final = 2**17
"""Logits of each pass processed together on a CPU, so that intermediate results fit in its cache."""


@torch.no_grad()
def chunked_passes(
    features: Tensor,
    table: Tensor,
    *,
    targets: Tensor,
    weights: Tensor,
    loss: Loss,
    alpha: float,
    dtype: torch.dtype,
    needed: tuple[bool, bool] | None,
) -> Result:
    """Losses [N] of features [2, N, E], and the `needed` gradients of their weighted sum; None: no gradients."""
    with torch.autocast(features.device.type, enabled=False):
        x, w = features.detach().to(dtype), matrix_of(table, dtype)
        count = x.size(1)
        rows = rows_of_chunk(count, most=max(1, most_rows(x) // 2))  # of each pass
        losses = x.new_empty(count, dtype=torch.promote_types(dtype, torch.float32))
        nll = torch.empty_like(losses)
        dx = torch.empty_like(x) if needed and needed[0] else None
        dw: Tensor | None = None
        buffer = aligned_rows(2 * rows, len(table), like=x)
        for start in range(0, count, rows):
            part = slice(start, start + rows)
            here = x[:, part].flatten(0, 1).contiguous()
            logits = buffer[: len(here)]
            w.forward(here, out=logits)
            step = max(1, CPU_VALUES // len(table)) if x.device.type == "cpu" else rows
            given = (values[part].split(step) for values in (targets, weights, losses, nll))
            for these, words, factors, *out in zip(logits.unflatten(0, (2, -1)).split(step, 1), *given, strict=True):
                _write_losses(these, words, weights=factors if needed else None, loss=loss, alpha=alpha, out=out)
            if dx is not None:
                d_here = torch.empty_like(here)
                w.backward(logits, out=d_here)
                dx[:, part] = d_here.unflatten(0, (2, -1))
            if needed and needed[1]:
                dw = w.weight_gradient(logits, here, to=dw)
        if needed and needed[1] and dw is None:
            dw = torch.zeros_like(table)
    return Result(
        losses, nll, None if dx is None else dx.to(features.dtype), None if dw is None else dw.to(table.dtype)
    )


def _write_losses(
    logits: Tensor, targets: Tensor, *, weights: Tensor | None, loss: Loss, alpha: float, out: Sequence[Tensor]
) -> None:
    """Write to `out` losses and negative log-likelihoods [n] of the logits [2, n, V] of both passes.

    With `weights` [n] the logits become the gradient of the weighted sum of the losses; without, they do not change.
    Computed in at least fp32.
    """
    losses, nll = out
    share = alpha / 4
    gold = targets.expand(2, -1).unsqueeze(2)
    log_p = torch.log_softmax(at_least_fp32(logits), -1)
    log_p_gold = log_p.gather(2, gold).squeeze(2)
    entropies = loss.constant - loss.confidence * log_p_gold
    if loss.rest:
        entropies = entropies - loss.rest * log_p.sum(-1)
    apart = log_p[0] - log_p[1]
    p, q = both = log_p.exp_()
    kl = torch.stack([(p * apart).sum(-1), -(q * apart).sum(-1)])
    losses.copy_(entropies.mean(0) + share * kl.sum(0))
    nll.copy_(-log_p_gold.mean(0))
    if weights is None:
        return
    bases = (0.5 + share - share * kl).unsqueeze(2)
    factors = torch.stack([bases[0] + share * apart, bases[1] - share * apart])
    gradient = factors.mul_(both).sub_(both.flip(0), alpha=share)
    if loss.rest:
        gradient.sub_(loss.rest / 2)
    gradient.scatter_add_(2, gold, gradient.new_full(gold.shape, -loss.confidence / 2))
    logits.copy_(gradient.mul_(weights.unsqueeze(1)))
