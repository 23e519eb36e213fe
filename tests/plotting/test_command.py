"""nmt-plot: pictures from logs alone, and one line for what is wrong."""

from __future__ import annotations

import sys

import pytest

from nmt.plotting.command import main
from tests.plotting.logs import events, train, write_run


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "a", events())


def refused(capsys, code, *arguments):
    """The one line of an error."""
    assert main([str(argument) for argument in arguments]) == code
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err.removeprefix("nmt-plot: ").strip()


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture_of_logs_alone(run, tmp_path, capsys, ending):
    pytest.importorskip("matplotlib", reason="matplotlib, of nmt-recurrent[plot], is not installed")
    write_run(tmp_path / "b", [train(50)])
    picture = tmp_path / f"curves.{ending}"
    picture.write_text("of yesterday")
    arguments = [str(run), str(tmp_path / "b" / "log.jsonl"), "-o", str(picture), "--axis", "epochs"]
    assert main([*arguments, "--labels", "first one", "2"]) == 0
    out, err = capsys.readouterr()
    assert out == "" and err == f"nmt-plot: {tmp_path}/b/log.jsonl: has no bleu, chrf\n"
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG") if ending == "png" else b">first one</text>" in content
    assert main([*arguments, "--labels", "first one", "2"]) == 0 and picture.read_bytes() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", picture.name], "nothing else is written"


def test_chosen_panels(run, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib, of nmt-recurrent[plot], is not installed")
    assert main([str(run), "-o", str(tmp_path / "x.svg"), "--panels", "bleu, objective"]) == 0
    shown = (tmp_path / "x.svg").read_text(encoding="utf-8")
    assert all(f">{title}</text>" in shown for title in ("BLEU", "objective")) and ">Loss</text>" not in shown


def test_mistakes(run, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib, of nmt-recurrent[plot], is not installed")
    picture = tmp_path / "x.png"
    assert refused(capsys, 2, run, "-o", "x.jpg").startswith("x.jpg: ends in none of .png, .svg, .pdf")
    assert refused(capsys, 2, run, "-o", picture, "--panels", "bleuu").startswith(
        "--panels: 'bleuu' is in no log. Did you mean 'bleu'? Allowed: loss, "
    )
    assert refused(capsys, 1, tmp_path / "none", "-o", picture).startswith(f"{tmp_path}/none: no such file; give a run")
    assert refused(capsys, 1, run, "-o", tmp_path / "none" / "x.png").endswith(f"there is no directory {tmp_path}/none")
    wanted = "--labels: 2 labels for 1 run; give one for each"
    assert refused(capsys, 2, run, "-o", picture, "--labels", "a", "b") == wanted
    inside = run / "checkpoints" / "x.png"
    assert "is a part of the model" in refused(capsys, 1, run, "-o", inside)
    write_run(run, [])
    assert refused(capsys, 1, run, "-o", picture) == f"{run}/log.jsonl: nothing to draw over updates"
    assert not picture.exists()


def test_without_matplotlib_the_command_that_installs_it_is_named(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = refused(capsys, 1, run, "-o", tmp_path / "x.png")
    assert said == "matplotlib is not installed; pip install 'nmt-recurrent[plot]'"
