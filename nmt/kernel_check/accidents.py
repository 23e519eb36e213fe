"""Why something could not be tried on a GPU, and how to mend that, in one line."""

from __future__ import annotations

import signal
from typing import Final

_KNOWN: Final = (
    ("Python.h", "Triton needs Python's C headers", "install python3-dev (python3-devel on Fedora)"),
    ("Failed to find C compiler", "Triton needs a C compiler", "install gcc or clang, or set CC to one"),
    ("libcuda.so", "Triton does not find the library of NVIDIA's driver", "set TRITON_LIBCUDA_PATH to its folder"),
    ("Cannot find ptxas", "Triton does not find its assembler ptxas", "install Triton again"),
    ("No space left", "the disk with Triton's cache is full", "free some of it, or set TRITON_CACHE_DIR"),
    ("Disk quota exceeded", "the quota of Triton's cache is used up", "free some of it, or set TRITON_CACHE_DIR"),
    ("Read-only file system", "Triton's cache cannot be written to", "set TRITON_CACHE_DIR to a folder that can"),
    ("Permission denied", "Triton's cache cannot be written to", "set TRITON_CACHE_DIR to a folder that can"),
    ("out of memory", "the GPU has too little free memory", "end what uses it (nvidia-smi lists it)"),
    ("OUT_OF_MEMORY", "the GPU has too little free memory", "end what uses it (nvidia-smi lists it)"),
    ("ALLOC_FAILED", "the GPU has too little free memory", "end what uses it (nvidia-smi lists it)"),
    ("busy or unavailable", "another process has the GPU to itself", "end it, or set compute mode 0 (nvidia-smi -c 0)"),
    ("no kernel image", "this PyTorch is not built for such a GPU", "install a PyTorch that is (pytorch.org)"),
    ("driver version is insufficient", "NVIDIA's driver is too old for this PyTorch", "install a newer driver"),
    ("driver on your system is too old", "NVIDIA's driver is too old for this PyTorch", "install a newer driver"),
    ("Cannot allocate memory", "this machine has too little free memory", "end what uses it"),
    ("MemoryError", "this machine has too little free memory", "end what uses it"),
)
"""What messages say, what that means, and what mends it."""


def explained(text: str, *, unknown: str = "") -> str:
    """The meaning of the messages in `text`, which may be many lines; `unknown` if none is known, or its last line."""
    for word, meaning, mend in _KNOWN:
        if word in text:
            return f"{meaning}: {mend}"
    lines = text.strip().splitlines()
    return unknown or (lines[-1].strip() if lines else "it printed nothing")


def ended_by(number: int) -> str:
    """What it means that a process was ended by a signal."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    hint = "; if no user did it, this machine has too little free memory" if number == signal.SIGKILL else ""
    return f"it was ended by {name}{hint}"
