"""What the implementations of the loss compute: one step of the loop over chunks of rows."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor


class Loss(NamedTuple):
    """loss = lse(x) - confidence * x_target - rest * sum(x) + constant, for each row x of the logits."""

    confidence: float
    rest: float
    constant: float


class Step(Protocol):
    """What is done with the logits of a chunk of n rows."""

    def __call__(self, logits: Tensor, targets: Tensor, *, weights: Tensor | None, loss: Loss, losses: Tensor) -> None:
        """Write the losses [n], in at least fp32, of `logits` [n, V] against the ids `targets` [n].

        The values of a row are side by side; what lies between it and the next may be overwritten.

        With `weights` [n], in the type of the losses, the logits become the gradient of the weighted sum of the
        losses: weight * (softmax(x) - rest), less weight * confidence at the target. Without, they are left alone or
        overwritten. Computed in at least fp32.
        """
