"""Training: optimizers, schedules, weighting of the loss, checkpoints, validation and the loop itself."""

from __future__ import annotations

from nmt.training import callbacks, losses, optimizers, schedules

__all__ = ["callbacks", "losses", "optimizers", "schedules"]
