"""nmt-translate: a line for a line, formats, files and pipes."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from nmt.cli import translate
from nmt.cli.lines import LiveLines, windows
from nmt.data import read_lines
from nmt.search.translator import Translator
from tests.conftest import HANGS
from tests.quick_python import quick_python
from tests.tiny_run import make_run

TEXT = "a b c\n\nd\r\n   \na b unknown\nlong@@ er"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_run(tmp_path_factory.mktemp("runs") / "run"))


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.en"
    path.write_bytes(TEXT.encode())
    return str(path)


def command(run: str, *options: str) -> list[str]:
    return [*quick_python(), "-m", "nmt.cli.translate", run, *options]


class StandardInput:
    """sys.stdin over bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)

    def isatty(self) -> bool:
        return False


def test_a_line_for_a_line(run: str, text: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert translate.main([run, "-i", text]) == 0
    out, err = capfdbinary.readouterr()
    lines = out.decode().split("\n")
    assert len(lines) == 7
    assert lines[6] == ""
    assert [bool(line) for line in lines[:6]] == [True, False, True, False, True, True]
    assert b"6 lines" in err
    assert b"2 empty" in err
    assert b"11.11% of the source tokens are not in the vocabulary" in err


def test_standard_input_and_gz_are_the_same(
    run: str, text: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "text.gz"
    packed.write_bytes(gzip.compress(TEXT.encode()))
    outputs = []
    for options in (["-i", text], ["-i", str(packed)], [], ["-i", "-"]):
        monkeypatch.setattr(sys, "stdin", StandardInput(TEXT.encode()))
        assert translate.main([run, *options]) == 0
        outputs.append(capfdbinary.readouterr().out)
    assert len({*outputs}) == 1


def test_nothing_in_nothing_out(run: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    (tmp_path / "none").touch()
    assert translate.main([run, "-i", str(tmp_path / "none")]) == 0
    assert capfdbinary.readouterr().out == b""


def test_n_best_text_has_n_lines_for_each(run: str, text: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert translate.main([run, "-i", text]) == 0
    best = capfdbinary.readouterr().out.decode().split("\n")[:-1]
    assert translate.main([run, "-i", text, "--n-best", "3"]) == 0
    lines = capfdbinary.readouterr().out.decode().split("\n")[:-1]
    assert len(lines) == 18
    assert lines[::3] == best
    assert lines[3:6] == ["", "", ""]


def test_more_translations_than_the_beam_holds_widen_it(
    run: str, text: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert translate.main([run, "-i", text, "--n-best", "5"]) == 0
    out, err = capfdbinary.readouterr()
    assert b"nmt-translate: --n-best 5 widens the beam from 3 to 5\n" in err
    assert b", beam 5, " in err
    assert translate.main([run, "-i", text, "--n-best", "5", "--beam-size", "5"]) == 0
    asked_for, err = capfdbinary.readouterr()
    assert out == asked_for
    assert b"widens" not in err


def test_moses(run: str, text: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert translate.main([run, "-i", text, "--n-best", "2", "--format", "moses"]) == 0
    rows = [line.split(" ||| ") for line in capfdbinary.readouterr().out.decode().splitlines()]
    assert {len(row) for row in rows} == {4}
    assert {int(row[0]) for row in rows} == {0, 1, 2, 3, 4, 5}
    assert [row for row in rows if row[0] == "1"] == [["1", "", "score= 0.000000", "0.000000"]]
    assert all(row[2] == f"score= {row[3]}" for row in rows)
    assert float(rows[0][3]) >= float(rows[1][3])


def test_jsonl(run: str, text: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert translate.main([run, "-i", text, "--n-best", "2", "--format", "jsonl"]) == 0
    records = [json.loads(line) for line in capfdbinary.readouterr().out.decode().splitlines()]
    assert [record["line"] for record in records] == list(range(6))
    assert [record["source"] for record in records] == ["a b c", "", "d", "   ", "a b unknown", "long@@ er"]
    assert records[1]["translations"] == [{"text": "", "score": 0.0}]
    first = records[0]["translations"]
    assert first[0]["score"] > first[1]["score"]


def test_options_reach_the_search(run: str, text: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    def best(*options: str) -> list[tuple[str, float]]:
        assert translate.main([run, "-i", text, "--format", "jsonl", *options]) == 0
        records = [json.loads(line)["translations"][0] for line in capfdbinary.readouterr().out.splitlines()]
        return [(record["text"], round(record["score"], 4)) for record in records]

    default = best()
    assert best("--batch-tokens", "1") == default
    assert best("--batch-tokens", "auto") == default
    assert best("--checkpoint", "10") == default
    assert best("--checkpoint", "last") != default
    assert best("--beam-size", "1") != default
    assert best("--length-penalty", "3") != default
    assert best("--precision", "fp32") != best("--precision", "int8")
    assert max(len(text.split()) for text, _ in best("--max-length-offset", "0", "--length-penalty", "9")) <= 4


def test_output_file_appears_when_complete(run: str, text: str, tmp_path: Path) -> None:
    target = tmp_path / "out.de"
    target.write_text("old\n")
    target.chmod(0o606)
    link = tmp_path / "link.de"
    link.symlink_to(target)
    assert translate.main([run, "-i", text, "-o", str(link)]) == 0
    assert link.is_symlink()
    assert target.read_text().count("\n") == 6
    assert target.stat().st_mode & 0o777 == 0o606
    Path(text).write_bytes(b"a\n\xff\n")
    before = target.read_bytes()
    assert translate.main([run, "-i", text, "-o", str(target)]) == 1
    assert target.read_bytes() == before
    assert translate.main([run, "-i", text, "-o", os.devnull]) == 1
    assert not Path(os.devnull).is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.de", "out.de", "text.en"]


def test_errors(run: str, text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def fails(code: int, *options: str) -> str:
        assert translate.main([run, *options]) == code
        return capfd.readouterr().err.splitlines()[-1]

    (tmp_path / "bad").write_bytes(b"good\nb\xe4d\n")
    assert "bad, line 2: not UTF-8 (byte 0xe4" in (line := fails(1, "-i", str(tmp_path / "bad")))
    assert line.endswith("; convert the file to UTF-8 (iconv -f WINDOWS-1252 -t UTF-8), or see --errors")
    assert "nowhere: no such file" in fails(1, "-i", str(tmp_path / "nowhere"))
    alias = tmp_path / "alias"
    alias.symlink_to(text)
    assert "is also the input" in fails(2, "-i", text, "-o", str(alias))
    os.link(text, tmp_path / "other name")
    assert "is also the input" in fails(2, "-i", text, "-o", str(tmp_path / "other name"))
    (tmp_path / "other name").unlink()
    assert Path(text).read_bytes() == TEXT.encode()
    assert "there is no directory" in fails(1, "-i", text, "-o", str(tmp_path / "x" / "y"))
    assert "is a directory" in fails(1, "-i", text, "-o", str(tmp_path))
    for written in (["-o", str(tmp_path / "o.gz")], ["-o", str(tmp_path / "o"), "--alignment", str(tmp_path / "o.gz")]):
        line = fails(2, "-i", text, *written)
        assert line == f"nmt-translate: {tmp_path / 'o.gz'}: output is not packed; leave out .gz"
        assert not list(tmp_path.glob("*o.*")) and not (tmp_path / "o").exists()
    assert "--n-best 4: search 'greedy' finds at most 1 per sentence" in fails(
        2, "-i", text, "--n-best", "4", "--search", "greedy", "--beam-size", "1"
    )
    assert "'0' is not a whole number from 1 to 10,000" in fails(2, "-i", text, "--beam-size", "0")
    assert "'nan' is not a number from 0 to 10" in fails(2, "-i", text, "--length-penalty", "nan")
    assert "step 7; existing: 10, 20" in fails(1, "-i", text, "--checkpoint", "7")
    assert translate.main([str(tmp_path / "gone"), "-i", text]) == 1
    assert capfd.readouterr().err.count("\n") == 1


def test_a_slow_pipe_is_answered_line_by_line(run: str) -> None:
    """Like somebody who types a sentence and waits for its translation."""
    process = subprocess.Popen(
        command(run), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for line in (b"a b\n", b"\n", b"c d\n"):
        process.stdin.write(line)
        answer = process.stdout.readline()
        assert answer.endswith(b"\n")
        assert bool(answer.strip()) == bool(line.strip())
    process.stdin.close()
    assert process.stdout.read() == b""
    assert process.wait(timeout=HANGS) == 0


def test_head_ends_it_quietly(run: str, tmp_path: Path) -> None:
    (tmp_path / "long").write_text("a b\n" * 20000)
    process = subprocess.Popen(
        command(run, "-i", str(tmp_path / "long"), "--beam-size", "1", "--max-length-offset", "0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read().decode()
    assert process.wait(timeout=HANGS) == 141
    assert "Error" not in errors
    assert "Traceback" not in errors
    process.stderr.close()


class TestLiveLines:
    """Reading a pipe without waiting for more than there is."""

    def test_lines_over_blocks(self) -> None:
        reading, writing = os.pipe()
        os.write(writing, b"one\ntw")
        lines = LiveLines(reading, "pipe")
        assert next(lines) == b"one\n"
        start = time.monotonic()
        assert not lines.arrives(0.05)
        assert time.monotonic() - start < 5
        os.write(writing, b"o\n\nthree")
        assert lines.arrives(1)
        os.close(writing)
        assert list(lines) == [b"two\n", b"\n", b"three"]
        assert lines.arrives(0)
        os.close(reading)

    def test_windows_hold_what_has_come(self) -> None:
        reading, writing = os.pipe()
        lines = LiveLines(reading, "pipe")
        found = windows(read_lines(lines), size=3, arrives=lines.arrives)  # type: ignore[arg-type]
        os.write(writing, b"1\n2\n")
        assert next(found) == ["1", "2"]
        os.write(writing, b"3\n4\n5\n6\n")
        assert next(found) == ["3", "4", "5"]
        assert next(found) == ["6"]
        os.close(writing)
        assert list(found) == []
        os.close(reading)


def test_a_gpu_without_enough_memory_is_one_line(
    run: str, text: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(translator: Translator, *sources: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nMore lines")

    monkeypatch.setattr(Translator, "search", search)
    assert translate.main([run, "-i", text]) == 1
    assert capfd.readouterr().err.splitlines()[-1] == "nmt-translate: out of GPU memory; smaller batches need less"
