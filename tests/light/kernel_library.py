"""The kernels of the engine, compiled with the machine's compiler, and how to call them."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import nmt
from nmt.light.sources import FLAGS, kernel_compilations

ROOT = Path(nmt.__file__).parent
FLOATS = ctypes.POINTER(ctypes.c_float)
VECTOR_F32, MATRIX_F32, MATRIX_BF16, MATRIX_INT8 = range(4)
TYPES = {"f32": MATRIX_F32, "bf16": MATRIX_BF16, "int8": MATRIX_INT8}
_GROUP = {MATRIX_F32: 1, MATRIX_BF16: 2, MATRIX_INT8: 4}
_i64, _f, _p = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p


class Tensor(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("rows", _i64),
        ("columns", _i64),
        ("values", _p),
        ("scales", _p),
        ("sums", _p),
    )


class Scored(ctypes.Structure):
    _fields_ = (("value", _f), ("id", ctypes.c_int32))


_UNIT = ctypes.CFUNCTYPE(None, _p, _p, _p, ctypes.POINTER(_p), ctypes.c_int, _p, _i64)


class Table(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("halves", ctypes.c_bool),
        ("linear", ctypes.CFUNCTYPE(None, ctypes.POINTER(Tensor), _p, _i64, _p, ctypes.c_int, _p, _i64, _i64, _p)),
        ("embed", ctypes.CFUNCTYPE(None, ctypes.POINTER(Tensor), _i64, _p, _f, _p)),
        ("norm", ctypes.CFUNCTYPE(None, _p, _p, _p, _f, _p, _i64)),
        ("add", ctypes.CFUNCTYPE(None, _p, _p, _p, _i64)),
        ("tanh", ctypes.CFUNCTYPE(None, _p, _p, _i64)),
        ("swiglu", ctypes.CFUNCTYPE(None, _p, _p, _p, _i64)),
        ("powers", ctypes.CFUNCTYPE(None, _p, _p, _i64)),
        ("unit", _UNIT * 11),
        (
            "attend_additive",
            ctypes.CFUNCTYPE(None, _p, _p, _i64, _p, _i64, _p, _i64, _i64, _i64, _p, _p, ctypes.c_float, _p),
        ),
        (
            "attend_dot",
            ctypes.CFUNCTYPE(None, _p, _i64, _i64, _p, ctypes.c_bool, _i64, _i64, _i64, _p, _i64, _p, _f, _p),
        ),
        ("log_sum_parts", ctypes.CFUNCTYPE(_f, _p, _i64, ctypes.POINTER(ctypes.c_double))),
        ("add_softmax", ctypes.CFUNCTYPE(None, _p, _i64, _p)),
        ("add_log", ctypes.CFUNCTYPE(None, _p, _f, _p, _i64)),
        ("first_maximum", ctypes.CFUNCTYPE(_i64, _p, _i64)),
        ("add_best", ctypes.CFUNCTYPE(_i64, _p, _i64, _f, ctypes.c_int32, ctypes.POINTER(Scored), _i64, _i64)),
    )


def table_names(machine: str) -> list[str]:
    """Those that are compiled for a type of machine, of which a processor may lack some."""
    objects = (part.name.removeprefix("kernels") for part in kernel_compilations(machine))
    return [name.removeprefix("_") for name in objects if name]


def run(command: Sequence[str]) -> None:
    """Run a compiler, and say what it says if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"


def compiler() -> list[str] | None:
    """CC, or cc, gcc or clang; None where there is none."""
    chosen = os.environ.get("CC", "").split()
    return chosen or next(([name] for name in ("cc", "gcc", "clang") if shutil.which(name)), None)


def compile_objects(command: Sequence[str], folder: Path, *, machine: str, extra: Sequence[str] = ()) -> list[str]:
    """The objects of the kernels, warnings being errors."""
    objects = []
    for part in kernel_compilations(machine):
        objects.append(str(folder / f"{part.name}.o"))
        source = str(ROOT / part.source)
        run([*command, *FLAGS, *part.flags, "-Wall", "-Wextra", "-Werror", *extra, "-c", source, "-o", objects[-1]])
    return objects


def opened(engine: Path) -> ctypes.CDLL:
    """The kernels of the engine that `needed_engine` compiles."""
    library = ctypes.CDLL(str(engine))
    library.door_kernel_tables.restype = ctypes.POINTER(ctypes.POINTER(Table))
    library.door_linear_scratch.restype = ctypes.c_size_t
    library.door_linear_scratch.argtypes = [ctypes.POINTER(Tensor), _i64]
    return library


def tables(library: ctypes.CDLL) -> dict[str, Table]:
    """Those that this processor can run, best first, by their names."""
    own = (table.contents for table in itertools.takewhile(bool, library.door_kernel_tables()))
    return {table.name.decode(): table for table in own}


def aligned(size: int, *, shift: int = 0) -> np.ndarray:
    """Bytes whose address is `shift` more than a multiple of 64, all 0xff: NaN as floats."""
    room = np.full(size + 128, 0xFF, np.uint8)
    start = -room.ctypes.data % 64 + shift
    return room[start : start + size]


def address(values: np.ndarray | None) -> int | None:
    """Of the first value; None for None."""
    return None if values is None else values.ctypes.data


def bf16(values: np.ndarray) -> np.ndarray:
    """Rounded to bf16, ties to even, as uint16."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


class Matrix:
    """A matrix as the model file has it, from docs/engine_format.md, and its values as they stand for themselves."""

    def __init__(self, values: np.ndarray, kind: str) -> None:
        self.kind, (M, K) = kind, values.shape
        group = _GROUP[TYPES[kind]]
        self.scales = self.sums = None
        if kind == "int8":
            self.scales = (np.abs(values).max(1) / 127).astype(np.float32)
            self.integers = np.rint(values / self.scales[:, None]).clip(-127, 127).astype(np.int8)
            self.sums = self.integers.sum(1, dtype=np.int32)
            small, self.values = self.integers, self.integers * self.scales[:, None].astype(np.float64)
        elif kind == "bf16":
            small = bf16(values)
            self.values = (small.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        else:
            small = values.astype(np.float32)
            self.values = small.astype(np.float64)
        strips, groups = -(-M // 32), -(-K // group)
        padded = np.zeros((strips * 32, groups * group), small.dtype)
        padded[:M, :K] = small
        laid = np.ascontiguousarray(padded.reshape(strips, 32, groups, group).transpose(0, 2, 1, 3))
        self.memory = aligned(laid.nbytes)
        self.memory[:] = laid.reshape(-1).view(np.uint8)
        self.tensor = Tensor(TYPES[kind], M, K, address(self.memory), address(self.scales), address(self.sums))
