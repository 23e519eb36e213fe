"""Translations of training text in the log, while a model trains (`training.sample_every`)."""
