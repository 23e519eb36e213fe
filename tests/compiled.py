"""The compiled engine for tests: skipped where there is no C compiler, a failure where the code does not compile.

And compilers that only seem to compile.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from nmt.compiling import ROOT, BuildError, engine_recipe, find_compiler, library

_LOADED = {found[0] for found in re.finditer(r"/\S+\.so[.0-9]*$", Path("/proc/self/maps").read_text(), re.MULTILINE)}
_LOADED = {path for path in _LOADED if "site-packages" not in path}  # which may need others beside them
_COPY = f"{shutil.which('cat')} '{min(filter(os.path.isfile, _LOADED), key=os.path.getsize)}'"


def writes(text: str) -> str:
    """Shell commands that write to what follows -o a library that can be loaded, with a text at its end."""
    return f'''
while [ $# -gt 0 ]; do
    [ "$1" = -o ] && {_COPY} > "$2" && echo "{text}" >> "$2"
    shift
done
'''


_DOORS = """#include "kernels.h"
#define DOOR __attribute__((visibility("default")))
DOOR const kernels *const *door_kernel_tables(void) { return kernel_tables(); }
DOOR size_t door_linear_scratch(const tensor *w, i64 rows) { return linear_scratch(w, rows); }
"""
"""For tests of the kernels, which the engine keeps to itself."""
_WARNINGS = ("-Wall", "-Wextra", "-Werror")


def needed_engine() -> Path:
    """The shared library, with the kernels for all processors and doors to them, compiled without a warning."""
    try:
        find_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    recipe = engine_recipe(everywhere=True)
    doors = _DOORS, [*_WARNINGS, "-std=c11", "-fPIC", f"-I{ROOT / 'light/src'}", "-c"]
    return library(recipe._replace(jobs=[[*job, *_WARNINGS] for job in recipe.jobs], extra=doors))
