"""scripts/bench_engine.py: the engine, the run by PyTorch and the web page, each in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.exported_run import LINES, make_exported

pytestmark = pytest.mark.slow

SCRIPTS = REPOSITORY / "scripts"


def bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    text = folder / "text"
    text.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    command = [
        sys.executable,
        str(SCRIPTS / "bench_engine.py"),
        *arguments,
        "--source",
        str(text),
        "--reference",
        str(text),
    ]
    small = ["--beam", "1", "--rounds", "1", "--repeats", "1", "--lines", "2"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run([*command, *small], capture_output=True, text=True, env=environment, check=False)


def test_the_table(tmp_path: Path) -> None:
    made, output = make_exported(tmp_path), tmp_path / "engine.md"
    done = bench(tmp_path, made.file, "--nmt", made.run, "--precision", "fp32", "--kernels", "plain", "-o", str(output))
    assert done.returncode == 0, done.stderr
    results = json.loads(output.with_suffix(".json").read_text())["results"]
    assert list(results) == ["engine, run.nmt, greedy, plain", "nmt, run, greedy"]
    (engine,), (pytorch,) = results.values()
    assert engine["bleu"] == pytorch["bleu"] and engine["single_ms"] > 0
    assert output.read_text().count("| engine, run.nmt, ") == 1


def test_a_file_that_is_none(tmp_path: Path) -> None:
    done = bench(tmp_path, str(tmp_path / "none.nmt"))
    assert done.returncode == 1 and "none.nmt: " in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_the_web_page_in_node(tmp_path: Path) -> None:
    made, folder = make_exported(tmp_path), tmp_path / "web"
    build = [sys.executable, str(SCRIPTS / "build_web"), "-o", str(folder), "--model", made.file]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    if shutil.which("node") is None or (done.returncode and "zig" in done.stderr):
        pytest.skip("needs node and zig")
    done = bench(tmp_path, made.file, "--web", str(folder))
    assert done.returncode == 0, done.stderr
    rows = {line.split(" | ")[0]: line.split(" | ")[-1] for line in done.stdout.splitlines() if line.startswith("| ")}
    assert rows["| web, web, greedy"] == rows["| engine, run.nmt, greedy"]  # BLEU
