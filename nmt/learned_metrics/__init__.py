"""Metrics that are networks: COMET, with and without references."""
