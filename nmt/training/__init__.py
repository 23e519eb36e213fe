"""Training: optimizers, schedules, weighting of the loss, checkpoints, validation and the loop itself."""

from __future__ import annotations

from nmt.training import (
    callbacks,
    losses,
    muon,
    optimizers,
    other_optimizers,
    r_drop,
    sampled,
    schedules,
    step_schedules,
)

__all__ = [
    "callbacks",
    "losses",
    "muon",
    "optimizers",
    "other_optimizers",
    "r_drop",
    "sampled",
    "schedules",
    "step_schedules",
]
