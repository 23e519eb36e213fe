"""Settings that native libraries read from the environment once, so that they come before the import of torch."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping

from nmt.cpus import available_cores, usable_cores

# oneDNN compiles code for every shape of a matrix product and keeps 1,024 of them, and ideep, which stands between it
# and torch, another 1,024. Batches of all lengths bring new shapes all the time, and the heap grew from update to
# update. With 64 it stays where it is, and training is no slower (docs/benchmarks/memory.md). Far fewer would not hold
# all products of one step of a loop over time, which would be compiled anew in each step.
CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}

# A search comes back to the same few hundred shapes, batch after batch, and needs no more memory than they do.
SEARCH_CACHE = "512"

# Threads wait for each other thousands of times in an update, mostly for microseconds. Put to sleep at once they lose
# much of the speed; spinning without end they take the cores of whatever else runs (docs/benchmarks/memory.md).
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}


_prepared_before_torch = False


def prepare_environment(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set what the user has not: kernel caches, how threads wait, their number where a container limits CPU time."""
    global _prepared_before_torch
    if environment is os.environ and "torch" not in sys.modules:
        _prepared_before_torch = True
    for name, value in CACHES.items():
        environment.setdefault(name, value)
    if not any(name in environment for name in WAITING):
        environment.update(WAITING)
    if "WORLD_SIZE" in environment:  # torch's warnings of lost connections are pages long, and ours say it in a line
        environment.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if usable_cores() < available_cores():  # OpenMP knows which cores a process may use, but not how much of them
        environment.setdefault("OMP_NUM_THREADS", str(usable_cores()))


def is_prepared() -> bool:
    """Whether torch, which has been imported, has found these settings, or some of the user's own."""
    return _prepared_before_torch or any(name in os.environ for name in WAITING)


def keep_more_kernels(environment: MutableMapping[str, str] = os.environ) -> None:
    """For commands that search and do not train, before they import torch: larger kernel caches, unless user-set."""
    for name, value in CACHES.items():
        if environment.get(name) == value:
            environment[name] = SEARCH_CACHE
