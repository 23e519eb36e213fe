"""Blocks of text: the lines that reading gives, from any position on."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nmt.data import read_lines
from nmt.data.text import FilePair, TextPosition, read_blocks, split_lines
from nmt.errors import DataError
from nmt.light.encodings import is_wide

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
    assert [(block.part, block.first_line, block.source.count(b"\n")) for block in blocks] == [
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
