"""Training: optimizers, schedules, weighting of the loss, checkpoints, validation and the loop itself."""

from __future__ import annotations

from nmt.training import optimizers, other_optimizers, schedules, step_schedules

__all__ = ["step_schedules", "optimizers", "other_optimizers", "schedules"]
