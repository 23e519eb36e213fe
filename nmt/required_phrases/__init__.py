"""Beam search for translations that must contain phrases."""
