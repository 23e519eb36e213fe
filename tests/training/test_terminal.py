"""Training on a terminal: lines wrapped at words, the bar with the remaining time, nothing left behind."""

from __future__ import annotations

import termios
from pathlib import Path

import pytest

from nmt.system import columns, wrapped
from nmt.training import logs
from nmt.training.logs import ProgressBar, RunLog, shortened
from nmt.training.state import Interval, Outlook
from tests.screen import COLUMNS, screen_as_stderr
from tests.tiny_training import events, nmt_train, write_config, write_corpus


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a corpus."""
    write_corpus(tmp_path)
    return tmp_path


def interval() -> Interval:
    return Interval(updates=2, nll=30.0, target_tokens=10, seconds=2.0)


@pytest.mark.parametrize(
    ("line", "width", "rows"),
    [
        ("short", 5, ["short"]),
        ("12:00 one two three", 12, ["12:00 one", "  two three"]),
        ("12:00   loss 1.5  ppl 4.48", 18, ["12:00   loss 1.5", "  ppl 4.48"]),
        ("go to /a/very/long/path now", 10, ["go to", "  /a/very/long/path", "  now"]),
        ("eine für längere Zeit", 12, ["eine für", "  längere", "  Zeit"]),
        ("漢字 漢字 漢字", 9, ["漢字 漢字", "  漢字"]),
    ],
)
def test_lines_are_wrapped_at_words(line: str, width: int, rows: list[str]) -> None:
    assert wrapped(line, width).split("\n") == rows


def test_of_figures_as_much_is_shown_as_fits() -> None:
    assert shortened("update 5  loss 1.25  ppl 3.49", 20) == "update 5  loss 1.25"
    assert shortened("update 5  loss 1.25", 19) == "update 5  loss 1.25"
    assert shortened("update 5  loss 1.25", 3) == "update 5"


def test_only_a_terminal_has_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_as_stderr(monkeypatch)
    assert columns(screen.stream) == COLUMNS
    with (tmp_path / "file").open("w") as file:
        assert columns(file) is None
    screen.stream.close()
    assert columns(screen.stream) is None


def test_a_terminal_gets_wrapped_lines_and_the_file_whole_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_as_stderr(monkeypatch)
    log = RunLog(tmp_path)
    log.say("  " + " ".join(["word"] * 30))
    log.say("update 7" + "  figure 1.25" * 20, figures=True)
    log.close()
    rows = [row for row in screen.rows() if row]
    assert all(len(row) <= COLUMNS for row in rows) and len(rows) == 4
    assert rows[0][8:16] == "   word " and [row[:14] for row in rows[1:3]] == [" " * 13 + "w"] * 2
    assert rows[3].endswith("figure 1.25")
    assert [len(line) for line in (tmp_path / "train.log").read_text().splitlines()] == [20 + 151, 20 + 8 + 260]


def test_details_come_once_a_minute_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_as_stderr(monkeypatch)
    now = [1000.0]
    monkeypatch.setattr(logs.time, "monotonic", lambda: now[0])
    log = RunLog(tmp_path)
    for number in range(5):
        log.say_details([f"sample {number}"])
        now[0] += 25
    log.close()
    shown = [row[9:] for row in screen.rows() if row]
    assert shown[0] == "sample 0" and shown[-1] == "sample 3" and len(shown) == 4
    assert "samples: every 60 s at most here; all are in train.log and" in shown[1]
    assert len((tmp_path / "train.log").read_text().splitlines()) == 5


def test_without_a_terminal_all_details_come(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = RunLog(tmp_path)
    for number in range(3):
        log.say_details([f"sample {number}", "word " * 40])
    log.close()
    assert len(capsys.readouterr().err.splitlines()) == 6


@pytest.mark.parametrize(
    ("outlook", "wanted"),
    [
        (Outlook(720.0, 0.25, 20_000), ["update 5,000/20,000 ", "25%  loss 3.000  12 min left  5 tok/s"]),
        (Outlook(40.0, 0.9, None), ["update 5,000 ", "90%  loss 3.000  40 s left  5 tok/s"]),
        (Outlook(None, None, None), ["update 5,000  loss 3.000  5 tok/s", ""]),
    ],
)
def test_the_bar_has_the_updates_and_the_time_that_is_left(
    outlook: Outlook, wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = screen_as_stderr(monkeypatch)
    bar = ProgressBar()
    assert bar.is_due()
    bar.show(5000, interval(), outlook)
    assert not bar.is_due()
    text = screen.text().split("\r")[-1].rstrip()
    assert text.startswith(wanted[0]) and text.endswith(wanted[1]) and len(text) < COLUMNS
    assert ("█" in text) == (outlook.share is not None)


def test_a_narrow_terminal_gets_less(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_as_stderr(monkeypatch)
    termios.tcsetwinsize(screen.stream.fileno(), (24, 40))
    bar = ProgressBar()
    bar.show(5000, interval(), Outlook(720.0, 0.25, 20_000))
    text = screen.text().split("\r")[-1].rstrip()
    assert text.startswith("update 5,000/20,000 ") and text.endswith("25%") and len(text) < 40


def test_other_work_is_shown_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_as_stderr(monkeypatch)
    monkeypatch.setattr(logs, "INTERVAL", 0.0)
    bar = ProgressBar()
    advance = bar.task("validating update 5", 200, unit="lines")
    advance(30)
    advance(20)
    bar.close()
    pieces = [piece.rstrip() for piece in screen.text().split("\r")]
    assert "validating update 5" in pieces
    assert any(piece.startswith("validating update 5 ██") and piece.endswith("50 of 200 lines") for piece in pieces)


def test_nothing_is_left_of_a_closed_bar_and_nothing_comes_after(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_as_stderr(monkeypatch)
    bar = ProgressBar()
    bar.show(1, interval(), Outlook(None, 0.5, 2))
    bar.close()
    bar.show(2, interval(), Outlook(None, 1.0, 2))
    assert not bar.is_due() and screen.rows() == [""]


def test_without_a_terminal_there_is_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar()
    assert not bar.is_due()
    bar.task("validating", 3, unit="lines")(1)
    bar.close()
    assert capsys.readouterr().err == ""


def test_a_training_and_its_resumption_leave_lines_that_fit_and_no_bar(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = screen_as_stderr(monkeypatch)
    monkeypatch.setattr(logs, "INTERVAL", 0.0)
    config = write_config(folder)
    assert nmt_train(config) == 0
    assert nmt_train(config, "--set", "training.max_steps=18") == 0
    rows = screen.rows()
    assert events(folder / "run", kinds=("validation",))[-1]["step"] == 18
    assert all(len(row) <= COLUMNS or str(folder) in row for row in rows)
    assert not any("█" in row or "tok/s" in row for row in rows), "a bar was left"
    assert sum(row[8:].startswith(" update 18 ") for row in rows) == 1
    assert sum("source      " in row for row in rows) == 2, "a block of samples of each process"
