"""The architecture `transformer`: residual blocks of units or attention, and feed-forward layers."""

from __future__ import annotations

from nmt.models.transformer.model import Transformer

__all__ = ["Transformer"]
