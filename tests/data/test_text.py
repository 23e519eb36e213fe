"""Reading text: lines, what is not UTF-8, blocks, windows, samples, and files of a prefix."""

from __future__ import annotations

import gzip
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nmt.data import read_lines
from nmt.data import text as module
from nmt.data.text import (
    FilePair,
    TextPosition,
    find_file,
    named_files,
    read_blocks,
    read_pairs,
    read_parallel,
    reservoir,
    sample_lines,
    split_lines,
    windows,
)
from nmt.errors import DataError, counted
from nmt.light.counts import Noted
from nmt.light.lines import is_wide

ODD = "a\u0085b\u2028c\u2029d\x0be\x0cf\x00g\x1ch\ri"


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("", []),
        ("\n", [""]),
        ("a\n\nb\n", ["a", "", "b"]),
        ("a\r\nb\r\r\n", ["a", "b\r"]),
        ("no end", ["no end"]),
        ("last\r", ["last\r"]),
        (ODD + "\n" + ODD, [ODD, ODD]),
        ("\ufeffmark\n\ufeff\n", ["mark", "\ufeff"]),
        ("\ufeff", [""]),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_only_newline_ends_a_line(tmp_path: Path, content: str, lines: list[str], packed: bool) -> None:
    path = tmp_path / ("t.en.gz" if packed else "t.en")
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    assert list(read_lines(path)) == lines
    assert list(read_lines(str(path))) == lines


def test_streams_are_read_as_bytes_and_stay_open() -> None:
    binary = io.BytesIO((ODD + "\r\nb\n").encode())
    assert list(read_lines(binary)) == [ODD, "b"]
    assert not binary.closed
    # A text stream in universal newline mode, as sys.stdin is, must not see the line ends first.
    wrapped = io.TextIOWrapper(io.BytesIO((ODD + "\r\nb").encode()), encoding="utf-8")
    assert list(read_lines(wrapped)) == [ODD, "b"]
    assert list(read_lines(io.StringIO("x\u2028y\nz"))) == ["x\u2028y", "z"]


@pytest.mark.parametrize("packed", [False, True])
def test_undecodable_bytes_name_file_and_line(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / ("t.en.gz" if packed else "t.en")
    content = b"fine\nalso\nab\xffcd\n"
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(DataError, match=re.escape(f"{path}, line 3: not UTF-8 (byte 0xff at position 3")):
        list(read_lines(path))


def test_undecodable_stream_is_named() -> None:
    with pytest.raises(DataError, match="stdin, line 2: .*; convert the file to UTF-8$"):
        list(read_lines(io.BytesIO(b"a\n\x80"), name="stdin"))


def test_surrogates_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "t.en").write_bytes(b"\xed\xa0\x80\n")
    with pytest.raises(DataError, match="line 1: not UTF-8"):
        list(read_lines(tmp_path / "t.en"))


@pytest.mark.parametrize(
    "content",
    [b"plain text", gzip.compress(b"a line\n" * 1000, mtime=0)[:-12], b"\x1f\x8b\x08\x00broken"],
    ids=["plain", "cut", "broken"],
)
def test_damaged_gzip_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.en.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=re.escape(f"{path}: not a readable gzip file")) as caught:
        list(read_lines(path))
    assert "\n" not in str(caught.value)


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing.en: no such file"):
        list(read_lines(tmp_path / "nothing.en"))
    with pytest.raises(DataError, match="cannot be read"):
        list(read_lines(tmp_path))


def test_plain_file_wins_over_packed(tmp_path: Path) -> None:
    (tmp_path / "t.en.gz").write_bytes(gzip.compress(b"packed\n"))
    assert find_file(tmp_path / "t", "en").name == "t.en.gz"
    (tmp_path / "t.en").write_bytes(b"plain\n")
    assert find_file(tmp_path / "t", "en").name == "t.en"


def test_missing_prefix_names_both_files_and_no_script(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        find_file(tmp_path / "t", "de")
    assert f"{tmp_path / 't.de'} nor {tmp_path / 't.de.gz'}" in str(caught.value)
    assert "nmt-data" not in str(caught.value)


@pytest.mark.parametrize("name", ["multi30k", "wmt14"])
def test_missing_shipped_data_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=f"^data.train: neither data/{name}/train.en .*nmt-data {name} fetches"):
        read_parallel(f"data/{name}/train", "en", "de", key="data.train")


def write(folder: Path, name: str, source: str, target: str) -> FilePair:
    pair = FilePair(folder / f"{name}.en", folder / f"{name}.de")
    pair.source.write_bytes(source.encode())
    pair.target.write_bytes(target.encode())
    return pair


