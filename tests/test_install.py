"""A plain installation: the commands' configurations and tables come along, and need no checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nmt import __version__
from nmt.config.load import bundled_names
from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, installed from a copy of the sources as `pip install .` does; the copy is gone afterwards."""
    folder = tmp_path_factory.mktemp("install")
    checkout, target = folder / "checkout", folder / "site"
    checkout.mkdir()
    for name in ("nmt", "configs"):
        shutil.copytree(REPOSITORY / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, checkout / name)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--use-pep517"]
    done = subprocess.run([*pip, "--target", str(target), str(checkout)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(checkout)
    return target


def execute(installed: Path, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(installed),
        "PATH": f"{installed / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_a_bundled_configuration_is_found_from_any_directory(installed: Path, tmp_path: Path) -> None:
    done = execute(installed, "nmt-train", "--config", "wmt14_atr.yaml", "--dump-config", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "cell: atr" in done.stdout


def test_a_path_that_exists_wins_over_a_bundled_name(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "wmt14_atr.yaml").write_text(
        "run_dir: mine\ndata: {train: a}\ntraining: {max_steps: 1, batch_sentences: 2}\n"
    )
    done = execute(installed, "nmt-train", "--config", "wmt14_atr.yaml", "--dump-config", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "run_dir: mine" in done.stdout


def test_package_data_and_commands_are_installed(installed: Path) -> None:
    assert sorted(path.name for path in (installed / "nmt" / "configs").glob("*.yaml")) == bundled_names()
    assert {path.name for path in (installed / "nmt" / "data" / "demo").glob("*.tsv")} == {
        path.name for path in (REPOSITORY / "nmt" / "data" / "demo").glob("*.tsv")
    }
    for folder in ("nmt/report/pages", "nmt/serving/pages", "nmt/light/web"):
        pages = {path.name for path in (installed / folder).iterdir()}
        assert pages == {path.name for path in (REPOSITORY / folder).iterdir()}
    for pattern in ("*.c", "*.h"):
        kernels = {path.relative_to(REPOSITORY) for path in (REPOSITORY / "nmt").rglob(pattern)}
        assert kernels and {path.relative_to(installed) for path in (installed / "nmt").rglob(pattern)} == kernels
    assert (installed / f"nmt_recurrent-{__version__}.dist-info").is_dir()
    commands = {path.name for path in (installed / "bin").glob("nmt-*")}
    names = "train translate eval score average check plot shortlist convert data export distill backtranslate serve"
    names += " classify compare confidence rank report sample tag"
    assert commands == {f"nmt-{name}" for name in names.split()} and (installed / "bin" / "nmt").is_file()
