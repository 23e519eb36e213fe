"""Text made to do harm: translated line for line, or refused in one line, with bounded memory."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmt.cli import translate
from nmt.cli.lines import LiveLines
from nmt.data import read_lines, text
from nmt.errors import DataError
from nmt.evaluating import command as evaluate
from nmt.scoring import command as score
from tests.conftest import REPOSITORY
from tests.robustness.odd_text import ODD_LINES, random_lines
from tests.tiny_run import make_run

FAST = ("--beam-size", "1", "--max-length-offset", "0", "--device", "cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_run(tmp_path_factory.mktemp("robust") / "run", steps=(10,), best=(10,)))


def translated(run: str, content: bytes, folder: Path, capfd: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    (folder / "text").write_bytes(content)
    capfd.readouterr()
    assert translate.main([run, "-i", str(folder / "text"), "--format", "jsonl", *FAST]) == 0
    return [json.loads(line) for line in capfd.readouterr().out.split("\n")[:-1]]


def check_lines(run: str, lines: list[str], folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is dropped or reordered, and a line's translation depends on that line alone."""
    content = "".join(f"{line}\n" for line in lines).encode()
    expected = [line.removesuffix("\r") for line in lines]
    found = translated(run, content, folder, capfd)
    assert [record["line"] for record in found] == list(range(len(lines)))
    assert [record["source"] for record in found] == expected
    turned = translated(run, "".join(f"{line}\n" for line in reversed(lines)).encode(), folder, capfd)
    texts = [[hypothesis["text"] for hypothesis in record["translations"]] for record in found]  # type: ignore[attr-defined]
    assert [[h["text"] for h in record["translations"]] for record in reversed(turned)] == texts  # type: ignore[attr-defined]
    assert translate.main([run, "-i", str(folder / "text"), *FAST]) == 0
    assert capfd.readouterr().out.count("\n") == len(lines)


def test_odd_lines(run: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check_lines(run, ODD_LINES, tmp_path, capfd)


def test_500_random_lines(run: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check_lines(run, random_lines(500, seed=1), tmp_path, capfd)


@pytest.mark.slow
def test_10000_random_lines(run: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check_lines(run, random_lines(10_000, seed=2), tmp_path, capfd)


def test_mixed_line_ends(run: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = translated(run, b"a\r\nb\rc\n\r\nd\r\r\na", tmp_path, capfd)
    assert [record["source"] for record in found] == ["a", "b\rc", "", "d\r", "a"]


def test_a_line_of_10_mb(run: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    long = "x" * 10_000_000
    assert [record["source"] for record in translated(run, f"a\n{long}\nb\n".encode(), tmp_path, capfd)] == [
        "a", long, "b",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "content", [b"a\n\xed\xa0\x80\n", b"a\n\xff\xfea\x00\n", b"a\n\xc0\xaf\n", b"a\n\xf4\x90\x80\x80\n"]
)
def test_bytes_that_are_no_text(run: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], content: bytes) -> None:
    (tmp_path / "text").write_bytes(content)
    assert translate.main([run, "-i", str(tmp_path / "text"), *FAST]) == 1
    assert capfd.readouterr().err.splitlines()[-1].startswith(f"nmt-translate: {tmp_path / 'text'}, line 2: not UTF-8")


def test_metrics_and_scores_know_the_same_lines(run: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = [line for line in ODD_LINES if line != "a" * 5000]
    (tmp_path / "a").write_bytes("".join(f"{line}\n" for line in lines).encode())
    assert evaluate.main(["--hyp", str(tmp_path / "a"), "--ref", str(tmp_path / "a"), "--json"]) == 0
    capfd.readouterr()
    assert score.main([run, "--source", str(tmp_path / "a"), "--target", str(tmp_path / "a")]) == 0
    assert capfd.readouterr().out.count("\n") == len(lines)


def bomb(path: Path, *, unit: bytes, megabytes: int) -> None:
    """A gzip file of so many megabytes of `unit`, made without holding them."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = unit * (2**20 // len(unit))
    with path.open("wb") as stream:
        for _ in range(megabytes):
            stream.write(packer.compress(block))
        stream.write(packer.flush())


MEASURE = """
import resource, sys
from nmt.data import read_lines
from nmt.errors import DataError
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, count = peak(), 0
try:
    for line in read_lines(sys.argv[1]): count += 1
except DataError as error: print(error)
print(count)
print(peak() - before)
"""


def measured(path: Path) -> tuple[list[str], float]:
    """What reading says in another process, and the MiB it needed."""
    command = [sys.executable, "-c", MEASURE, str(path)]
    output = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.splitlines()
    return output[:-1], float(output[-1])


def test_a_gzip_bomb_of_short_lines_is_streamed(tmp_path: Path) -> None:
    bomb(tmp_path / "bomb.gz", unit=b"a b c d e f g h i j k l m n o p\n", megabytes=100)
    assert (tmp_path / "bomb.gz").stat().st_size < 1_000_000
    said, used = measured(tmp_path / "bomb.gz")
    assert said == [str(100 * 2**20 // 32)]
    assert used < 20


def test_a_gzip_bomb_of_one_line_is_refused_with_bounded_memory(tmp_path: Path) -> None:
    bomb(tmp_path / "bomb.gz", unit=b"\0", megabytes=1000)
    said, used = measured(tmp_path / "bomb.gz")
    assert said == [f"{tmp_path / 'bomb.gz'}, line 1: longer than 16 MiB; is it text?", "0"]
    assert used < 300


def test_an_endless_line_in_a_pipe_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("nmt.cli.lines", "nmt.data.text"):
        monkeypatch.setattr(f"{module}.LONGEST_LINE", 4)
    reading, writing = os.pipe()
    os.write(writing, b"abc\nabcde")
    os.close(writing)
    lines = read_lines(LiveLines(reading, "pipe"), name="pipe")  # type: ignore[arg-type]
    assert next(lines) == "abc"
    with pytest.raises(DataError, match="^pipe, line 2: longer than"):
        next(lines)
    os.close(reading)


@pytest.mark.parametrize("packed", [False, True])
def test_lines_of_just_the_allowed_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    monkeypatch.setattr(text, "LONGEST_LINE", 4)
    path = tmp_path / ("text.gz" if packed else "text")

    def lines(content: bytes) -> Iterator[str]:
        path.write_bytes(gzip.compress(content) if packed else content)
        return read_lines(path)

    assert list(lines(b"abc\n\nabc\nabcd")) == ["abc", "", "abc", "abcd"]
    found = lines(b"a\nabcde\n")
    assert next(found) == "a"
    with pytest.raises(DataError, match="line 2: longer than"):
        next(found)
