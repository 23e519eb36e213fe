"""A training in several processes, which torchrun starts."""
