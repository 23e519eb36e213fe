"""Additive attention over a projected source, for one query or for all beams of a sentence."""

from nmt.ops.attention.reference import additive_attention

__all__ = ["additive_attention"]
