"""Recurrent units and initializers; importing this package registers them in CELLS and INITIALIZERS."""

from __future__ import annotations

from nmt.cells.base import Cell, CellState, DroppedCell, HiddenState, MemoryState, reorder_state, select_state
from nmt.cells.initializers import INIT_RANGE, Initializer, as_initializer
from nmt.cells.traces import Trace, memory_weights, trace
from nmt.cells.units import ATR, GRU, LRN, LSTM, OLRN, RNN, SRU, SSRU, MinGRU, MinLSTM

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
