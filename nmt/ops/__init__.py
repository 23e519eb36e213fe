"""Functions of tensors: the recurrences and the other inner loops; each has a plain reference besides its kernels."""

from __future__ import annotations

from nmt.ops.units import ATR, GRU, LRN, LSTM, OLRN, RNN, SRU, SSRU, MinGRU, MinLSTM

__all__ = ["ATR", "GRU", "LRN", "LSTM", "OLRN", "RNN", "SRU", "SSRU", "MinGRU", "MinLSTM"]
