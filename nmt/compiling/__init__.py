"""Compiling C on the machine that runs it, once, and where the results are kept. It needs little else of nmt."""

from nmt.compiling.cache import BuildError
from nmt.compiling.kept import Recipe, library, made_from_and_by
from nmt.compiling.machine import find_compiler, processor

__all__ = ["BuildError", "Recipe", "find_compiler", "library", "made_from_and_by", "processor"]
