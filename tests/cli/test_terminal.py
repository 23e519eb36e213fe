"""nmt-translate on a terminal: a bar that leaves nothing behind, and a prompt for whoever types."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from nmt.cli import translate
from nmt.cli.lines import LinesBar, line_count
from nmt.errors import DataError
from nmt.evaluating import command as evaluate
from nmt.synthetic import corpus, distill
from nmt.synthetic.corpus import Writer
from tests.conftest import HANGS
from tests.terminal import COLUMNS, Terminal, terminal
from tests.tiny_run import make_run

FAST = ("--beam-size", "1", "--max-length-offset", "40", "--device", "cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("runs")
    name = str(make_run(folder / "run"))
    (folder / "text").write_text("a b\n")
    # Kernels that are compiled at their first use show that on a terminal, too.
    assert translate.main([name, "-i", str(folder / "text"), "-o", str(folder / "out"), *FAST]) == 0
    return name


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.en"
    path.write_text("a b c\n\nd\n" * 20)
    return str(path)


@contextmanager
def standard_error() -> Iterator[Terminal]:
    """A terminal that standard error is, in the block."""
    with terminal() as opened, open(os.dup(opened.descriptor), "w") as stream, redirect_stderr(stream):
        yield opened


def left(shown: str) -> list[str]:
    """The lines that stay on the screen, where a carriage return begins a line anew."""
    lines = []
    for line in shown.replace("\r\n", "\n").split("\n"):
        cells = ""
        for part in line.split("\r"):
            cells = part + cells[len(part) :]
        lines.append(cells.rstrip())
    return lines


def test_a_bar_is_shown_and_leaves_nothing_behind(run: str, text: str, tmp_path: Path) -> None:
    with standard_error() as screen:
        assert translate.main([run, "-i", text, "-o", str(tmp_path / "out"), *FAST]) == 0
        shown = screen.rest()
        assert "translating:   0%|" in shown and "| 0/60 [00:00<?, ? lines/s]" in shown
        assert all(len(part) <= COLUMNS for part in re.split("[\r\n]", shown) if part.startswith("translating"))
    lines = left(shown)
    said = [line.split(" in ")[0] for line in lines if line.startswith("nmt-translate:")]
    assert len(said) == 2 and said[1] == "nmt-translate: 60 lines"
    assert all(line.startswith(("nmt-translate:", "  ")) for line in lines[:-1]) and lines[-1] == ""
    assert all(len(line) <= COLUMNS for line in lines if "/" not in line), "lines are wrapped, but for paths"


def test_distillation_shows_the_bar_from_where_it_goes_on(
    run: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "WINDOW", 20)
    arguments = [run, "--source", text, "-o", str(tmp_path / "made"), *FAST]

    append, calls = Writer.append, iter(range(9))

    def stops_at_the_third(*given: Any, **options: Any) -> None:
        if next(calls) == 2:
            raise DataError("full")
        append(*given, **options)

    with monkeypatch.context() as context:
        context.setattr(Writer, "append", stops_at_the_third)
        assert distill.main(arguments) == 1
    with standard_error() as screen:
        assert distill.main(arguments) == 0
        shown = screen.rest()
    assert "translating:  67%|" in shown and "| 40/60 [00:00<?, ? lines/s]" in shown
    assert "translating:   0%|" not in shown
    parts = re.split("[\r\n]", shown)
    assert all(len(part) <= COLUMNS for part in parts if part.startswith(("translating", "nmt-distill")))
    said = [part for part in parts if part.startswith("nmt-distill:")]
    assert said[1] == "nmt-distill: resumes after 40 of 60 lines" and said[2].startswith("nmt-distill: 20 lines in ")


def test_an_error_is_a_line_of_its_own_below_the_bar(run: str, tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"a\n\xff\n")
    with standard_error() as screen:
        assert translate.main([run, "-i", str(tmp_path / "bad"), "-o", str(tmp_path / "out"), *FAST]) == 1
        shown = screen.rest()
    assert "| 0/2 [" in shown
    *_, error, end = left(shown)
    assert error.startswith(f"nmt-translate: {tmp_path / 'bad'}, line 2: not UTF-8 ") and end == ""


def test_no_bar_among_translations_nor_in_a_file(run: str, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    with standard_error() as screen, open(os.dup(screen.descriptor), "w") as stream, redirect_stdout(stream):
        assert translate.main([run, "-i", text, *FAST]) == 0
        shown = screen.rest()
    assert "translating" not in shown
    lines = left(shown)
    begin, end = (place for place, line in enumerate(lines) if line.startswith("nmt-translate:"))
    assert len([line for line in lines[begin + 1 : end] if not line.startswith("  ")]) == 60
    assert translate.main([run, "-i", text, *FAST]) == 0
    said = capfd.readouterr()
    assert "translating" not in said.err and said.out.count("\n") == 60


def test_quiet_says_nothing_but_what_is_odd(run: str, text: str, tmp_path: Path) -> None:
    with standard_error() as screen:
        options = ["-o", str(tmp_path / "out"), "--quiet"]
        Path(text).write_text("\n" * 3)
        assert translate.main([run, "-i", text, *FAST, *options]) == 0
        assert screen.rest() == ""
        Path(text).write_bytes(b"\n\xff\n")
        assert translate.main([run, "-i", text, *FAST, *options, "--errors", "empty"]) == 0
        *summary, end = left(screen.rest())
    assert summary[0].startswith("nmt-translate: 2 lines in ") and end == ""
    assert " ".join(line.strip() for line in summary).endswith("1 line not UTF-8, read as empty: 2")


def test_lines_are_counted_where_that_is_possible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for content, count in ((b"", 0), (b"a", 1), (b"a\n", 1), (b"a\n\nb", 3), (b"\n" * (1 << 20) + b"x", (1 << 20) + 1)):
        (tmp_path / "text").write_bytes(content)
        assert line_count(str(tmp_path / "text")) == count
    (tmp_path / "text").write_bytes(b"one\ntwo\nthree\n")
    with (tmp_path / "text").open() as stream:
        os.lseek(stream.fileno(), 4, os.SEEK_SET)
        monkeypatch.setattr(sys, "stdin", stream)
        assert line_count(None) == 2
        assert stream.read() == "two\nthree\n"
    os.mkfifo(tmp_path / "pipe")
    assert [line_count(str(tmp_path / name)) for name in ("pipe", "gone", "text.gz")] == [None] * 3


def test_the_bar_counts_lines_not_parts_of_them() -> None:
    places = []
    with standard_error(), LinesBar(100, shown=True) as bar:
        bar.window(60)
        for sentences in (30, 30, 40):  # 100 parts of 60 lines
            bar.batch(sentences)
            places.append(bar._bar.n)
        bar.window(40)
        bar.batch(40)
        places.append(bar._bar.n)
    assert places == [0, 30, 60, 60]


def test_bars_of_several_processes_count_all_their_lines() -> None:
    with standard_error() as screen:
        with LinesBar(None, shown=True, processes=4) as bar:
            bar.window(80)
            bar.batch(10)
            bar.batch(10)
            assert bar._bar.n == 40
        assert "translating: 0 lines [00:00, ? lines/s]" in screen.rest()


@pytest.fixture
def typing(run: str) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    """A person's terminal with nmt-translate at its prompt."""
    with terminal() as opened:
        end = opened.descriptor
        command = [sys.executable, "-m", "nmt.cli.translate", run, *FAST]
        environment = {**os.environ, "TERM": "dumb", "INPUTRC": os.devnull}
        with subprocess.Popen(
            command, stdin=end, stdout=end, stderr=end, env=environment, start_new_session=True, preexec_fn=_controlling
        ) as process:
            try:
                assert "Ctrl-D ends\r\n" in opened.wait_for("en> ")
                yield opened, process
            finally:
                process.kill()  # whatever a test has found


