"""The C kernels for CPUs: compiled at the first use, called through ctypes, absent without a compiler."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, cast

import torch
from torch import Tensor

from nmt.compiling import BuildError, digest, made_from_and_by
from nmt.errors import say_once, shown
from nmt.ops.native import build
from nmt.ops.native.build import Parameter
from nmt.ops.recurrence import traced

TYPES: Final = {torch.float32: "f32", torch.bfloat16: "bf16"}
"""The types of sequences that the kernels take, and the last part of the kernels' names."""

Kernel = Callable[..., None]

_SLOTS: Final = {"p": "Q", "i": "q", "f": "f4x"}
"""An argument in the eight bytes of a slot, see call.h."""

_SHARED_FROM: Final = 8192
"""Values, of the first tensor or one that is written, from which a team of threads runs a kernel for bf16."""

_PLAIN: Final = (Tensor, torch.nn.Parameter)
"""Classes of plain tensors; FakeTensor and other subclasses may have no memory."""

_ANY: Final = frozenset(value for value in vars(torch).values() if isinstance(value, torch.dtype))


@functools.cache
def problem(source: Path | None = None) -> str | None:
    """Why there are no native kernels here, or none of a C file, None if there are; compiles them if necessary."""
    try:
        _library() if source is None else _library(source)
    except (BuildError, OSError) as error:
        return str(error)
    return None


def identity() -> str:
    """Digests of all sources, of flags and CPU, and of the compiler, from which the existing library was made."""
    every = digest(*(path.read_bytes() for path in build.recipe(build.sources(), (), openmp=True).files))
    return f"{every}-{made_from_and_by(Path(_library().code._name))}"


def usable(like: Tensor) -> bool:
    """Whether native kernels can compute on tensors such as `like`; on a CPU the reason, if not, is reported once.

    They do not run while a graph is traced, because the tracer cannot see them.
    """
    if type(like) not in _PLAIN or not like.is_cpu or like.dtype not in TYPES or traced():
        return False
    if problem() is None:
        return True
    say_once(__name__, f"the slower PyTorch code runs on this CPU, not the compiled kernels: {problem()}")
    return False


@functools.cache
def has(name: str, dtype: torch.dtype) -> bool:
    """Whether there is such a kernel; some are only compiled for CPUs that have the instructions for them."""
    return problem() is None and _library().address(f"{name}_{TYPES[dtype]}") is not None


@functools.cache
def kernel(name: str, dtype: torch.dtype, *, source: Path | None = None) -> Kernel:
    """The C function `name` for sequences of `dtype`; within `in_one_team` it runs later.

    Its arguments are the parameters in its C source without the number of threads: for a pointer a tensor on the CPU
    of the type that it points to, or None if it is OPTIONAL; for an i64 an integer or a boolean; for a float a number.
    Any other argument is a TypeError.

    `source` is a C file of your own: its functions are declared `API void NAME(name)(..., i64 threads)`, it includes
    "simd.h", which lists what they can use, and it is compiled to a separate library.

    Raises:
        BuildError: there is no such function, or no library.
    """
    library, version = _library(source), TYPES.get(dtype, "")
    address = library.address(f"{name}_{version}")
    if address is None:
        raise BuildError(f"there is no kernel {name} for {_names([dtype])} in {source or 'this library'}")
    parameters = library.signatures[name]
    letters = [parameter.letter for parameter in parameters]
    pack = struct.Struct("=QQq" + "".join(_SLOTS[letter] for letter in letters) + "q").pack
    caller, count = library.address(f"call_{build.shape(parameters)}"), len(letters) + 1
    head, in_team = (caller, address, count), version == "bf16"
    pointers = [(i, p.dtypes(dtype) or _ANY, p.optional) for i, p in enumerate(parameters) if p.letter == "p"]
    written = [i for i, *_ in pointers if not i or not parameters[i].text.startswith("const")]
    run, threads = _library().runner(), torch.get_num_threads

    def call(*arguments: Any) -> None:
        calls, values, team = _deferred.get() if in_team else None, [*arguments], threads()
        try:
            for place, dtypes, optional in pointers:
                value = values[place]
                if value is None and optional:
                    values[place] = 0
                elif type(value) in _PLAIN and value.dtype in dtypes and value.is_cpu:
                    values[place] = value.data_ptr()
                else:
                    raise TypeError
            packed = pack(*head, *values, team)
        except (TypeError, IndexError, RuntimeError, OverflowError, struct.error):
            raise TypeError(_mistake(name, parameters, dtype, arguments)) from None
        if calls is not None:
            calls.append((packed, arguments))
        else:
            sizes = [arguments[i].numel() for i in written if arguments[i] is not None] if in_team and team > 1 else []
            run(packed, 1, team if max(sizes, default=0) >= _SHARED_FROM else 1)

    return call


