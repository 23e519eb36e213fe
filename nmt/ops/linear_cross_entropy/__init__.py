"""Output layer and label-smoothed cross entropy in one: the logits exist only for one chunk of the rows at a time.

With s = `label_smoothing` and V words the wanted distribution gives 1 - s to the target and q = s / (V - 1) to each
other word; its own entropy is subtracted, so that the loss of a perfect fit is 0:

    loss = lse(x) - (1 - s - q) x_target - q sum(x) + (1 - s) ln(1 - s) + s ln(q + 1e-20)

R-Drop has two passes with different dropout, which give a word the distributions p and q. Its loss (half of eq. 4 in
Liang et al., NeurIPS 2021), with CE as above, is:

    loss = (CE(p) + CE(q)) / 2 + alpha / 2 * (KL(p || q) + KL(q || p)) / 2

With d = ln p - ln q the gradient of the sum of both KL in the logits of p is p (d - KL(p || q)) + p - q; in the logits
of q it is the same with p and q exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.dispatch import choose
from nmt.ops.matrices import matrix_of
from nmt.ops.native import kernel
from nmt.ops.recurrence import aligned_rows, at_least_fp32, product_type

KERNELS: Final = {
    "native": "nmt.ops.linear_cross_entropy:linear_cross_entropy_native",
    "triton": "nmt.ops.linear_cross_entropy.triton:linear_cross_entropy_triton",
}

CPU_ROWS = 1024
"""Rows of a chunk. With this many the matrix products are as fast as with all rows at once; with fewer, adding up the
gradient of the table takes longer."""

GPU_ROWS = 4096
"""The same on a GPU, which needs more rows to be busy."""

CPU_VALUES: Final = 2**17
"""Logits of each pass processed together on a CPU, so that intermediate results fit in its cache."""

Step = Callable[..., None]
"""`linear_cross_entropy_reference`, or what computes the same or the loss of two passes in its place."""


class Loss(NamedTuple):
    """loss = lse(x) - confidence * x_target - rest * sum(x) + constant, for each row x of the logits."""

    confidence: float
    rest: float
    constant: float

    @classmethod
    def smoothed(cls, words: int, label_smoothing: float) -> Loss:
        """The loss of logits over this many words."""
        kept = 1.0 - label_smoothing
        rest = label_smoothing / max(words - 1, 1)
        return cls(kept - rest, rest, kept * math.log(kept) + label_smoothing * math.log(rest + 1e-20))


class Losses(NamedTuple):
    """The losses of some words; only the total is differentiable."""

    total: Tensor
    """The weighted sum of the losses, a scalar."""
    losses: Tensor
    """The loss of each word, smoothed, in nats."""
    nll: Tensor
    """The negative log-likelihood of each word, in nats: its cross entropy without smoothing."""


class Work(NamedTuple):
    """What is computed from the logits of N words."""

    targets: Tensor  # [N] ids
    weights: Tensor  # [N] in the type of the losses
    loss: Loss
    step: Step | None
    """None: a kernel for one pass, or the reference"""
    dtype: torch.dtype
    """of the products"""


def linear_cross_entropy(
    features: Tensor, table: Tensor, *, targets: Tensor, weights: Tensor, label_smoothing: float = 0.0
) -> Losses:
    """The weighted sum of the losses of the logits `features` [N, E] times `table` [V, E]; the losses [N]; the nll [N].

    targets: ids [N]. weights: [N], or a scalar for all. The losses, as above, are in nats, in fp32
    (fp64 for fp64 features); only their weighted sum, a scalar, is differentiable, in features and table. Its
    gradient is computed together with it; therefore the weights must already be known. The negative log-likelihoods
    are the losses without smoothing, from the same pass over the logits.

    Matrix products are computed in the type of autocast; the gradient of the table is summed in fp32.

    Raises IndexError for a target that is not in the table; on a GPU its loss can be NaN instead.
    """
    given = features.unsqueeze(0), table, targets, weights
    return _of_passes(*given, label_smoothing=label_smoothing, step=None)


def linear_r_drop(
    features: Tensor, table: Tensor, *, targets: Tensor, weights: Tensor, alpha: float, label_smoothing: float = 0.0
) -> Losses:
    """Like `linear_cross_entropy`, but the losses are those of R-Drop for features [2, N, E] of two passes.

    The negative log-likelihoods are means over both passes. alpha: weight of the divergence, 0 or more.
    """
    step = partial(_pair_step, alpha=alpha)
    return _of_passes(features, table, targets, weights, label_smoothing=label_smoothing, step=step)


def _of_passes(
    features: Tensor, table: Tensor, targets: Tensor, weights: Tensor, *, label_smoothing: float, step: Step | None
) -> Losses:
    """The losses of features [P, N, E] of P passes; see `_chunked`."""
    dtype = product_type(features)
    weights = weights.to(torch.promote_types(dtype, torch.float32)).expand(len(targets)).contiguous()
    work = Work(targets.long(), weights, Loss.smoothed(len(table), label_smoothing), step, dtype)
    if torch.is_grad_enabled() and (features.requires_grad or table.requires_grad):
        total, losses, nll = LinearCrossEntropy.apply(features, table, work)
        return Losses(total, losses, losses if nll is None else nll)
    losses, nll, *_ = _chunked(features, table, work, needed=None)
    return Losses((losses * weights).sum(), losses, nll)


class LinearCrossEntropy(torch.autograd.Function):
    """Weighted sum of the losses, and the losses and negative log-likelihoods without a gradient."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, table: Tensor, work: Work) -> tuple[Tensor, Tensor, Tensor | None]:
        # Gradients are not saved for autograd: they are results of the backward pass, not its inputs.
        losses, nll, *ctx.gradients = _chunked(features, table, work, needed=ctx.needs_input_grad[:2])
        apart = None if nll is losses else nll  # autograd does not take the same tensor twice
        ctx.mark_non_differentiable(*(values for values in (losses, apart) if values is not None))
        return (losses * work.weights).sum(), losses, apart

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("linear_cross_entropy: the backward pass can run only once for each forward pass")
        gradients, ctx.gradients = ctx.gradients, None
        factor = upstream[0]
        if factor.is_cuda or factor.item() != 1.0:  # reading the value would stall a GPU
            gradients = [None if gradient is None else gradient.mul_(factor) for gradient in gradients]
        return (*gradients, None)


