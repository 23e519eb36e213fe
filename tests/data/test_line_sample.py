"""The sample of lines that tokenizers learn from: uniform, seeded, bounded, and the lines that reading gives."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from nmt.data import read_lines
from nmt.data.text import reservoir, sample_lines
from nmt.errors import DataError


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
