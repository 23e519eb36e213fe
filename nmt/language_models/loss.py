"""What a language model minimises: cross entropy of the next words, and penalties of its activations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nmt.data import Batch
from nmt.language_models.batches import Window
from nmt.models.base import PAD
from nmt.models.language_model import LanguageModel, States
from nmt.ops.linear_cross_entropy import Losses
from nmt.ops.recurrence import at_least_fp32
from nmt.training.distributed import World
from nmt.training.losses import BatchLoss, Loss, sampled_losses


@dataclass(frozen=True)
class WindowBatch:
    """A window with the model that is trained on it."""

    model: LanguageModel
    window: Window
    weights: Tensor
    """[B, T], what each word counts for in the update"""


class NextWordLoss(Loss):
    """Cross entropy of next words.

    With penalties alpha and beta (Merity et al., 2017, "Revisiting activation regularization for language RNNs") the
    mean square of the last states, after dropout, and of their change from word to word, before it, are added. With
    `samples` the softmax is over the batch's own words and a sample of the others: see `sampled_losses`.
    """

    def __init__(
        self, *, activation_penalty: float = 0.0, temporal_penalty: float = 0.0, samples: int | None = None
    ) -> None:
        super().__init__()
        self._activation, self._temporal, self._samples = activation_penalty, temporal_penalty, samples

    def cross_entropy(self, model: LanguageModel, features: Tensor, target: Tensor, weights: Tensor) -> Losses:
        """As `LanguageModel.losses`, over all words or a sample."""
        if self._samples is None:
            return model.losses(features, target, weights=weights)
        places = (target != PAD).flatten().nonzero().squeeze(1)
        rows, chosen, own = features.flatten(0, 1)[places], target.flatten()[places], weights.flatten()[places]
        return sampled_losses(rows, model.softmax_table, chosen, weights=own, samples=self._samples)


class StreamLoss(NextWordLoss):
    """`NextWordLoss` of consecutive windows; each starts from the final states of the one before.

    No gradient passes from window to window.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._states: States | None = None
        self._saved: list[list[Tensor]] | None = None  # of all rows, until the first window after they were loaded

    def __call__(self, batch: Any) -> BatchLoss:
        model, window = batch.model, batch.window
        states = None if window.begins else self._before(model, window)
        run = model.run(window.source, states)
        self._states = tuple(type(state)(*(part.detach() for part in state)) for state in run.states)
        self._saved = None
        weights = batch.weights * window.share
        found = self.cross_entropy(model, run.features, window.target, weights)
        total, of_rows = found.total, weights.sum(1).to(found.total.dtype)  # [B]
        if self._activation:
            total = total + self._activation * (of_rows * _mean_square(run.features)).sum()
        if self._temporal and run.raw.size(1) > 1:
            total = total + self._temporal * (of_rows * _mean_square(run.raw.diff(dim=1))).sum()
        return BatchLoss(total, found.nll.detach())

    def _before(self, model: LanguageModel, window: Window) -> States | None:
        """The states before a window that begins no epoch, of its rows."""
        if self._saved is None:
            return self._states
        rows = slice(window.first_row, window.first_row + len(window.source))
        device = window.source.device
        kinds = [cell.State for cell in model.cells]
        return tuple(
            kind(*(part[rows].to(device) for part in parts)) for kind, parts in zip(kinds, self._saved, strict=True)
        )

    def state_dict(self, world: World) -> dict[str, Any]:
        mine = None if self._states is None else [[part.cpu() for part in state] for state in self._states]
        states = mine if world.size == 1 else _of_all_rows(mine, world)
        if states is None:  # no window was read since these were loaded
            states = self._saved
        return {} if states is None else {"states": states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._states, self._saved = None, state.get("states")


def _of_all_rows(states: list[list[Tensor]] | None, world: World) -> list[list[Tensor]] | None:
    """The states of the rows of all processes, each of which must call this; a process without rows has None."""
    listed = None if states is None else [[part.tolist() for part in state] for state in states]
    found = [each for each in world.gather(listed) if each is not None]
    if not found:
        return None
    return [
        [torch.cat([torch.tensor(part) for part in same]) for same in zip(*layer, strict=True)]
        for layer in zip(*found, strict=True)
    ]


@dataclass(frozen=True)
class LinesBatch:
    """Some lines with the model that is trained on them."""

    model: LanguageModel
    lines: Batch
    weights: Tensor
    """[B, T], what each word counts for in the update; 0 where there is none"""


class LineLoss(NextWordLoss):
    """`NextWordLoss` of lines, each from the zero state; the penalties are for their own words."""

    def __call__(self, batch: Any) -> BatchLoss:
        run = batch.model.run(batch.lines.source)
        found = self.cross_entropy(batch.model, run.features, batch.lines.target, batch.weights)
        total, weights = found.total, batch.weights.to(found.total.dtype)
        if self._activation:
            total = total + self._activation * (weights * _square(run.features)).sum()
        if self._temporal:
            total = total + self._temporal * (weights[:, 1:] * _square(run.raw.diff(dim=1))).sum()
        return BatchLoss(total, found.nll.detach())


def _square(x: Tensor) -> Tensor:
    """The mean square of each word's x [B, T, L]: [B, T]."""
    return at_least_fp32(x).square().mean(2)


def _mean_square(x: Tensor) -> Tensor:
    """Of each row of x [B, T, L]: [B]."""
    return at_least_fp32(x).square().mean((1, 2))
