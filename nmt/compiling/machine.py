"""What this machine compiles with, and for."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

from nmt.compiling.cache import BuildError


def find_compiler() -> list[str]:
    """The command in CC, else the first existing one of cc, gcc and clang."""
    chosen = os.environ.get("CC", "").split()
    if chosen:
        return chosen
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found:
            return [found]
    raise BuildError("there is no C compiler (cc, gcc, clang, or CC in the environment)")


def compiler_identity(compiler: Sequence[str]) -> str:
    """A command, and of each program in it the file with its size and its time, which another compiler has not.

    Asking a compiler for its version takes longer than all else that a start with a kept library does.

    Raises BuildError where there is no such program.
    """
    programs = [shutil.which(word) for word in compiler]
    if programs[0] is None:
        raise BuildError(f"{compiler[0]} cannot be run")
    files = [os.path.realpath(program) for program in programs if program]
    states = map(os.stat, files)
    return repr((compiler, files, [(state.st_size, state.st_mtime_ns) for state in states]))


def processor() -> str:
    """What -march=native depends on: a home directory may be shared by different machines."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        wanted = ("model name", "flags", "Features", "CPU part")
        return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))
    return platform.processor()
