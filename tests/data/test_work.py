"""Long work: child processes share it and end with their parent, and its progress is shown."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmt.data import work as progress_module
from nmt.data.work import in_child, map_in_order, progress
from nmt.errors import ConfigError, DataError
from tests.conftest import HANGS

REPOSITORY = Path(__file__).parents[2]


PARENT = """
import os, time
from nmt.data.work import obey_parent

parent = os.getpid()
child = os.fork()
if child == 0:
    obey_parent(parent)
else:
    print(child, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")
def test_worker_ends_when_its_parent_is_killed() -> None:
    """It would keep the lock of the run directory, which it inherits, and the next start would be refused."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    os.kill(child, signal.SIGTERM)  # left to the parent to decide
    time.sleep(0.2)
    assert Path(f"/proc/{child}").exists()
    parent.kill()
    deadline = time.monotonic() + 20
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    # Where nobody collects orphans, as in some containers, it stays as a zombie.
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


def double(number: int) -> int:
    return 2 * number


def refuse(text: str) -> None:
    raise ConfigError(text)


def die() -> None:
    os._exit(3)


def wait_for_long() -> None:
    time.sleep(60)


def test_result_and_error_of_a_child_come_back() -> None:
    assert in_child(double, 21) == 42
    with pytest.raises(ConfigError, match="^data.x: wrong$"):
        in_child(refuse, "data.x: wrong")
    with pytest.raises(DataError, match="was killed, perhaps for lack of memory"):
        in_child(die)


@pytest.fixture
def _heeds_ctrl_c() -> Iterator[None]:
    """A shell script starts what it runs with `&` with SIGINT ignored, and these tests with it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_heeds_ctrl_c")
def test_ctrl_c_ends_the_wait_for_a_child() -> None:
    started = time.monotonic()
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        in_child(wait_for_long)
    assert time.monotonic() - started < 20


def slow_square(number: int) -> int:
    time.sleep(0.02 * (number % 3))
    if number == 50:
        raise ConfigError("fifty")
    if number == 60:
        os._exit(3)
    return number * number


def test_work_is_shared_out_and_comes_back_in_order() -> None:
    for workers in (1, 3):
        assert list(map_in_order(slow_square, range(20), workers=workers)) == [i * i for i in range(20)]
    assert list(map_in_order(slow_square, [], workers=2)) == []
    with pytest.raises(ConfigError, match="^fifty$"):
        list(map_in_order(slow_square, range(40, 60), workers=2))
    with pytest.raises(DataError, match="was killed, perhaps for lack of memory; lower data.workers"):
        list(map_in_order(slow_square, range(55, 80), workers=2))


def large(number: int) -> bytes:
    return bytes(1 << 20)


def test_large_items_and_results_do_not_block_each_other() -> None:
    items = (bytes(1 << 20) for _ in range(12))
    assert sum(map(len, map_in_order(large, items, workers=2))) == 12 << 20  # type: ignore[arg-type]


def test_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    with progress("encoding train", total=4_000_000, unit=" pairs", done=1_000_000) as advance:
        for _ in range(10):
            now[0] += 13
            advance(100_000)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0] == "encoding train: 38%, 1.50M of 4.00M pairs, 7.69k pairs/s, 05:25 left"


def test_a_line_where_the_whole_is_not_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    with progress("reading", total=0, unit=" pairs") as advance:
        now[0] += 60
        advance(600_000)
    assert capsys.readouterr().err == "reading: 600k pairs, 10.0k pairs/s\n"


def test_nothing_for_short_work_and_when_it_is_not_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    for shown in (True, False):
        with progress("reading", total=10, unit="B", shown=shown) as advance:
            advance(10)
    assert capsys.readouterr().err == ""


UNIGRAM = """
import sys
from pathlib import Path
import torch
from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
torch.set_num_threads(2)
torch.randn(1 << 22).tanh()
options = SentencePieceOptions(vocab_size=300, model_type="unigram", byte_fallback=False)
print(SentencePieceTokenizer.train([Path(sys.argv[1])], [Path(sys.argv[1])], options=options, seed=1).source_size)
"""


def test_a_unigram_model_is_trained_after_torch_has_computed_with_threads(tmp_path: Path) -> None:
    """OpenMP, whose threads a fork does not copy, waited for them and never ended."""
    text = tmp_path / "text"
    words = [a + b + c for a in "bdfgklmn" for b in "aeiou" for c in "rstw"]
    text.write_text("".join(f"{' '.join(words[i::7])}\n{' '.join(words[i::11])}\n" for i in range(7)), encoding="utf-8")
    child = subprocess.run(
        [sys.executable, "-c", UNIGRAM, str(text)], capture_output=True, text=True, timeout=HANGS, cwd=REPOSITORY
    )
    assert child.returncode == 0, child.stderr
    assert 30 < int(child.stdout) <= 300
