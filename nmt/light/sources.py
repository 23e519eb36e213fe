"""The C files of the engine and how each is compiled, for whatever builds it.

Paths are relative to the folder of `nmt`. The kernels include steps of units and more from nmt/ops, which they share
with the training kernels. An object is one compilation: a source, and flags in addition to `FLAGS`.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

__all__ = ["FLAGS", "LIBRARIES", "TABLES", "Compilation", "compilations", "kernel_compilations"]

FLAGS: Final = (
    "-std=c11",
    "-O2",
    "-fopenmp-simd",  # loops that are meant to become vector code; no runtime, no threads
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
)
"""For every source; a builder adds flags for the kind of object that it needs, such as -fPIC. The sources refuse
-ffast-math."""

LIBRARIES: Final = ("-lm",)


class Compilation(NamedTuple):
    """One object file."""

    name: str
    """of the object, without what follows the dot"""
    source: str
    flags: tuple[str, ...]


_AVX2: Final = ("-mavx2", "-mfma")
_AVX512: Final = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512")
TABLES: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "x86_64": {
        "avx512_bf16": (*_AVX512, "-mavx512vnni", "-mavx512bf16"),
        "avx512_vnni": (*_AVX512, "-mavx512vnni"),
        "avx2": _AVX2,
        "plain": (),
    },
    "aarch64": {"neon": ("-mcpu=generic+dotprod",), "plain": ()},
    "wasm32": {"simd128": ("-msimd128",)},
}
"""Of each type of machine its kernels, best first, with the flags for the instructions that they need."""
_NAMES: Final = {"amd64": "x86_64", "arm64": "aarch64"}


def kernel_compilations(machine: str, *, only: str | None = None) -> list[Compilation]:
    """Of the kernels for a type of machine as `platform.machine()` names it; plain C for one that is not known. With
    `only`, of one of its tables."""
    known = _NAMES.get(machine.lower(), machine.lower())
    tables = TABLES.get(known, {"plain": ()})
    chooser: tuple[str, ...] = ("-msimd128",) if "simd128" in tables else ()
    if only is not None:
        tables, chooser = {only: tables[only]}, (f"-DONLY=kernels_{only}",)
    return [
        Compilation("kernels", "light/src/kernels.c", chooser),
        *(
            Compilation(f"kernels_{name}", "light/src/kernels_table.c", ("-DTYPE=f32", f"-DVERSION={name}", *flags))
            for name, flags in tables.items()
        ),
    ]


_LIVE: Final = "live/sessions.c"
"""Live translation, which an engine may be without."""
_BUSY: Final = "model run search split subwords system"
_OTHERS: Final = "case engine glossary kept placeholders rules words"
"""Objects with little work, which -O1 compiles in half the time where that counts, with `only`."""


def compilations(machine: str, *, only: str | None = None) -> list[Compilation]:
    """Of the whole engine; the arguments are those of `kernel_compilations`."""
    quick = ("-O1",) if only else ()
    parts = [Compilation(name, f"light/src/{name}.c", ()) for name in _BUSY.split()]
    parts += [Compilation(name, f"light/src/{name}.c", quick) for name in _OTHERS.split()]
    if os.path.isfile(os.path.join(os.path.dirname(__file__), "..", _LIVE)):
        parts.append(Compilation("live", _LIVE, quick))
    return [*kernel_compilations(machine, only=only), *parts]
