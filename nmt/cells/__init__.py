"""Recurrent units, each one file, and initializers; importing this package registers them in CELLS and INITIALIZERS."""

from __future__ import annotations

from nmt.cells.atr import ATR
from nmt.cells.base import Cell, CellState, DroppedCell, HiddenState, MemoryState, reorder_state, select_state
from nmt.cells.gru import GRU
from nmt.cells.initializers import INIT_RANGE, Initializer, as_initializer
from nmt.cells.lrn import LRN
from nmt.cells.lstm import LSTM
from nmt.cells.min_gru import MinGRU
from nmt.cells.min_lstm import MinLSTM
from nmt.cells.olrn import OLRN
from nmt.cells.rnn import RNN
from nmt.cells.sru import SRU
from nmt.cells.ssru import SSRU
from nmt.cells.traces import Trace, memory_weights, trace

__all__ = [
    "ATR",
    "GRU",
    "INIT_RANGE",
    "LRN",
    "LSTM",
    "OLRN",
    "RNN",
    "SRU",
    "SSRU",
    "Cell",
    "CellState",
    "DroppedCell",
    "HiddenState",
    "Initializer",
    "MemoryState",
    "MinGRU",
    "MinLSTM",
    "Trace",
    "as_initializer",
    "memory_weights",
    "reorder_state",
    "select_state",
    "trace",
]
