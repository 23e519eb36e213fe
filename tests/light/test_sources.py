"""The C of the engine as compilers see it: nothing to warn of, whatever the instruction set."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

import nmt
from nmt.light.sources import FLAGS, compilations
from tests.light.engine_driver import is_table
from tests.light.subwords_library import compiler

ROOT = Path(nmt.__file__).parent
WARNINGS = ("-Wall", "-Wextra", "-Wpointer-arith", "-Wstrict-prototypes", "-Wundef", "-Werror")
PARTS = compilations(platform.machine())


@pytest.mark.parametrize("name", [one.name for one in PARTS])
def test_no_compiler_warns(name: str) -> None:
    part = next(one for one in PARTS if one.name == name)
    conversion = () if is_table(part) else ("-Wconversion",)  # in kernels a cast at each index would say nothing
    command = [*compiler(), *FLAGS, *part.flags, *WARNINGS, *conversion, f"-I{ROOT / 'ops/native'}", "-fsyntax-only"]
    done = subprocess.run([*command, str(ROOT / part.source)], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr[-3000:]
