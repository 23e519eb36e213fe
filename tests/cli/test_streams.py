"""Standard streams that are missing, and readers that go away: no status line among translations, no silent loss."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nmt.cli.descriptors import has_no_reader
from tests.distributed.launch import Ranks
from tests.distributed.work import translate_run
from tests.quick_python import quick_python
from tests.tiny_run import make_run

PYTHON = f"{' '.join(quick_python())} -m nmt.cli"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    make_run(folder / "run")
    (folder / "in").write_text("a b\nd\n")
    return folder


def shell(command: str, folder: Path, **variables: str) -> tuple[int, str, str]:
    """Exit code, and what bash's own standard output and error got."""
    environment = {**_environment(), **variables}
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout, done.stderr


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}


def _long_list(folder: Path) -> None:
    """An n-best list of 200,000 bytes, more than a pipe holds."""
    (folder / "list").write_text("".join(f"{line} ||| {'word ' * 36} ||| score= -1\n" for line in range(1000)))


def test_without_standard_error_status_lines_land_nowhere(folder: Path) -> None:
    assert shell(f"{PYTHON}.translate run -i in -o out --device cpu 2>&-", folder) == (0, "", "")
    assert (folder / "out").read_text().count("\n") == 2
    assert "nmt-translate" not in (folder / "out").read_text()


def test_without_standard_output_nothing_is_lost_unnoticed(folder: Path) -> None:
    (folder / "hyp").write_text("a\n")
    for command in ("cli.translate run -i in", "evaluating.command --hyp hyp --ref hyp", "cli.translate --help"):
        code, _, err = shell(f"{PYTHON.removesuffix('.cli')}.{command} >&-", folder)
        assert code == 1 and err.count("\n") == 1, err
        assert ": standard output: " in err


def test_without_standard_input_nothing_is_taken_for_an_empty_text(folder: Path) -> None:
    code, out, err = shell(f"{PYTHON}.translate run --device cpu <&-", folder)
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == "nmt-translate: standard input: is closed; open it, or give a file"


def test_without_any_stream_a_file_is_translated_into_a_file(folder: Path) -> None:
    assert shell(f"{PYTHON}.translate run -i in -o alone --device cpu <&- >&- 2>&-", folder)[0] == 0
    assert (folder / "alone").read_text().count("\n") == 2


@pytest.mark.parametrize(
    "command",
    [
        "cli.translate --help",
        "evaluating.command --hyp in --ref in --metrics chrf",
        "scoring.command run --source in --target in --device cpu",
        "run_check.command run",
    ],
)
def test_a_reader_that_went_away_is_told_by_the_exit_code(folder: Path, command: str) -> None:
    code, _, err = shell(f"{' '.join(quick_python())} -m nmt.{command} | true; exit ${{PIPESTATUS[0]}}", folder)
    assert code == 141
    assert [line for line in err.splitlines() if not line.startswith("nmt-score: perplexity")] == []


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_limit_on_the_size_of_standard_output_is_an_error(tmp_path: Path, unbuffered: str) -> None:
    """As a full disk it lets some of the bytes be written, which a raw file does not report as an error."""
    _long_list(tmp_path)
    command = f'ulimit -f 1; "{sys.executable}" -m nmt.ranking.command list --weights score=1 > out'
    # A cached module that the limit cuts off would be found by the next process.
    code, _, err = shell(command, tmp_path, PYTHONUNBUFFERED=unbuffered, PYTHONDONTWRITEBYTECODE="1")
    assert code == 1
    assert err.splitlines()[-1] == "nmt-rank: standard output: File too large"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_pipe_that_is_full_and_does_not_block_is_an_error(tmp_path: Path, unbuffered: str) -> None:
    _long_list(tmp_path)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    command = [*quick_python(), "-m", "nmt.ranking.command", "list", "--weights", "score=1"]
    environment = {**_environment(), "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, text=True, env=environment)
    os.close(writing)
    os.close(reading)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("nmt-rank: standard output: ")


def test_several_processes_end_quietly_when_their_reader_goes_away(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "long").write_text("a b\n" * 20_000)
    os.mkfifo(tmp_path / "pipe")

    def read_a_line() -> None:
        with (tmp_path / "pipe").open() as stream:
            stream.readline()

    reader = threading.Thread(target=read_a_line)
    reader.start()
    options = ["-i", str(tmp_path / "long"), "-o", str(tmp_path / "pipe"), "--beam-size", "1"]
    ranks = Ranks(2, translate_run, [str(folder / "run"), *options], folder=tmp_path / "said")
    assert ranks.wait() == [141, 141], [ranks.said(0), ranks.said(1)]
    reader.join()
    assert [len(ranks.said(rank)) for rank in (0, 1)] == [1, 0], "the model that was loaded, and nothing else"


def test_pipes_with_and_without_a_reader() -> None:
    reading, writing = os.pipe()
    assert not has_no_reader(writing)
    os.close(reading)
    assert has_no_reader(writing)
    os.close(writing)
    with open(os.devnull, "wb") as nowhere:
        assert not has_no_reader(nowhere.fileno())
