"""docs/benchmarks: no table is endless, and summaries are those of the raw numbers."""

from __future__ import annotations

import json
import re
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType

import pytest

from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "docs/benchmarks"
LONGEST_TABLE = 60


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.md")))
def test_tables_are_short(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert (
        max((block.count("\n") for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.M)), default=0) < LONGEST_TABLE
    )


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("nmt.ops.triton_tools", reason="Triton is not installed")
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    monkeypatch.setattr(sys, "path", list(sys.path))  # which the script changes, too
    loader = SourceFileLoader("compile_kernels", str(REPOSITORY / "scripts/compile_kernels"))
    spec = spec_from_loader("compile_kernels", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_the_summary_of_the_kernels_is_that_of_all_forms() -> None:
    raw = json.loads((FOLDER / "kernels-resources.json").read_text(encoding="utf-8"))["kernels"]
    text = " ".join((FOLDER / "gpu.md").read_text(encoding="utf-8").split())
    registers = [row["registers"] for row in raw]
    assert f"The {len(raw)} forms" in text
    assert f"{min(registers)} to {max(registers)} registers a thread" in text
    assert f"at most {max(row['shared bytes'] for row in raw):,} bytes of shared memory" in text
    assert all(row["spills"] == 0 for row in raw)


def test_a_summary_has_the_fewest_and_the_most(script: ModuleType) -> None:
    rows = [
        {"unit": "lrn", "kernel": "forward", "registers": registers, "shared bytes": shared, "spills": 0}
        for registers, shared in ((40, 1000), (64, 0), (50, 4096))
    ]
    assert script.summary(rows).splitlines()[2:] == ["| lrn | 3 | 40 to 64 | 0 to 4,096 | 0 |"]
