"""Compiles the C kernels of this package once, with the machine's own compiler, and keeps the library.

Each source is compiled once for each version of its kernels, see simd.h. The library also has the functions that call
kernels, one for each list of parameter kinds. It depends only on the C library: tensors are passed as addresses, and
threads come from the OpenMP runtime that torch has loaded.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

from nmt import compiling
from nmt.compiling import Recipe, processor

OPS = Path(__file__).parents[1]

_FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math")
_NATIVE = {"x86_64": "-march=native", "AMD64": "-march=native"}

VERSIONS = {
    "f32": ("-DTYPE=f32", "-DFIRST_VERSION"),
    "bf16": ("-DTYPE=bf16",),
    "bf16_team": ("-DTYPE=bf16", "-DIN_TEAM"),
}
"""The versions of each kernel, by the last part of their names; see simd.h."""


def sources() -> list[Path]:
    """The C files, which are in the folders of their operations."""
    return sorted(OPS.glob("*/*.c"))


def library(kernels: Sequence[Path], callers: str, *, openmp: bool) -> Path:
    """Path of the library compiled from C files and the text `callers`; it is made now if it does not exist.

    Raises:
        BuildError: there is no kept library, and there is no compiler, or compiling fails.
    """
    target = "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else _NATIVE.get(platform.machine(), "")
    flags = [*_FLAGS, *([target] if target else [])]
    own = [*flags, *(["-fopenmp"] if openmp else [])]
    headers = sorted({path for source in (*kernels, Path(__file__)) for path in source.parent.glob("*.h")})
    jobs = [[*own, *job] for job in compilations(kernels)]
    extra = callers, [*own, *_flags("f32"), "-c"]
    # Linked without -fopenmp, so that the OpenMP runtime stays unresolved: loading the library resolves it to torch's.
    return compiling.library(Recipe([*headers, *kernels], jobs, flags, extra, processor()))


def compilations(kernels: Sequence[Path]) -> list[list[str]]:
    """The arguments of the compiler for each object, without its flags and the output path."""
    return [[*_flags(version), "-c", str(source)] for source in kernels for version in VERSIONS]


def _flags(version: str) -> list[str]:
    return [f"-I{Path(__file__).parent}", *VERSIONS[version], f"-DVERSION={version}"]
