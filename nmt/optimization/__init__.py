"""Losses, optimizers and schedules of the literature besides those that recipes here begin with."""
