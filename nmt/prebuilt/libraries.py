"""Which of the libraries beside this file are made from the sources that are installed, and run on this processor."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nmt.compiling import Recipe, engine_recipe, has_instructions, problem_of

FOLDER: Final = Path(__file__).parent

_AVX2: Final = ("-mavx2", "-mfma", "-mf16c", "-mbmi2")
_AVX512: Final = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni")
KERNELS: Final = {
    "kernels_amx": (*_AVX512, "-mavx512bf16", "-mamx-tile", "-mamx-int8", "-mamx-bf16"),
    "kernels_avx512_bf16": (*_AVX512, "-mavx512bf16"),
    "kernels_avx512_vnni": _AVX512,
    "kernels_avx2": _AVX2,
    "kernels_x86_64": ("-msse2",),
}
"""The kernels of nmt.ops for x86-64, best first, with the flags that take the place of -march=native."""


def name_of(kind: str, recipe: Recipe) -> str:
    """The file of a library of this kind; another one where a source or an option has changed since."""
    package = str(FOLDER.parent)
    made_from = zlib.crc32(repr((recipe.jobs, recipe.link, recipe.extra)).replace(package, "").encode())
    for path in recipe.files:
        made_from = zlib.crc32(path.read_bytes(), made_from)
    return f"{kind}-{made_from:08x}.so"


def found(kind: str, recipe: Recipe) -> Path | None:
    """The library of a recipe, if the wheel brings it, and it can be loaded here."""
    path = FOLDER / name_of(kind, recipe)
    return path if path.is_file() and problem_of(path) is None else None


def brings(kind: str) -> bool:
    """Whether there is any library of a kind, before sources are read."""
    return next(FOLDER.glob(f"{kind}*.so"), None) is not None


def engine() -> Path | None:
    """The engine, with the kernels for all processors."""
    return found("engine", engine_recipe(everywhere=True)) if brings("engine") else None


def kernels(sources: Sequence[Path]) -> Path | None:
    """The kernels in these C files."""
    if not brings("kernels"):
        return None
    from nmt.ops.native.build import recipe  # late, as it needs torch

    fitting = (name for name, flags in KERNELS.items() if has_instructions(flags))
    libraries = (found(name, recipe(sources, KERNELS[name], openmp=True)) for name in fitting)
    return next(filter(None, libraries), None)
