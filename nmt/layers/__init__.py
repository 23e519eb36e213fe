"""Recurrent layers for your own networks, used like `torch.nn.GRU`: see docs/layers.md."""

from __future__ import annotations

from nmt.layers.atr import ATR
from nmt.layers.base import RecurrentLayers
from nmt.layers.gru import GRU
from nmt.layers.lrn import LRN
from nmt.layers.lstm import LSTM
from nmt.layers.min_gru import MinGRU
from nmt.layers.min_lstm import MinLSTM
from nmt.layers.olrn import OLRN
from nmt.layers.sru import SRU
from nmt.layers.ssru import SSRU

__all__ = ["ATR", "GRU", "LRN", "LSTM", "OLRN", "SRU", "SSRU", "MinGRU", "MinLSTM", "RecurrentLayers"]