@torch.no_grad()
def _chunked(
    features: Tensor, table: Tensor, work: Work, *, needed: tuple[bool, bool] | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Losses and nll [N] of features [P, N, E], and the `needed` gradients of the weighted sum in features and table;
    None: no gradients."""
    with torch.autocast(features.device.type, enabled=False):
        x, w = features.detach().to(work.dtype), matrix_of(table, work.dtype)
        passes, count, _ = x.shape
        most = max(1, (GPU_ROWS if x.is_cuda else CPU_ROWS) // passes)
        rows = max(1, -(-count // max(1, -(-count // most))))  # of each pass in a chunk; all chunks are about as large
        losses = torch.empty_like(work.weights)
        nll = losses if work.loss == (1.0, 0.0, 0.0) and passes == 1 else torch.empty_like(losses)
        dx = torch.empty_like(x) if needed and needed[0] else None
        dw: Tensor | None = None
        buffer = aligned_rows(passes * rows, len(table), like=x)
        step = work.step or choose("linear_cross_entropy", linear_cross_entropy_reference, like=buffer, **KERNELS)
        for start in range(0, count, rows):
            part = slice(start, start + rows)
            here = x[:, part].flatten(0, 1).contiguous()
            logits = buffer[: len(here)]
            w.forward(here, out=logits)
            factors = None if needed is None else work.weights[part]
            apart = None if nll is losses else nll[part]
            step(logits, work.targets[part], weights=factors, loss=work.loss, losses=losses[part], nll=apart)
            if dx is not None:
                d_here = torch.empty_like(here)
                w.backward(logits, out=d_here)
                dx[:, part] = d_here.unflatten(0, (passes, -1))
            if needed and needed[1]:
                dw = w.weight_gradient(logits, here, to=dw)
        if needed and needed[1] and dw is None:
            dw = torch.zeros_like(table)
    return losses, nll, None if dx is None else dx.to(features.dtype), None if dw is None else dw.to(table.dtype)


def linear_cross_entropy_reference(
    logits: Tensor, targets: Tensor, *, weights: Tensor | None, loss: Loss, losses: Tensor, nll: Tensor | None = None
) -> None:
    """Write the losses [n], in at least fp32, of `logits` [n, V] against the ids `targets` [n].

    If `nll` [n], of the same type, is given, the negative log-likelihoods lse(x) - x_target are written to it.

    The values of a row are side by side; memory between two rows may be overwritten.

    With `weights` [n], in the type of the losses, the logits become the gradient of the weighted sum of the losses:
    weight * (softmax(x) - rest), minus weight * confidence at the target. Without, they may be overwritten.
    Computed in at least fp32.
    """
    gold = targets.unsqueeze(1)
    log_p = torch.log_softmax(at_least_fp32(logits), -1)
    log_p_gold = log_p.gather(1, gold).squeeze(1)
    torch.mul(log_p_gold, -loss.confidence, out=losses)
    if nll is not None:
        torch.neg(log_p_gold, out=nll)
    if loss.rest:
        losses.sub_(log_p.sum(-1), alpha=loss.rest)
    losses.add_(loss.constant)
    if weights is None:
        return
    gradient = log_p.exp_()
    if loss.rest:
        gradient.sub_(loss.rest)
    gradient.scatter_add_(1, gold, gradient.new_full((len(gold), 1), -loss.confidence))
    torch.mul(gradient, weights.unsqueeze(1), out=gradient)
    logits.copy_(gradient)


MOST_WORDS: Final = 1 << 18
"""Each thread of the kernel has a row of floats on its stack: with this many words 1 MiB."""


def linear_cross_entropy_native(
    logits: Tensor, targets: Tensor, *, weights: Tensor | None, loss: Loss, losses: Tensor, nll: Tensor | None = None
) -> None:
    """See `linear_cross_entropy_reference`."""
    rows, words = logits.shape
    targets = targets.contiguous()
    if rows and not 0 <= int(targets.min()) <= int(targets.max()) < words:
        raise IndexError(f"targets must be ids from 0 to {words - 1}; found {int(targets.min())}, {int(targets.max())}")
    if words > MOST_WORDS:
        linear_cross_entropy_reference(logits, targets, weights=weights, loss=loss, losses=losses, nll=nll)
        return
    run = kernel("cross_entropy_step", logits.dtype)
    run(logits, logits.stride(0), targets, weights, losses, nll, rows, words, *loss)


def _pair_step(
    logits: Tensor, targets: Tensor, *, weights: Tensor | None, loss: Loss, losses: Tensor, nll: Tensor, alpha: float
) -> None:
    """Like `linear_cross_entropy_reference`, but with the losses of R-Drop, of the logits [2n, V] of both passes, one
    after the other."""
    words = logits.size(1)
    step = max(1, CPU_VALUES // words) if logits.device.type == "cpu" else len(targets)
    factors = [None] * len(targets.split(step)) if weights is None else weights.split(step)
    given = (values.split(step) for values in (targets, losses, nll))
    for these, some, ids, *out in zip(logits.unflatten(0, (2, -1)).split(step, 1), factors, *given, strict=True):
        _write_losses(these, ids, weights=some, loss=loss, losses=out[0], nll=out[1], share=alpha / 4)


def _write_losses(
    logits: Tensor, targets: Tensor, *, weights: Tensor | None, loss: Loss, losses: Tensor, nll: Tensor, share: float
) -> None:
    """`_pair_step` of the logits [2, n, V] of one part, whose memory is free again before the next."""
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