def _mistake(name: str, parameters: tuple[Parameter, ...], dtype: torch.dtype, arguments: tuple[Any, ...]) -> str:
    """What is wrong with the arguments of a call."""
    if len(arguments) != len(parameters):
        return f"{name} takes {len(parameters)} arguments, not {len(arguments)}"
    for number, (parameter, value) in enumerate(zip(parameters, arguments, strict=True), 1):
        kinds = parameter.dtypes(dtype)
        if parameter.letter == "p":
            plain = type(value) in _PLAIN and value.is_cpu and value.dtype in (kinds or _ANY)
            or_none = "None or " if parameter.optional else ""
            right = plain or (value is None and parameter.optional)
            wanted = f"{or_none}a tensor {_names(kinds)} in the memory of the CPU"
        elif parameter.letter == "i":
            right, wanted = isinstance(value, int), "an integer of 64 bits"
        else:
            right, wanted = isinstance(value, (int, float)), "a number"
        if not right:
            found = f"a tensor {_names([value.dtype])} on {value.device}" if isinstance(value, Tensor) else shown(value)
            kind = f", a {type(value).__name__}" if isinstance(value, Tensor) and type(value) not in _PLAIN else ""
            return f"{name}: argument {number} ({parameter.text}) must be {wanted}, not {found}{kind}"
    return f"{name}: a number is too large, or a tensor has no memory"


def _names(dtypes: Sequence[torch.dtype]) -> str:
    return " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes) or "of any type"


_deferred: ContextVar[list[tuple[bytes, Any]] | None] = ContextVar("deferred", default=None)
"""Calls as C reads them, with their arguments, of which the tensors must live until they run."""


@contextlib.contextmanager
def in_one_team(*, possible: bool) -> Iterator[None]:
    """Defer the kernels that are called in the block to its end, where one team of threads runs them in this order.

    Threads that separate between kernels fall asleep, and waking them takes longer than many kernels. Only kernels for
    bf16 are deferred; `possible` says that before the end of the block only these kernels read the results. Otherwise
    all kernels run immediately.
    """
    if not possible:
        yield
        return
    calls: list[tuple[bytes, Any]] = []
    token = _deferred.set(calls)
    try:
        yield
    finally:
        _deferred.reset(token)
    if calls:
        _library().runner()(b"".join(packed for packed, _ in calls), len(calls), torch.get_num_threads())


def column_sums(x: Tensor) -> Tensor:
    """x [N, W] summed over its rows: [W] fp32."""
    total = torch.empty(x.size(1), dtype=torch.float32)
    kernel("sum_columns", x.dtype)(x.contiguous(), total, *x.shape)
    return total


class _Library:
    """The kernels of some C files."""

    def __init__(self, sources: Sequence[Path], *, openmp: bool) -> None:
        self.signatures = {name: found for path in sources for name, found in build.read_signatures(path).items()}
        self.code = ctypes.CDLL(str(build.library(sources, openmp=openmp)))

    def address(self, name: str) -> int | None:
        """The address of a function, None if it does not exist."""
        function = getattr(self.code, name, None)
        return None if function is None else ctypes.cast(function, ctypes.c_void_p).value

    def runner(self) -> Callable[[bytes, int, int], None]:
        """What runs packed calls, so many, by so many threads; see native.c."""
        function = self.code.run_calls
        function.argtypes, function.restype = (ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64), None
        return cast("Callable[[bytes, int, int], None]", function)


@functools.cache
def _library(source: Path | None = None) -> _Library:
    sources, runtime = build.common() if source is None else [source], None
    with contextlib.suppress(OSError):
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
        runtime = re.search(r"(/\S*/lib(?:gomp|iomp5|omp)[^/\s]*\.so[^/\s]*)", mapped)
    if runtime is not None and os.path.exists(runtime[1]):
        # The OpenMP runtime that torch uses, where the kernels find the thread functions: a second one in the process
        # would have threads of its own.
        ctypes.CDLL(runtime[1], mode=ctypes.RTLD_GLOBAL)
        # A compiler may have no OpenMP, or require a runtime other than torch's: then the kernels use one thread.
        with contextlib.suppress(BuildError, OSError):
            return _Library(sources, openmp=True)
    return _Library(sources, openmp=False)
