"""Gradients of one update: weighting of accumulated batches, clipping, the guard against NaN."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from nmt.errors import NmtError
from nmt.models.base import PAD, Normalization, loss_weights


class DivergedError(NmtError):
    """Too many consecutive updates had a NaN or infinite loss or gradient, or a gradient that was too large."""


class Accumulation:
    """The loss of one update whose gradient comes from several batches.

    `token`: all token losses of all batches, divided by the number of all their tokens, whatever the sizes
    of the batches. `sentence`: the mean over all sentences of all batches of each sentence's mean. `batch` (Zero): the
    mean over batches of the mean over sentences of each sentence's mean.
    Back-propagating the weighted loss of each batch in turn adds up to the gradient of that loss.

        update = Accumulation([batch.target for batch in batches], normalization="token")
        for batch in batches:
            loss, *_ = model.weighted_loss(batch.source, batch.target, weights=update.weights(batch.target))
            loss.backward()
    """

    def __init__(self, targets: Sequence[Tensor], *, normalization: Normalization) -> None:
        """`targets`: ids [B, T] of all batches of the update, padding 0; best on CPU (they are counted)."""
        self.normalization = normalization
        self.batches = len(targets)
        self.sentences = sum(map(len, targets))
        self.tokens = sum(int((target != PAD).sum()) for target in targets)

    @classmethod
    def of_size(cls, *, batches: int, sentences: int, tokens: int, normalization: Normalization) -> Accumulation:
        """An update with these numbers of batches, sentences and target tokens, of which this process may see only a
        part."""
        update = cls([], normalization=normalization)
        update.batches, update.sentences, update.tokens = batches, sentences, tokens
        return update

    def weights(self, target: Tensor, *, sentences: int | None = None) -> Tensor:
        """The weight of each token loss of one batch in the loss of the update: [B, T], fp64, for ids [B, T].

        `sentences`: sentences of the whole batch, if `target` has only some of them; the parts add up to its share.
        """
        if self.normalization == "token":
            return (target != PAD).double() / self.tokens
        means = loss_weights(target, normalization=self.normalization) * len(target)
        if self.normalization == "sentence":
            return means / self.sentences
        return means / (sentences or len(target)) / self.batches


@torch.no_grad()
def clip_(parameters: Iterable[Tensor], max_norm: float) -> float:
    """Scale all gradients in place by max_norm / max(norm, max_norm), norm being their global L2 norm.

    Returns the norm before clipping. 0 switches clipping off; with a NaN or infinite norm nothing is changed.
    Unlike `torch.nn.utils.clip_grad_norm_` nothing is added to the norm, as in Zero.
    """
    grads = [weight.grad for weight in parameters if weight.grad is not None]
    if not grads:
        return 0.0
    device = grads[0].device
    norms = [norm.to(device) for norm in torch._foreach_norm(grads)]
    norm = float(torch.linalg.vector_norm(torch.stack(norms)))
    if max_norm > 0 and max_norm < norm < math.inf:
        torch._foreach_mul_(grads, max_norm / norm)
    return norm


class BadUpdateGuard:
    """Says which updates must be skipped, counts them, and ends training when there are too many in a row."""

    def __init__(self, *, max_bad_updates: int, skip_norm: float | None = None) -> None:
        """Up to `max_bad_updates` in a row are skipped; one more raises DivergedError.

        `skip_norm`: the largest norm of a gradient that may be applied; by default every finite one may.
        """
        self.max_bad_updates = max_bad_updates
        self.skip_norm = skip_norm
        self.total = 0
        self.in_a_row = 0

    def usable(self, objective: float, norm: float, *, overflow: bool = False) -> bool:
        """Whether an update with this objective and gradient norm may be applied.

        `overflow`: the loss scale of fp16 can still be lowered, so an infinite or NaN *gradient* is nothing
        unusual: it is skipped without being counted.
        """
        finite = math.isfinite(objective) and math.isfinite(norm)
        if finite and not self.too_large(norm):
            self.in_a_row = 0
            return True
        if overflow and math.isfinite(objective) and not finite:
            return False
        self.total += 1
        self.in_a_row += 1
        if self.in_a_row > self.max_bad_updates:
            limit = f", training.skip_norm is {self.skip_norm}" if self.too_large(norm) else ""
            raise DivergedError(
                f"training has diverged: {self.in_a_row} consecutive updates with objective {objective} and gradient "
                f"norm "
                f"{norm}, training.max_bad_updates is {self.max_bad_updates}{limit}; a lower training.lr or clip_norm "
                "may help"
            )
        return False

    def too_large(self, norm: float) -> bool:
        """Whether a finite norm is above the largest that may be applied; NaN and infinity are something else."""
        return self.skip_norm is not None and math.isfinite(norm) and norm > self.skip_norm

    def state_dict(self) -> dict[str, int]:
        """Both counters."""
        return {"total": self.total, "in_a_row": self.in_a_row}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue counting from a `state_dict`."""
        self.total, self.in_a_row = state["total"], state["in_a_row"]