def _controlling() -> None:
    """Make standard input the terminal that Ctrl-C comes from."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_prompt_with_editing_and_history(
    run: str, typing: tuple[Terminal, subprocess.Popen[bytes]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("a b\nd\n")
    assert translate.main([run, "-i", str(tmp_path / "text"), *FAST]) == 0
    answers = capfd.readouterr().out.splitlines()
    screen, process = typing
    screen.type("a x\x7fb\n")  # with a letter taken back
    screen.wait_for(f"\r\n{answers[0]}\r\nen> ")
    screen.type("half a line")
    screen.wait_for("line")  # an interrupt throws away what has not been read
    screen.interrupt(process.pid)
    screen.wait_for("\r\nen> ")
    screen.type("d\n")
    screen.wait_for(f"\r\n{answers[1]}\r\nen> ")
    screen.type("\x10\x10\n")  # Ctrl-P twice: what was discarded is not in the history
    screen.wait_for(f"\r\n{answers[0]}\r\nen> ")
    screen.type("\n")
    screen.wait_for("\r\n\r\nen> ")
    screen.type("\x04")
    assert process.wait(timeout=HANGS) == 0
    assert "Error" not in screen.rest()


def test_an_interrupt_at_an_empty_prompt_ends_it(typing: tuple[Terminal, subprocess.Popen[bytes]]) -> None:
    screen, process = typing
    screen.interrupt(process.pid)
    assert process.wait(timeout=HANGS) == 130
    assert screen.rest().splitlines()[-1] == "nmt-translate: interrupted"


def test_evaluation_shows_a_bar_while_it_translates(run: str, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    with standard_error() as screen:
        assert evaluate.main([run, "--source", text, "--ref", text, "--metrics", "chrf", *FAST]) == 0
        shown = screen.rest()
    assert "| 0/60 [" in shown and left(shown)[0].startswith("nmt-eval: 60 lines in ")
    assert capfd.readouterr().out.splitlines()[1].startswith("chrF2 ")


def test_the_echo_of_an_interrupt_goes_with_the_bar() -> None:
    with standard_error() as screen:
        with LinesBar(None, shown=True):
            os.write(screen.descriptor, b"^C")
        assert left(screen.rest()) == [""]
