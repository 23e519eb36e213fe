"""Compiling C on the machine that runs it, and where the results are kept."""

from __future__ import annotations

from nmt.compiling.build import Kept, compiler_version, find_compiler, processor
from nmt.compiling.cache import BuildError

__all__ = ["BuildError", "Kept", "compiler_version", "find_compiler", "processor"]