def test_shards_are_read_in_order_with_empty_lines(tmp_path: Path) -> None:
    write(tmp_path, "1", "a\n\nb\n", "A\nx\n\n")
    write(tmp_path, "2", "c\n", "C\n")
    text = read_parallel([str(tmp_path / "2"), str(tmp_path / "1")], "en", "de")
    assert text.source == ["c", "a", "", "b"]
    assert text.target == ["C", "A", "x", ""]


@pytest.mark.parametrize(("source", "target", "counts"), [("a\nb\n", "A\n", (2, 1)), ("a\n", "A\nB\nC", (1, 3))])
def test_unequal_line_counts_name_both_files(tmp_path: Path, source: str, target: str, counts: tuple[int, int]) -> None:
    pair = write(tmp_path, "t", source, target)
    expected = f"{pair.source} has {counted(counts[0], 'line')} but {pair.target} has {counts[1]}"
    with pytest.raises(DataError, match=re.escape(expected)):
        list(read_pairs(pair))


def test_unequal_shards_are_not_evened_out_by_others(tmp_path: Path) -> None:
    write(tmp_path, "1", "a\nb\n", "A\n")
    write(tmp_path, "2", "a\n", "A\nB\n")
    with pytest.raises(DataError, match=r"1\.en has 2 lines"):
        read_parallel([str(tmp_path / "1"), str(tmp_path / "2")], "en", "de")


def test_empty_files_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, "t", "", "")
    with pytest.raises(DataError, match="data.dev: .*t.en has no line"):
        read_parallel(str(tmp_path / "t"), "en", "de", key="data.dev")


def test_files_of_a_key_are_found_compressed_and_the_plain_one_comes_first(tmp_path: Path) -> None:
    both, packed, missing = (tmp_path / name for name in ("both.txt", "packed.txt", "missing.txt"))
    for file in (both, tmp_path / "both.txt.gz", tmp_path / "packed.txt.gz"):
        file.touch()
    assert named_files([str(both), str(packed), str(missing)]) == [both, tmp_path / "packed.txt.gz", missing]
    assert named_files(str(packed)) == [tmp_path / "packed.txt.gz"]
    assert named_files(None) == []


def test_all_are_counted_and_the_first_few_named() -> None:
    noted = Noted()
    assert not noted
    for number in range(1, 11):
        noted.add(number)
        assert noted.said("odd") == f"{counted(number, 'line')} odd: {', '.join(map(str, range(1, number + 1)))}"
    noted.add(11)
    assert noted and noted.said("odd") == "11 lines odd: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ..."


PLACE = Path("t.en")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["a", "ü", "\r", "\n", "\r\n", "\x00", "\u0085", "\u2028", "\x0b", " ", "\ufeff"])))
def test_lines_of_a_block_are_those_of_the_reader(pieces: list[str]) -> None:
    content = "".join(pieces).encode()
    assume(not any(map(is_wide, content.split(b"\n"))))  # "a\0a\0a\0", which only the reader refuses
    assert split_lines(content, PLACE) == list(read_lines(io.BytesIO(content), name="t"))


def test_bytes_that_are_not_utf8_are_named_as_by_the_reader() -> None:
    content = b"fine\nalso\nab\xffcd\n"
    with pytest.raises(DataError) as ours:
        split_lines(content, PLACE, first_line=1)
    with pytest.raises(DataError) as theirs:
        list(read_lines(io.BytesIO(content), name=str(PLACE)))
    assert str(ours.value) == str(theirs.value)
    with pytest.raises(DataError, match="line 43: not UTF-8"):
        split_lines(content, PLACE, first_line=41)


@pytest.mark.parametrize("packed", [False, True])
def test_text_goes_on_from_any_position(tmp_path: Path, packed: bool) -> None:
    files = []
    for name, count in (("1", 10), ("2", 3)):
        sides = []
        for language in ("en", "de"):
            content = "".join(f"{language} {i} \u2028ü{'.' * i}\r\n" for i in range(count)).encode()
            path = tmp_path / f"{name}.{language}{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(content) if packed else content)
            sides.append(path)
        files.append(FilePair(*sides))
    blocks = list(read_blocks(files, lines=4, start=TextPosition()))
    assert [(block.after.pair, block.first_line, block.source.count(b"\n")) for block in blocks] == [
        (0, 1, 4), (0, 5, 4), (0, 9, 2), (1, 1, 3)
    ]  # fmt: skip
    for i, block in enumerate(blocks):
        assert list(read_blocks(files, lines=4, start=block.after)) == blocks[i + 1 :]
    joined = b"".join(block.target for block in blocks[:3])
    assert split_lines(joined, PLACE) == list(read_lines(files[0].target))


