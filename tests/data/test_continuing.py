"""A preparation that was killed goes on where it was, and gives byte for byte what an undisturbed one gives."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt.data import Vocabulary
from nmt.data import corpus as corpus_module
from nmt.data.corpus import Corpus, CorpusWriter, Encoder, LengthRule, encode, unfinished_folder
from nmt.data.text import FilePair
from nmt.data.text_facts import KnownFiles
from nmt.data.whitespace import WhitespaceOptions, WhitespaceTokenizer
from nmt.errors import DataError
from tests.conftest import HANGS

REPOSITORY = Path(__file__).parents[2]
WORDS = [f"w{i}" for i in range(20)]
TOKENIZER = WhitespaceTokenizer(Vocabulary(WORDS), Vocabulary(WORDS), options=WhitespaceOptions())


class StopHereError(Exception):
    pass


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[FilePair]:
    monkeypatch.setattr(corpus_module, "BLOCK", 10)
    monkeypatch.setattr(corpus_module, "MARK_EVERY", 3)
    return write_text(tmp_path)


def write_text(folder: Path) -> list[FilePair]:
    pairs = []
    for name, count in (("1", 95), ("2", 52)):
        pair = FilePair(folder / f"{name}.en", folder / f"{name}.de")
        for side in pair:
            side.write_text("".join(" ".join(WORDS[: i % 12]) + f" w{i % 20}\n" for i in range(count)))
        pairs.append(pair)
    return pairs


def run(files: list[FilePair], folder: Path, *, advance: Callable[[int], object] = lambda n: None, key: str = "k",
        workers: int = 1) -> dict[str, bytes]:  # fmt: skip
    rule = LengthRule(max_length=9, skip_empty=True)
    encode(files, folder, encoder=Encoder(TOKENIZER, rule), key=key, workers=workers, advance=advance)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def stop_after(pairs: int) -> Callable[[int], None]:
    """Raise when so many pairs have been encoded."""
    done = [0]

    def advance(new: int) -> None:
        done[0] += new
        if done[0] >= pairs:
            raise StopHereError

    return advance


@pytest.mark.parametrize("stopped_at", [30, 59, 60, 95, 100, 140, 147])
def test_continued_corpus_equals_the_undisturbed_one(files: list[FilePair], tmp_path: Path, stopped_at: int) -> None:
    expected = run(files, tmp_path / "straight")
    with pytest.raises(StopHereError):
        run(files, tmp_path / "corpus", advance=stop_after(stopped_at))
    done: list[int] = []
    assert run(files, tmp_path / "corpus", advance=done.append) == expected
    # Marks are 3 blocks apart, and the last block of a file is short.
    assert done[0] >= stopped_at - 30 and sum(done) == 147
    # Of 12 lines in a row 9 are short enough: 7 * 9 + 9 of 95, 4 * 9 + 4 of 52.
    assert [part.pairs for part in Corpus(tmp_path / "corpus").parts] == [72, 40]
    assert not (tmp_path / "corpus.partial").exists()


def test_stopped_again_and_again(files: list[FilePair], tmp_path: Path) -> None:
    expected = run(files, tmp_path / "straight")
    for _ in range(4):
        with pytest.raises(StopHereError):
            run(files, tmp_path / "corpus", advance=stop_after(35) if not (tmp_path / "corpus.partial").exists()
                else count_new(35))  # fmt: skip
    assert run(files, tmp_path / "corpus") == expected


def count_new(pairs: int) -> Callable[[int], None]:
    """Like `stop_after`, what an earlier process did not counted."""
    inner, first = stop_after(pairs), [True]

    def advance(new: int) -> None:
        if not first.pop() if first else True:
            inner(new)

    return advance


@pytest.mark.parametrize("damage", ["shorter", "changed", "missing", "mark", "key"])
def test_what_is_damaged_or_of_another_text_is_encoded_anew(
    files: list[FilePair], tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = run(files, tmp_path / "straight")
    with pytest.raises(StopHereError):
        run(files, tmp_path / "corpus", advance=stop_after(100), key="old" if damage == "key" else "k")
    partial = tmp_path / "corpus.partial"
    ids = partial / "target.ids"
    if damage == "shorter":
        ids.write_bytes(ids.read_bytes()[:50])
    elif damage == "changed":
        ids.write_bytes(bytes([ids.read_bytes()[0] ^ 1]) + ids.read_bytes()[1:])
    elif damage == "missing":
        ids.unlink()
    elif damage == "mark":
        (partial / "done.json").write_text("{")
    done: list[int] = []
    assert run(files, tmp_path / "corpus", advance=done.append) == expected
    assert done[0] == 0
    said = capsys.readouterr().err
    assert ("is damaged, so everything is encoded again" in said) == (damage != "key")
    assert "target.ids" in said or damage in ("mark", "key")


def test_bytes_after_the_last_mark_do_not_matter(files: list[FilePair], tmp_path: Path) -> None:
    expected = run(files, tmp_path / "straight")
    with pytest.raises(StopHereError):
        run(files, tmp_path / "corpus", advance=stop_after(100))
    for path in (tmp_path / "corpus.partial").glob("*.*s"):
        with path.open("ab") as stream:
            stream.write(b"half a piece")
    assert run(files, tmp_path / "corpus") == expected


KILLED = """
import sys
from pathlib import Path
from nmt.data import corpus
from tests.data.test_continuing import run, write_text
corpus.BLOCK, corpus.MARK_EVERY = 2, 1
folder = Path(sys.argv[1])
folder.mkdir(exist_ok=True)
run(write_text(folder), folder / "corpus", workers=2, advance=lambda n: print(n, flush=True))
"""


def test_killed_process_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "BLOCK", 2)
    monkeypatch.setattr(corpus_module, "MARK_EVERY", 1)
    (tmp_path / "a").mkdir()
    expected = run(write_text(tmp_path / "a"), tmp_path / "straight")
    command = [sys.executable, "-c", KILLED, str(tmp_path / "a")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    assert process.stdout is not None
    for _ in range(12):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    done: list[int] = []
    found = run([FilePair(tmp_path / f"a/{i}.en", tmp_path / f"a/{i}.de") for i in (1, 2)], tmp_path / "a" / "corpus",
                advance=done.append)  # fmt: skip
    assert found.keys() == expected.keys()
    assert all(found[name] == expected[name] for name in expected if name != "corpus.json")
    assert json.loads(found["corpus.json"])["crc32"] == json.loads(expected["corpus.json"])["crc32"]
    assert done[0] >= 10


def make_slowly(folder: Path, started: object) -> None:
    with unfinished_folder(folder) as partial:
        assert partial is not None
        started.set()  # type: ignore[attr-defined]
        time.sleep(0.6)
        (partial / "made").write_text(str(os.getpid()))


def test_of_two_processes_one_makes_the_corpus_and_the_other_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    context = multiprocessing.get_context("spawn")
    started = context.Event()
    child = context.Process(target=make_slowly, args=(tmp_path / "corpus", started))
    child.start()
    assert started.wait(HANGS)
    with unfinished_folder(tmp_path / "corpus") as partial:
        assert partial is None
    child.join()
    assert child.exitcode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]
    assert [path.name for path in (tmp_path / "corpus").iterdir()] == ["made"]
    assert "another process encodes this text; waiting" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(DataError, match="file/train.partial: cannot be written"),
        unfinished_folder(tmp_path / "file" / "train"),
    ):
        pass


@pytest.mark.parametrize("name", ["lock", "done.json", "source.ids", ".done.json"])
def test_nothing_is_written_through_a_link_that_was_planted(tmp_path: Path, name: str) -> None:
    """In a run directory of somebody else the cache may hold anything, too."""
    (tmp_path / "precious").write_text("precious")
    partial = tmp_path / "corpus.partial"
    partial.mkdir()
    (partial / name).symlink_to(tmp_path / "precious")
    with contextlib.suppress(DataError), unfinished_folder(tmp_path / "corpus") as folder:
        assert folder is not None
        with CorpusWriter(folder, sizes=(10, 10), key="k") as writer:
            writer.mark(writer.position, writer.report)
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_cache_of_pipes_is_no_corpus(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "corpus.json")
    with pytest.raises(DataError, match="is not a regular file"):
        Corpus(tmp_path)
    os.mkfifo(tmp_path / "files.json")
    assert KnownFiles(tmp_path / "files.json").unread_bytes([]) == 0
