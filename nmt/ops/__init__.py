"""Functions of tensors: the recurrences and the other inner loops; each has a plain reference besides its kernels.

Importing this package registers all units of nmt in `nmt.ops.unit.UNITS`.
"""

from __future__ import annotations

from nmt.ops.atr import ATR
from nmt.ops.gru import GRU
from nmt.ops.lstm import LSTM
from nmt.ops.rnn import RNN
from nmt.ops.scan.units import LRN, OLRN, SRU, SSRU, MinGRU, MinLSTM

__all__ = ["ATR", "GRU", "LRN", "LSTM", "OLRN", "RNN", "SRU", "SSRU", "MinGRU", "MinLSTM"]