def test_a_side_that_ends_early_is_named(tmp_path: Path) -> None:
    files = FilePair(tmp_path / "t.en", tmp_path / "t.de")
    files.source.write_bytes(b"a\n" * 9)
    files.target.write_bytes(b"a\n" * 8)
    with pytest.raises(DataError, match=r"t\.en has 9 lines but .*t\.de has 8"):
        list(read_blocks([files], lines=4, start=TextPosition()))
    files.target.unlink()
    with pytest.raises(DataError, match=r"t\.en and its other side: cannot be read"):
        list(read_blocks([files], lines=4, start=TextPosition()))


class Sender:
    """Lines by the seconds at which each comes, and the clock that goes on when they are waited for."""

    def __init__(self, times: Sequence[float], monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self._times = list(times)
        self._taken = 0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))

    def __iter__(self) -> Iterator[float]:
        while self._taken < len(self._times):
            self._taken += 1
            self.now = max(self.now, self._times[self._taken - 1])
            yield self._times[self._taken - 1]

    def arrives(self, seconds: float) -> bool:
        comes = self._times[self._taken] if self._taken < len(self._times) else self.now
        self.now = min(max(self.now, comes), self.now + max(0.0, seconds))
        return comes <= self.now


def test_a_window_ends_with_the_first_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is waited for is not kept, those written one right after another stay together."""
    times = [0.0, 0.0005, 0.001, 1.0, 1.5, 1.5005]
    sender = Sender(times, monkeypatch)
    found = []
    for window in windows(sender, size=10, arrives=sender.arrives, length=lambda line: 1):
        assert sender.now - window[-1] <= 1.001 * module.PAUSE
        found.append(window)
    assert found == [times[:3], [1.0], [1.5, 1.5005]]


def test_a_sender_without_pauses_is_answered_before_the_window_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    sender = Sender([0.0005 * number for number in range(1000)], monkeypatch)
    window = next(windows(sender, size=1000, arrives=sender.arrives, length=lambda line: 1))
    assert len(window) == pytest.approx(module.PATIENCE / 0.0005, abs=2)
    assert sender.now <= module.PATIENCE + module.PAUSE


def test_what_came_during_the_work_is_one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    sender = Sender([0.0005 * number for number in range(1000)], monkeypatch)
    found = windows(sender, size=1000, arrives=sender.arrives, length=lambda line: 1)
    first = len(next(found))
    sender.now = 2.0  # the window is translated
    assert [len(window) for window in found] == [1000 - first]


def test_a_window_of_long_lines_holds_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHARACTERS", 10)
    assert list(windows(["12345"] * 5, size=4)) == [["12345"] * 2, ["12345"] * 2, ["12345"]]
    assert list(windows(["1"] * 5, size=4)) == [["1"] * 4, ["1"]]


def test_sample_is_seeded_uniform_and_bounded() -> None:
    assert reservoir(range(100), 200, seed=1) == list(range(100))
    assert reservoir(range(100), 10, seed=1) == reservoir(range(100), 10, seed=1) != reservoir(range(100), 10, seed=2)
    hits = Counter(item for seed in range(2000) for item in set(reservoir(range(50), 10, seed=seed)))
    assert sum(hits.values()) == 20_000, "none twice"
    # Each is expected 400 times, with a standard deviation of 18.
    assert min(hits.values()) > 320 and max(hits.values()) < 480


def test_few_items_are_drawn_from_many_in_one_pass() -> None:
    assert len(set(reservoir(iter(range(300_000)), 3, seed=5))) == 3
    assert reservoir(iter([]), 3, seed=5) == []


def test_lines_are_those_that_reading_gives(tmp_path: Path) -> None:
    content = "a\r\n\n\r\nb\u0085c\u2028\rd\n last\r".encode()
    (tmp_path / "t.en").write_bytes(content)
    (tmp_path / "t.en.gz").write_bytes(gzip.compress(content))
    for path in tmp_path.iterdir():
        lines = list(sample_lines([path], 9, seed=1))
        assert lines == [line for line in read_lines(path) if line] == ["a", "b\u0085c\u2028\rd", " last\r"]


@pytest.mark.parametrize("damage", ["bytes", "gzip"])
def test_unreadable_text_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / ("t.en" if damage == "bytes" else "t.en.gz")
    path.write_bytes(b"a\n\xff\n" if damage == "bytes" else gzip.compress(b"a\n" * 99)[:-9])
    with pytest.raises(DataError, match=r"t\.en, line 2: not UTF-8" if damage == "bytes" else r"t\.en\.gz: not a read"):
        list(sample_lines([path], 9, seed=1))
