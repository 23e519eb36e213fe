"""Compiles the C kernels of this package with the machine's own compiler, once, and keeps the library.

Each source is compiled once for each version of its kernels, see simd.h; with them go the functions that call kernels,
one for each list of kinds of parameters. The library depends on nothing but the C library: tensors are passed as
addresses, and the threads are those of the OpenMP runtime that torch has loaded.
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
"""Each kernel exists in these, by what ends their names; see simd.h."""


def sources() -> list[Path]:
    """The C files, beside the operations that have kernels."""
    return sorted(OPS.glob("*/*.c"))


def library(kernels: Sequence[Path], callers: str, *, openmp: bool) -> Path:
    """Path of the compiled library of C files and the text of one more, which is made now if there is none.

    Raises:
        BuildError: none is kept, and there is no compiler, or it does not compile this.
    """
    target = "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else _NATIVE.get(platform.machine(), "")
    flags = [*_FLAGS, *([target] if target else [])]
    own = [*flags, *(["-fopenmp"] if openmp else [])]
    headers = sorted({path for source in (*kernels, Path(__file__)) for path in source.parent.glob("*.h")})
    jobs = [[*own, *job] for job in compilations(kernels)]
    extra = callers, [*own, *_flags("f32"), "-c"]
    # Linked without -fopenmp, so that the OpenMP runtime stays unresolved: torch's is taken when the library is loaded.
    return compiling.library(Recipe([*headers, *kernels], jobs, flags, extra, processor()))


def compilations(kernels: Sequence[Path]) -> list[list[str]]:
    """What a compiler is told besides its flags and where to write to, for each object."""
    return [[*_flags(version), "-c", str(source)] for source in kernels for version in VERSIONS]


def _flags(version: str) -> list[str]:
    return [f"-I{Path(__file__).parent}", *VERSIONS[version], f"-DVERSION={version}"]
