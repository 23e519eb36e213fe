"""docs/plotting.md is true: its commands and its Python run, and make pictures like those it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from nmt.plotting.command import main
from tests.conftest import REPOSITORY
from tests.plotting.logs import events, write_run
from tests.tiny_run import make_run

pytest.importorskip("matplotlib", reason="matplotlib, of nmt-recurrent[plot], is not installed")

GUIDE = (REPOSITORY / "docs/plotting.md").read_text(encoding="utf-8")
COMMANDS = [
    block.replace("\\\n", " ") for block in re.findall(r"^```\n(nmt-plot (?!live ).*?)^```$", GUIDE, flags=re.M | re.S)
]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs that it names, in small."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    make_run(Path("runs/multi30k"))
    write_run(Path("runs/multi30k"), events())
    write_run(Path("runs/multi30k_lrn"), events())


@pytest.mark.parametrize("command", COMMANDS, ids=["curves", "attention", "memory"])
def test_commands(command: str, runs: None, capsys: pytest.CaptureFixture[str]) -> None:
    _, *arguments = shlex.split(command)
    assert main(arguments) == 0
    assert capsys.readouterr() == ("", "")
    (picture,) = Path().glob("*.svg")
    assert f"({picture.name})" in GUIDE
    shown, drawn = [path.read_text(encoding="utf-8") for path in (REPOSITORY / "docs" / picture.name, picture)]
    titles = [title for title in ("Loss", "BLEU", "multi30k_lrn.yaml", "source →", "remembers →") if title in shown]
    assert titles == [title for title in titles if f">{title}</text>" in drawn] and titles


def test_python(runs: None) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", GUIDE, flags=re.M | re.S)
    exec(code, {})
    assert Path("curves.pdf").read_bytes().startswith(b"%PDF")
