"""The model that comes with nmt: every way to a model knows their names, and README's first lines run as they stand."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import nmt
from nmt import __version__
from nmt.light import EngineError, Translator, pretrained
from tests.compiled import needed_engine
from tests.conftest import REPOSITORY
from tests.console import call
from tests.serving.server_process import ServerProcess, started

FOLDER = REPOSITORY / "nmt/pretrained"
NAMES = ("de-en", "en-de")
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def engine() -> Path:
    return needed_engine()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "wanted"), [("en-de", "I am tired.", "Ich bin müde."), ("de-en", "Ich bin müde.", "I'm tired.")]
)
def test_python_and_commands_know_the_names(
    name: str, text: str, wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: Path
) -> None:
    with nmt.load(name) as translator:
        assert str(translator.translate(text)) == wanted
        assert (translator.source_language, translator.target_language) == tuple(name.split("-"))
    with Translator(name, library=engine) as light:
        assert light.translate(text).text == wanted
    (tmp_path / "text").write_text(f"{text}\n\n{text}\n", encoding="utf-8")
    (tmp_path / "wanted").write_text(f"{wanted}\n\n{wanted}\n", encoding="utf-8")
    assert call("nmt-translate", name, "-i", "text", "-o", "out", "-q") == 0
    assert (tmp_path / "out").read_text(encoding="utf-8") == f"{wanted}\n\n{wanted}\n"
    assert call("nmt-eval", name, "--source", "text", "--ref", "wanted") == 0
    capsys.readouterr()
    assert call("nmt-check", name) == 0
    assert f"{name.replace('-', ' to ')}" in capsys.readouterr().out


def test_a_server_knows_the_names() -> None:
    import httpx

    with started("en-de") as server:
        found = httpx.post(f"{server.base}/translate", json={"text": "I am tired."}).json()
        assert found["translations"][0]["text"] == "Ich bin müde."
        assert httpx.get(f"{server.base}/health").json()["model"] == "en-de"
    assert any("serving en-de on" in line for line in server.said)


def test_a_path_of_that_name_comes_first(tmp_path: Path, engine: Path) -> None:
    (tmp_path / "en-de").write_bytes(b"other")
    with pytest.raises(nmt.CheckpointError, match="^en-de: is not a directory; give a run"):
        nmt.load("en-de")
    with pytest.raises(EngineError, match="^en-de: .*not a model"):
        Translator("en-de", library=engine)
    (tmp_path / "en-de").unlink()
    (tmp_path / "en-de").mkdir()
    with pytest.raises(nmt.CheckpointError, match="^en-de: not a model"):
        nmt.load("en-de")


def test_an_unknown_name_lists_the_known_ones(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, engine: Path
) -> None:
    with pytest.raises(nmt.CheckpointError, match=r"^en-fr: no such directory; .*; models by name: de-en, en-de$"):
        nmt.load("en-fr")
    assert call("nmt-translate", "en-fr") == 1
    assert capsys.readouterr().err.rstrip().endswith("models by name: de-en, en-de")
    with pytest.raises(EngineError, match=r"^en-fr: no such file; models by name: de-en, en-de$"):
        Translator("en-fr", library=engine)
    with pytest.raises(EngineError, match="model.nmt"):
        Translator("folder/model.nmt", library=engine)


def test_what_trains_needs_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("nmt-export", "en-de", "-o", "out.nmt") == 1
    assert "en-de: is one file for the engine, accepted only by" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_files_are_small_and_say_what_they_are(name: str, engine: Path) -> None:
    assert pretrained.names() == NAMES
    assert (FOLDER / f"{name}.nmt").stat().st_size <= 5_000_000
    with Translator(name, library=engine) as translator:
        card = translator.card["card"]
    page = (REPOSITORY / "docs/pretrained.md").read_text(encoding="utf-8")
    for said in ("https://tatoeba.org", "https://creativecommons.org/licenses/by/2.0/fr/", "159,876 pairs"):
        assert said in card and said in page
    assert "short everyday sentences" in card and "not for" in card and "It is not for" in " ".join(card.split())
    bleu, chrf = re.findall(r"BLEU (\d+\.\d+), chrF2 (\d+\.\d+)", card)[0]
    size = (FOLDER / f"{name}.nmt").stat().st_size
    assert re.search(rf"^\| `{name}` \| \w+, \w+ \| {bleu} \| {chrf} \| {size / 1e6:.1f} MB \|$", page, re.M)


def test_first_lines_of_the_readme_run_where_only_the_wheel_is(tmp_path: Path) -> None:
    """In a new environment, elsewhere: the three lines of Python, and those of the shell."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    source, environment = tmp_path / "source", tmp_path / "environment"
    source.mkdir()
    for name in ("nmt", "configs"):
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "-w", str(tmp_path / "dist")]
    subprocess.run([*pip, "wheel", *options, str(source)], check=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert wheel.name.startswith(f"nmt_recurrent-{__version__}-") and wheel.stat().st_size <= 15_000_000
    with zipfile.ZipFile(wheel) as archive:
        assert {f"nmt/pretrained/{name}.nmt" for name in NAMES} <= {*archive.namelist()}
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    packages = next((environment / "lib").glob("python*/site-packages"))
    own = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "tests.pth").write_text("\n".join(own) + "\n")
    install = ["--python", str(environment / "bin/python"), "install", "--no-deps", "--no-index", "--ignore-installed"]
    subprocess.run([*pip[:3], *install, "--quiet", str(wheel)], check=True)
    inside = {**os.environ, "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    inside.pop("PYTHONPATH", None)
    python, shell = re.findall(r"^```(?:python)?\n(.*?)^```$", README, flags=re.M | re.S)[1:3]
    assert python.count("\n") <= 4 and shell.count("\n") == 3
    place = tmp_path / "place"
    place.mkdir()

    def said(command: list[str]) -> str:
        return subprocess.run(command, cwd=place, env=inside, capture_output=True, text=True, check=True).stdout

    program = [str(environment / "bin/python"), "-c"]
    assert Path(said([*program, "import nmt; print(nmt.__file__)"]).strip()).is_relative_to(environment)
    assert len(said([*program, python]).splitlines()) == 1
    *pipes, serve = shell.splitlines()
    counts = [len(said(["bash", "-c", line]).splitlines()) for line in pipes]
    assert counts == [1, 3]
    command, name = shlex.split(serve)
    process = subprocess.Popen(
        [str(environment / "bin" / command), name, "--port", "0"],
        cwd=place,
        env=inside,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        ServerProcess(process).wait_for("serving en-de on (http)")
    finally:
        process.kill()
        process.wait()
