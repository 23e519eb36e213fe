"""Sets the C library's memory allocator to keep large blocks instead of returning them to the kernel.

Training allocates and frees the same large tensors in every step. By default glibc maps each of them anew and
gives it back, and the kernel clears every page again: 16 % of the time of a training step was spent there.
"""

from __future__ import annotations

import ctypes
import os

# Names of <malloc.h>; part of glibc's binary interface, so they never change.
M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_THRESHOLD = -3

KEEP = 1 << 30
"""Bytes: blocks up to this size come from the heap, and so much may stay unused at its end."""
GROWTH = 64 << 20
"""Bytes by which the heap grows beyond each request."""
OLD_LIMIT = 32 << 20
"""Bytes: the largest M_MMAP_THRESHOLD that older versions of glibc take."""

_ENVIRONMENT = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")


def keep_large_blocks() -> bool:
    """Raise M_MMAP_THRESHOLD, M_TRIM_THRESHOLD and M_TOP_PAD; say whether that was done.

    Call it before the first large allocation. Does nothing without glibc (macOS, Windows, musl), and nothing
    where the user has set one of these in the environment.
    """
    if any(name in os.environ for name in _ENVIRONMENT):
        return False
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018  (only glibc has it; musl's mallopt does nothing)
        mallopt = libc.mallopt
    except (OSError, AttributeError, TypeError):
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    mapped = mallopt(M_MMAP_THRESHOLD, KEEP) or mallopt(M_MMAP_THRESHOLD, OLD_LIMIT)
    return bool(mapped and mallopt(M_TRIM_THRESHOLD, KEEP) and mallopt(M_TOP_PAD, GROWTH))
