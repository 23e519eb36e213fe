"""Losses, optimizers and schedules besides those that recipes here begin with; means of checkpoints."""
