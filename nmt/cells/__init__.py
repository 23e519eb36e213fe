"""Recurrent units, each one file; importing this package registers all of them in CELLS."""

from __future__ import annotations

from nmt.cells.atr import ATR
from nmt.cells.base import Cell
from nmt.cells.gru import GRU
from nmt.cells.lrn import LRN
from nmt.cells.lstm import LSTM
from nmt.cells.olrn import OLRN
from nmt.cells.sru import SRU
from nmt.cells.state import CellState, HiddenState, MemoryState, reorder_state, select_state

__all__ = [
    "ATR",
    "GRU",
    "LRN",
    "LSTM",
    "OLRN",
    "SRU",
    "Cell",
    "CellState",
    "HiddenState",
    "MemoryState",
    "reorder_state",
    "select_state",
]
