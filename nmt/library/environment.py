"""The commands' settings for speed and memory, in the process of a program: before torch is imported, or after."""

from __future__ import annotations

import functools
import logging
import os
import sys

from nmt.system import (
    CACHES,
    SEARCH_CACHE,
    available_cores,
    is_prepared,
    keep_more_kernels,
    prepare_environment,
    usable_cores,
)

SPINNING = (
    "torch was imported before nmt.load, so its threads spin while they wait: on an idle machine a sentence takes 33 "
    "instead of 57 ms, beside a busy process at least 2.6 times as long (docs/benchmarks/latency.md). Call nmt.load "
    "first, or set GOMP_SPINCOUNT=1000 OMP_WAIT_POLICY=PASSIVE for the program"
)

_log = logging.getLogger(__name__)


def before_torch() -> None:
    """Set environment variables and import torch; if torch is already imported, change nothing."""
    if "torch" in sys.modules:
        return
    prepare_environment()
    keep_more_kernels()
    from nmt.training.allocator import keep_large_blocks

    keep_large_blocks()


def prepare_search(device: str) -> None:
    """The settings for a model on `device`; if torch was imported without them, those that it still takes.

    These are the sizes of the kernel caches, the allocator, and the threads where a container limits CPU time. How
    threads wait is read once, at the import; a line says so, once.
    """
    before_torch()
    if is_prepared():
        return
    import torch

    from nmt.training.allocator import keep_large_blocks

    if device.startswith("cuda") or (device == "auto" and torch.cuda.is_available()):
        return
    for name in CACHES:
        os.environ.setdefault(name, SEARCH_CACHE)
    keep_large_blocks()
    cores = usable_cores()
    if "OMP_NUM_THREADS" not in os.environ and cores < min(available_cores(), torch.get_num_threads()):
        torch.set_num_threads(cores)
    warn_once(SPINNING)


@functools.cache
def warn_once(message: str) -> None:
    """Log a warning, once in this process."""
    _log.warning("%s", message)
