"""What is known of files is what they hold now: read once, remembered while they stay, never longer."""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path

import pytest

from nmt.data import text_facts
from nmt.data.text import FilePair, read_lines
from nmt.data.text_facts import KnownFiles, read_facts
from nmt.errors import DataError

CONTENTS = [b"", b"\n", b"a\nb", b"a\r\nb\n", "ü\u2028\n\n".encode() * 200_000, b"x" * 3_000_000, b"\n" * 9]


@pytest.mark.parametrize("content", CONTENTS, ids=range(len(CONTENTS)))
@pytest.mark.parametrize("packed", [False, True])
def test_digest_and_lines(tmp_path: Path, content: bytes, packed: bool) -> None:
    path = tmp_path / ("t.gz" if packed else "t")
    raw = gzip.compress(content, 1) if packed else content
    path.write_bytes(raw)
    done: list[int] = []
    facts = read_facts(path, advance=done.append)
    assert facts.digest == hashlib.sha256(raw).hexdigest()
    assert facts.lines == sum(1 for _ in read_lines(path))
    assert sum(done) == len(raw) == facts.size


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a\nb\xffc\n", "line 2: not UTF-8 (byte 0xff at position 2"),
        (b"a\n" * 700_000 + b"\xc3", "line 700001: not UTF-8"),
        (b"a\n" + b"x" * 5_000_000 + b"\n", "line 2: longer than 4 MiB"),
    ],
)
def test_what_is_not_text_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, said: str) -> None:
    for module in ("nmt.data.text_facts", "nmt.data.text"):
        monkeypatch.setattr(f"{module}.LONGEST_LINE", 4 << 20)
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(DataError) as error:
        read_facts(tmp_path / "t")
    assert str(error.value).startswith(f"{tmp_path / 't'}, {said}")


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: no such file"):
        read_facts(tmp_path / "nowhere")
    (tmp_path / "t.gz").write_bytes(gzip.compress(b"a\n" * 99)[:-9])
    with pytest.raises(DataError, match=r"t\.gz: not a readable gzip file"):
        read_facts(tmp_path / "t.gz")


def test_files_are_read_again_only_when_they_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, memory = tmp_path / "t", tmp_path / "cache" / "files.json"
    text.write_bytes(b"one\n")
    first = KnownFiles(memory)
    assert first.unread_bytes([text]) == 4
    facts = first.facts(text)
    first.save()
    written = memory.stat().st_mtime_ns
    second = KnownFiles(memory)
    with monkeypatch.context() as patch:
        patch.setattr(text_facts, "read_facts", lambda *_, **__: pytest.fail("read again"))
        assert second.facts(text) == facts and second.unread_bytes([text]) == 0
    second.save()
    assert memory.stat().st_mtime_ns == written
    times = text.stat().st_mtime_ns
    text.write_bytes(b"two\n")
    os.utime(text, ns=(times, times))  # of the same size and, it says, the same time
    assert KnownFiles(memory).digest(text) == hashlib.sha256(b"two\n").hexdigest()


def test_a_damaged_memory_is_no_memory(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"one\n")
    for content in ("{", "[]", '{"%s": {"digest": 1}}' % (tmp_path / "t")):
        (tmp_path / "files.json").write_text(content)
        assert KnownFiles(tmp_path / "files.json").facts(tmp_path / "t").lines == 1


def test_unequal_and_empty_files(tmp_path: Path) -> None:
    for name, content in (("1", b"a\n"), ("2", b"a\nb\n"), ("0", b"")):
        (tmp_path / name).write_bytes(content)
    known = KnownFiles(tmp_path / "files.json")
    one, two, none = (tmp_path / name for name in "120")
    assert known.count_pairs([FilePair(one, one), FilePair(two, two)]) == 3
    with pytest.raises(DataError, match="1 has 1 line but .*2 has 2; the two sides"):
        known.count_pairs([FilePair(one, two)])
    with pytest.raises(DataError, match="the corpus is empty: no line in .*0"):
        known.count_pairs([FilePair(none, none)])
