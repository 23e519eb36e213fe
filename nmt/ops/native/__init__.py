"""The C kernels of the CPU: compiled at the first use, called through ctypes, absent where there is no compiler."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import os
import re
from array import array
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from nmt.ops.native.build import library
from nmt.ops.native.cache import BuildError

logger = logging.getLogger(__name__)

TYPES: Final = {torch.float32: "f32", torch.bfloat16: "bf16"}
"""The types of sequences that the kernels take, and the last part of the kernels' names."""

_SUFFIXES: Final = {**TYPES, torch.int8: "i8"}

_C = {"p": ctypes.c_void_p, "i": ctypes.c_int64, "f": ctypes.c_float}

Kernel = Callable[..., None]


@functools.cache
def problem() -> str | None:
    """Why there are no native kernels here, None where there are; compiles them if need be."""
    try:
        _library()
    except (BuildError, OSError) as error:
        return str(error)
    return None


def identity() -> str:
    """The digest of all that the library was made from: sources, compiler, its flags, CPU. Only where there is one."""
    return Path(_library()._name).stem.partition("-")[0]


def usable(like: Tensor) -> bool:
    """Whether native kernels can compute on tensors such as `like`; says once why not on a CPU."""
    if like.device.type != "cpu" or like.dtype not in TYPES:
        return False
    if problem() is None:
        return True
    _say_once(f"the slower PyTorch code runs on this CPU, not the compiled kernels: {problem()}")
    return False


@functools.cache
def _say_once(message: str) -> None:
    logger.warning(message)


@functools.cache
def has(name: str, dtype: torch.dtype) -> bool:
    """Whether there is such a function; some are only compiled for CPUs that have the instructions for them."""
    return problem() is None and hasattr(_library(), f"{name}_{_SUFFIXES[dtype]}")


@functools.cache
def kernel(name: str, signature: str, dtype: torch.dtype) -> Kernel:
    """The C function `name` for sequences, or a packed matrix, of `dtype`; within `together` it runs later.

    `signature` has a letter for each argument: p a tensor or None, i an integer, f a number; spaces are ignored. The
    number of threads is added as the last argument.
    """
    function = getattr(_library(), f"{name}_{_SUFFIXES[dtype]}")
    letters = signature.replace(" ", "")
    function.argtypes = [*(_C[letter] for letter in letters), ctypes.c_int64]
    function.restype = None
    in_team = None if "f" in letters else getattr(_library(), f"{name}_{_SUFFIXES[dtype]}_team", None)
    address = 0 if in_team is None else ctypes.cast(in_team, ctypes.c_void_p).value

    def call(*arguments: Any) -> None:
        values = [value.data_ptr() if isinstance(value, Tensor) else value for value in arguments]
        calls = _put_off.get()
        if calls is None or not address:
            function(*values, torch.get_num_threads())
        else:
            calls.append(([address, *values], arguments))

    return call


_ARGUMENTS: Final = 25
"""As many as native.c passes to a kernel of a team."""

_put_off: ContextVar[list[tuple[list[Any], Any]] | None] = ContextVar("put_off", default=None)
"""Kernels with their arguments, of which the tensors must live until they run."""


@contextlib.contextmanager
def together(*, possible: bool) -> Iterator[None]:
    """Put off the kernels that are called in the block to its end, where one team of threads runs them in this order.

    Threads that part between kernels fall asleep, and waking them takes longer than many a kernel. Only kernels for
    bf16 are put off, whose arguments are tensors and integers; `possible` says that what they write is read by them
    alone before the block ends. Where it is not, all runs at once.
    """
    if not possible:
        yield
        return
    calls: list[tuple[list[Any], Any]] = []
    token = _put_off.set(calls)
    try:
        yield
    finally:
        _put_off.reset(token)
    numbers = array("q")
    for values, _ in calls:
        numbers.extend(int(value or 0) for value in values)
        numbers.extend([0] * (1 + _ARGUMENTS - len(values)))
    if calls:
        run = _library().run_team
        run.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
        run.restype = None
        run(numbers.buffer_info()[0], len(calls), torch.get_num_threads())


def column_sums(x: Tensor) -> Tensor:
    """x [N, W] summed over its rows: [W] fp32."""
    total = torch.empty(x.size(1), dtype=torch.float32)
    kernel("sum_columns", "pp ii", x.dtype)(x.contiguous(), total, *x.shape)
    return total


@functools.cache
def _library() -> ctypes.CDLL:
    runtime = _openmp_runtime()
    if runtime is not None:
        ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)  # where the kernels find the functions of their threads
        # A compiler may have no OpenMP, or want another runtime than torch's: one thread is better than none.
        with contextlib.suppress(BuildError, OSError):
            return ctypes.CDLL(str(library(openmp=True)))
    return ctypes.CDLL(str(library(openmp=False)))


def _openmp_runtime() -> Path | None:
    """The OpenMP runtime that torch uses: a second one in the process would have threads of its own."""
    try:
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"(/\S*/lib(?:gomp|iomp5|omp)[^/\s]*\.so[^/\s]*)", mapped)
    return Path(found[1]) if found and os.path.exists(found[1]) else None
