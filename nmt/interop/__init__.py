"""Files of runs and saved models, the engine's file, and model directories for exports."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name == "zero":  # where Zero's models were until version 0.3
        return import_module("nmt.zero")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
