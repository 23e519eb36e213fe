"""What a line is, how files are found, and what is said of files that cannot be used."""

from __future__ import annotations

import gzip
import io
import re
from pathlib import Path

import pytest

from nmt.data import find_file, read_lines, read_parallel
from nmt.data.text import SHOWN, FilePair, NotedLines, count_pairs, named_files, read_pairs
from nmt.errors import DataError, counted

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
    with pytest.raises(DataError, match=re.escape(expected)):
        count_pairs([pair])


def test_unequal_shards_are_not_evened_out_by_others(tmp_path: Path) -> None:
    write(tmp_path, "1", "a\nb\n", "A\n")
    write(tmp_path, "2", "a\n", "A\nB\n")
    with pytest.raises(DataError, match=r"1\.en has 2 lines"):
        read_parallel([str(tmp_path / "1"), str(tmp_path / "2")], "en", "de")


def test_empty_files_are_an_error(tmp_path: Path) -> None:
    pair = write(tmp_path, "t", "", "")
    with pytest.raises(DataError, match="data.dev: .*t.en has no line"):
        read_parallel(str(tmp_path / "t"), "en", "de", key="data.dev")
    with pytest.raises(DataError, match="the corpus is empty"):
        count_pairs([pair])


def test_files_of_a_key_are_found_compressed_and_the_plain_one_comes_first(tmp_path: Path) -> None:
    both, packed, missing = (tmp_path / name for name in ("both.txt", "packed.txt", "missing.txt"))
    for file in (both, tmp_path / "both.txt.gz", tmp_path / "packed.txt.gz"):
        file.touch()
    assert named_files([str(both), str(packed), str(missing)]) == [both, tmp_path / "packed.txt.gz", missing]
    assert named_files(str(packed)) == [tmp_path / "packed.txt.gz"]
    assert named_files(None) == []


def test_all_are_counted_and_the_first_few_named() -> None:
    noted = NotedLines()
    assert not noted
    for number in range(1, SHOWN + 2):
        assert len(noted.numbers) == number - 1 and "..." not in noted.listed
        noted.add(number)
    assert noted.listed == ", ".join(map(str, range(1, SHOWN + 1))) + ", ..."
    assert noted.lines == f"{SHOWN + 1} lines" and noted
