"""Averages of the weights: an exponential moving average, and one that starts when validation stops improving."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from nmt.errors import CheckpointError


class EMA:
    """Averages of a model's parameters: after each update, average += (1 - d) * (weight - average).

    d = min(decay, (1 + n) / (10 + n)) in update n = 1, 2, ..., so that the random initial weights are soon
    forgotten (as TensorFlow's moving average does when told the number of updates).
    Kept in the precision of the parameters, which is fp32 under autocast.
    """

    def __init__(self, model: nn.Module, *, decay: float) -> None:
        """Start from the model's weights; 0 < decay < 1."""
        if not 0 < decay < 1:
            raise ValueError(f"ema_decay: must be above 0 and below 1, not {decay}")
        self.decay = decay
        self.updates = 0
        self._averages = {name: p.detach().clone() for name, p in model.named_parameters()}
        self._active = False

    def end_validation(self, score: float, *, higher_is_better: bool) -> None:
        """Take in the score of a validation, which does not matter here."""

    def forget_scores(self) -> None:
        """Say that later scores cannot be compared with earlier ones."""

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take in the weights of `model` after an update."""
        assert not self._active, "the model holds the averages now"
        self.updates += 1
        weights = [p.detach() for _, p in model.named_parameters()]
        torch._foreach_lerp_(list(self._averages.values()), weights, self._part())

    def _part(self) -> float:
        """How much of the average the weights of this update become."""
        return 1 - min(self.decay, (1 + self.updates) / (10 + self.updates))

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Within the block, the averages are the weights of `model`; nothing is copied.

        There `model.state_dict()` holds the averages, so save the trained weights outside of it.
        """
        assert not self._active, "the model holds the averages already"
        trained = {name: p.data for name, p in model.named_parameters()}
        self._active = True
        try:
            for name, p in model.named_parameters():
                p.data = self._averages[name]
            yield
        finally:
            for name, p in model.named_parameters():
                p.data = trained[name]
            self._active = False

    def state_dict(self) -> dict[str, Any]:
        """Averages by parameter name and the number of updates; loadable with `weights_only=True`."""
        return {"updates": self.updates, "averages": dict(self._averages)}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`; CheckpointError if it is of another model."""
        saved = state["averages"]
        if saved.keys() != self._averages.keys():
            different = ", ".join(sorted(saved.keys() ^ self._averages.keys()))
            raise CheckpointError(f"the averaged weights are of another model; not in both: {different}")
        for name, average in self._averages.items():
            if saved[name].shape != average.shape:
                shapes = f"{tuple(saved[name].shape)}, expected {tuple(average.shape)}"
                raise CheckpointError(f"the averaged weight {name} has shape {shapes}")
            average.copy_(saved[name])
        self.updates = state["updates"]


class PlateauAverage(EMA):
    """The mean of the weights after each update since validation stopped improving (NT-ASGD).

    It begins with the first validation whose score is not better than the best score before the last `patience`
    validations (Merity et al., ICLR 2018, "non-monotonically triggered"). Until then the weights are not averaged.
    """

    def __init__(self, model: nn.Module, *, patience: int) -> None:
        super().__init__(model, decay=0.5)
        self.patience = patience
        self.has_begun = False
        self._scores: list[float] = []

    def end_validation(self, score: float, *, higher_is_better: bool) -> None:
        """Take in the score of a validation, unless it is NaN, with which nothing can be compared."""
        if math.isnan(score):
            return
        before = self._scores[: max(0, len(self._scores) - self.patience)]
        best = max(before, default=None) if higher_is_better else min(before, default=None)
        if best is not None and not (score > best if higher_is_better else score < best):
            self.has_begun = True
        self._scores.append(score)

    def forget_scores(self) -> None:
        """Compare the next scores with each other alone; an average that has begun continues."""
        self._scores = []

    def update(self, model: nn.Module) -> None:
        """Take in the weights of `model` after an update, if the average has begun."""
        if self.has_begun:
            super().update(model)

    def _part(self) -> float:
        return 1 / self.updates

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """As of `EMA`; before there is an average, the model has its own weights."""
        with super().applied(model) if self.updates else nullcontext():
            yield

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "has_begun": self.has_begun, "scores": list(self._scores)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.has_begun, self._scores = state["has_begun"], list(state["scores"])
