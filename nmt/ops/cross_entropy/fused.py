"""Cross entropy with a hand-written gradient: nothing of the size of the logits is kept but they."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.recurrence import at_least_fp32

# Values handled at once: on CPU what stays in its cache from one pass to the next, on a GPU what is
# enough to fill it. Bounds the temporaries in fp32, too.
_CPU_VALUES = 2**18
_GPU_VALUES = 2**27


def _chunk_rows(logits: Tensor) -> int:
    values = _GPU_VALUES if logits.is_cuda else _CPU_VALUES
    return max(1, values // max(logits.size(1), 1))


class SmoothedCrossEntropy(torch.autograd.Function):
    """lse(x) - confidence * x_target - rest * sum(x) for each row x of the logits.

    With p = softmax(x), and because confidence + V * rest = 1, this is
    -(confidence * ln p_target + rest * sum(ln p)).
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, confidence: float, rest: float) -> Tensor:
        ctx.save_for_backward(logits, targets)
        ctx.confidence, ctx.rest = confidence, rest
        rows = _chunk_rows(logits)
        losses = []
        for x, gold in zip(logits.split(rows), targets.split(rows), strict=True):
            log_p = torch.log_softmax(at_least_fp32(x), -1)
            loss = log_p.gather(1, gold.unsqueeze(1)).squeeze(1).mul_(-confidence)
            losses.append(loss.sub_(log_p.sum(-1), alpha=rest) if rest else loss)
        return torch.cat(losses)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        logits, targets = ctx.saved_tensors
        rows = _chunk_rows(logits)
        result = torch.empty_like(logits)
        chunks = zip(result.split(rows), logits.split(rows), targets.split(rows), gradients[0].split(rows), strict=True)
        for out, x, gold, gradient in chunks:
            p = torch.softmax(at_least_fp32(x), -1)
            if ctx.rest:
                p.sub_(ctx.rest)
            p.scatter_add_(1, gold.unsqueeze(1), p.new_full((len(gold), 1), -ctx.confidence))
            torch.mul(p, gradient.unsqueeze(1), out=out)
        return result, None, None, None
