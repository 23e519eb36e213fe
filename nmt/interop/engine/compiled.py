"""The engine, compiled on this machine at its first use."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

from nmt.compiling import BuildError, Recipe, library
from nmt.errors import ConfigError
from nmt.light.sources import FLAGS, compilations

ROOT = Path(__file__).parents[2]


@functools.cache
def compiled_engine() -> Path:
    """The shared library, which chooses its kernels when it runs; ConfigError where it cannot be compiled."""
    flags = [*FLAGS, "-fPIC", "-fvisibility=hidden", f"-I{ROOT / 'ops/native'}"]
    jobs = [[*flags, *one.flags, "-c", str(ROOT / one.source)] for one in compilations(platform.machine())]
    files = sorted({*(ROOT / "light/src").glob("*.[ch]"), *(ROOT / "ops").glob("*/*.[ch]")})
    try:
        return library(Recipe(files, jobs, ["-pthread"]))
    except BuildError as error:
        raise ConfigError(f"the engine, which is written in C, cannot be compiled here: {error}") from None
