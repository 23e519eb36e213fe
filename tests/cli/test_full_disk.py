"""Commands that write a model where the disk is full: one line that names it, and nothing half written is left."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.console import call, entry_points
from tests.quick_python import quick_python
from tests.tiny_run import make_run

REPOSITORY = Path(__file__).parents[2]
LIMITED = """
import importlib, json, resource, sys
sys.dont_write_bytecode = True  # a cached module that the limit cuts off would be found by the next process
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
for module, limit, arguments in json.loads(sys.argv[1]):
    main = importlib.import_module(module).main
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    assert main(arguments) == 1
"""
"""A limit on the size of files stands for a full disk."""


def test_a_full_disk_is_one_line_that_names_the_output(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    config = (run / "config.yaml").stat().st_size
    outputs = [("export", "ex"), ("average", "mean"), ("convert", "zero.npz")]
    options = {"export": [str(run)], "average": [str(run), "--last", "1"], "convert": ["to-zero", str(run)]}
    modules = {name: entry_points()[f"nmt-{name}"][0].__name__ for name in options}
    calls = [
        (modules[module], limit, [*options[module], "-o", str(tmp_path / output)])
        for limit in (10, config + 100)  # fails at the first file, and at a later one
        for module, output in outputs
    ]
    command = [*quick_python(), "-c", LIMITED, json.dumps(calls)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    first = [f"nmt-{module}: {tmp_path / output}: File too large" for module, output in outputs]
    first[0] = f"nmt-export: {tmp_path / 'ex' / 'config.yaml'}: cannot be written (File too large)"
    later = [f"nmt-{module}: {tmp_path / output}: File too large" for module, output in outputs]
    assert done.stderr.splitlines() == [*first, *later]
    assert list(tmp_path.iterdir()) == [run]


def test_a_directory_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run")
    output = tmp_path / "none" / "zero.npz"
    assert call("nmt-convert", "to-zero", str(run), "-o", str(output)) == 1
    assert capsys.readouterr().err == f"nmt-convert: {output}: there is no directory {output.parent}\n"
