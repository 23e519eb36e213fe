"""nmt: recurrent neural machine translation with selectable units."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    """`nmt.layers`, imported when it is first asked for: importing nmt alone imports no torch."""
    if name == "layers":
        return importlib.import_module("nmt.layers")
    raise AttributeError(f"module 'nmt' has no attribute '{name}'")
