"""The placeholders that the engine's C finds are those of nmt/kept_text."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from nmt.kept_text.lines import Kind, broken_placeholders, find_placeholders
from tests.light.odd_placeholders import odd_lines
from tests.light.subwords_library import SOURCE, compiled

KINDS = (Kind.WORD, Kind.TERM, Kind.OPENING, Kind.CLOSING)


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    own = str(Path(__file__).with_name("scan_placeholders.c"))
    sources = [str(SOURCE / name) for name in ("placeholders.c",)]
    library = ctypes.CDLL(
        str(compiled(tmp_path_factory.mktemp("scan") / "scan.so", own, *sources, "-O1", "-shared", "-fPIC"))
    )
    library.scan.restype, library.broken.restype = ctypes.c_size_t, ctypes.c_int64
    return library


@pytest.mark.parametrize("count", [3000, pytest.param(60_000, marks=pytest.mark.slow)])
def test_they_are_those_of_python(scan: ctypes.CDLL, count: int) -> None:
    total = 0
    for line in odd_lines(count, seed=3):
        raw = line.encode()
        places = {len(line[:i].encode()): i for i in range(len(line) + 1)}
        to = (ctypes.c_int64 * (6 * len(raw) + 6))()
        found = []
        for i in range(scan.scan(raw, ctypes.c_size_t(len(raw)), to)):
            begin, end, kind, alone, first, last = to[6 * i : 6 * i + 6]
            tag = raw[first:last].decode()
            found.append(
                (places[begin], places[end], KINDS[kind], bool(alone), tag if raw[begin] == 123 else tag.lower())
            )
        wanted = find_placeholders(line)
        assert found == [(*one.span, one.kind, one.stands_alone, one.tag.lstrip("{")) for one in wanted], line
        total += len(found)
    assert total > count


def test_text_is_broken_alike(scan: ctypes.CDLL) -> None:
    changed = 0
    for line in odd_lines(1000, seed=4):
        raw = line.encode()
        to = ctypes.create_string_buffer(4 * len(raw) + 4)
        size = scan.broken(raw, ctypes.c_size_t(len(raw)), to, ctypes.c_size_t(len(to)))
        assert to.raw[:size].decode() == broken_placeholders(line), line
        changed += broken_placeholders(line) != line
    assert changed > 300
