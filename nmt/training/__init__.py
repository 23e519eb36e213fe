"""Training: optimizers, schedules, weighting of the loss, checkpoints, validation and the loop itself."""
