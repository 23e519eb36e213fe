"""docs/examples: notebooks and programs run, with a small model, and the page names them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.docs.notebooks import program_of
from tests.quick_python import quick_python
from tests.tiny_run import make_run
from tests.tiny_training import write_config, write_corpus

FOLDER = REPOSITORY / "docs/examples"
PAGE = (REPOSITORY / "docs/examples.md").read_text(encoding="utf-8")


def execute(name: str, *arguments: str, cwd: Path) -> str:
    """What an example prints."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "CUDA_VISIBLE_DEVICES": ""}
    command = [*quick_python(), name, *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    write_corpus(folder)
    tokenizer = {"tokenizer": "sentencepiece", "tokenizer_options": {"vocab_size": 320}}
    write_config(folder, data=tokenizer, model={"cell": "lrn"}, training={"max_steps": 2, "validate_every": 2})
    return folder


def test_a_model_is_trained_and_looked_into(folder: Path) -> None:
    changes = {
        'CONFIG = "demo.yaml"': 'CONFIG = "tiny.yaml"',
        'TEXT = "The teacher sells two new bicycles."': 'TEXT = "bi da"',
    }
    (folder / "look.py").write_text(program_of(FOLDER / "look_inside.ipynb", changes), encoding="utf-8")
    said = execute(str(folder / "look.py"), cwd=folder)
    assert "training.max_steps = 2 is reached" in said
    assert re.search(r"^encoder\.0\.forward lrn \{'i': 0\.\d+, 'f': 0\.\d+\}$", said, flags=re.M)
    assert len(re.findall(r"^ *-?[\d.]+  ", said, flags=re.M)) == 6
    assert re.search(r"^<eos> +-[\d.]+ +[\d.]+  \S+$", said, flags=re.M)


@pytest.mark.slow
def test_a_unit_of_ones_own_is_compared(folder: Path) -> None:
    changes = {'CONFIG = "demo.yaml"': 'CONFIG = "tiny.yaml"', "MINUTES = 1.5": "MINUTES = 1"}
    (folder / "unit.py").write_text(program_of(FOLDER / "own_unit.ipynb", changes), encoding="utf-8")
    said = execute(str(folder / "unit.py"), cwd=folder)
    assert (folder / "leaky.py").read_text() == (FOLDER / "leaky.py").read_text()
    table = said[said.rindex("system ") :]
    assert all(re.search(rf"^cell={name} .* 2 ", table, flags=re.M) for name in ("gru", "leaky", "lrn"))
    assert "dev bleu" in table


def test_a_server_is_measured(folder: Path) -> None:
    run = make_run(folder / "served", sentencepiece=True)
    said = execute(
        str(FOLDER / "serve_and_measure.py"), str(run), "dev.en", "--clients", "2", "--requests", "6", cwd=folder
    )
    assert re.search(r"[\d.]+ sentences a second with 2 clients; a sentence took [\d.]+ ms \(median\)", said)


def test_the_page_names_all_of_them_and_shows_how_to_start_them() -> None:
    files = {path.name for path in FOLDER.iterdir() if path.is_file()}
    assert set(re.findall(r"\(examples/(\w+\.\w+)\)", PAGE)) == files
    assert re.findall(r"^python docs/examples/(\w+\.py)", PAGE, flags=re.M) == ["serve_and_measure.py"]


def test_the_unit_is_that_of_the_page_of_units() -> None:
    code = (FOLDER / "leaky.py").read_text(encoding="utf-8")
    page = (REPOSITORY / "docs/units.md").read_text(encoding="utf-8")
    assert code[code.index("import torch") :] in page
