"""Recurrent units and initializers; importing this package registers them in CELLS and INITIALIZERS."""

from __future__ import annotations

from nmt.cells.base import Cell, CellState, DroppedCell, HiddenState, MemoryState, reorder_state, select_state
from nmt.cells.initializers import INIT_RANGE, Initializer, as_initializer
from nmt.cells.units import ATR, GRU, LRN, LSTM, OLRN, RNN, SRU, SSRU, MinGRU, MinLSTM
from nmt.lazily import members

__getattr__ = members(__name__, {"nmt.inspection.traces": ("Trace", "memory_weights", "trace")})  # there since 0.4

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
    "as_initializer",
    "reorder_state",
    "select_state",
]
