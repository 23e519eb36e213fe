"""All units of nmt; importing this module registers them in `nmt.ops.unit.UNITS`."""

from __future__ import annotations

from nmt.ops.atr import ATR
from nmt.ops.gru import GRU
from nmt.ops.lrn import LRN
from nmt.ops.lstm import LSTM
from nmt.ops.min_gru import MinGRU
from nmt.ops.min_lstm import MinLSTM
from nmt.ops.olrn import OLRN
from nmt.ops.rnn import RNN
from nmt.ops.sru import SRU
from nmt.ops.ssru import SSRU

__all__ = ["ATR", "GRU", "LRN", "LSTM", "OLRN", "RNN", "SRU", "SSRU", "MinGRU", "MinLSTM"]
