"""Recurrent layers for your own networks, used like `torch.nn.GRU`: see docs/layers.md."""

from __future__ import annotations

from nmt.layers.base import RecurrentLayers
from nmt.layers.units import ATR, GRU, LRN, LSTM, OLRN, SRU, SSRU, MinGRU, MinLSTM

__all__ = ["ATR", "GRU", "LRN", "LSTM", "OLRN", "SRU", "SSRU", "MinGRU", "MinLSTM", "RecurrentLayers"]
