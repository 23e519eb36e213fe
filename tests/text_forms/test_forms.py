"""Parallel text in one file, and two named files: what is read, what is refused, and every door that takes a text."""

from __future__ import annotations

import gzip
import logging
import os
from pathlib import Path

import pytest

from nmt.config import load_config
from nmt.config.located import anchored, located, named_paths
from nmt.data.text import find_pair, missing_pairs, read_pairs
from nmt.errors import ConfigError, DataError, say_once
from tests.tiny_training import nmt_train, same, training_state, write_config, write_corpus

TMX = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><note>ignored</note>
  <tuv xml:lang="en-GB"><seg>Press <bpt i="1">&lt;b&gt;</bpt>Enter<ept i="1">&lt;/b&gt;</ept> &amp; wait
    a moment</seg></tuv>
  <tuv xml:lang="DE"><seg>Drücken <hi>Sie</hi> Enter</seg></tuv></tu>
<tu><tuv lang="en"><seg>Only English</seg></tuv><tuv lang="fr"><seg>Anglais</seg></tuv></tu>
<tu><tuv lang="de"><seg>Zwei</seg></tuv><tuv lang="en"><seg>Two</seg></tuv></tu>
</body></tmx>
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    return tmp_path


def write(name: str, text: str) -> str:
    Path(name).write_bytes(text.encode())
    return name


def pairs(name: str) -> list[tuple[str, str]]:
    return list(read_pairs(find_pair(name, "en", "de")))


EXPECTED = [("One", "Eins"), ("Two", "Zwei")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", "One\tEins\r\nTwo\tZwei\tmore\r\n"),
        ("a.tsv", "\ufeffid\tde\ten\n1\tEins\tOne\n2\tZwei\tTwo\n"),
        ("a.tsv:3:1", "Eins\tx\tOne\nZwei\tx\tTwo\n"),
        ("a.tsv:english:2", "english\tgerman\nOne\tEins\nTwo\tZwei"),
        ("a.TSV", "One\tEins\nTwo\tZwei\n"),
        ("a.jsonl", '{"en": "One", "de": "Eins", "id": 3}\n{"translation": {"de": "Zwei", "en": "Two"}}\n'),
        ("a.jsonl:src:ref", '{"src": "One", "ref": "Eins"}\n{"src": "Two", "ref": "Zwei"}\n'),
    ],
)
def test_both_sides_of_a_file(name: str, text: str) -> None:
    write(name.partition(":")[0], text)
    assert pairs(name) == EXPECTED


def test_packed_files() -> None:
    zstandard = pytest.importorskip("zstandard")
    Path("a.tsv.gz").write_bytes(gzip.compress(b"One\tEins\nTwo\tZwei\n"))
    Path("b.tsv.zst").write_bytes(zstandard.compress(b"One\tEins\n") + zstandard.compress(b"Two\tZwei\n"))
    Path("c.en.zst").write_bytes(zstandard.compress(b"One\nTwo\n"))
    write("c.de", "Eins\nZwei\n")
    assert pairs("a.tsv.gz") == pairs("a.tsv") == pairs("b.tsv.zst") == pairs("c") == pairs("c.en:c.de") == EXPECTED
    Path("b.tsv.zst").write_bytes(b"no such thing")
    with pytest.raises(DataError, match=r"^b\.tsv\.zst: "):
        pairs("b.tsv.zst")


def test_what_a_translation_memory_has_is_said(caplog: pytest.LogCaptureFixture) -> None:
    write("a.tmx", TMX)
    for _ in range(2):  # from the file, and from what is kept of it
        caplog.clear()
        say_once.cache_clear()
        assert pairs("a.tmx") == [("Press Enter & wait a moment", "Drücken Sie Enter"), ("Two", "Zwei")]
        said = "a.tmx: 1 unit left out: no segment in de; line breaks within 1 pair are read as spaces (first: unit 2)"
        assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [said]


def test_a_changed_file_is_read_again() -> None:
    write("a.tsv", "One\tEins\n")
    assert pairs("a.tsv") == EXPECTED[:1]
    first = find_pair("a.tsv", "en", "de")
    assert find_pair("a.tsv", "en", "de") == first
    before = os.stat(first.source)
    assert pairs("a.tsv") == EXPECTED[:1]
    assert os.stat(first.source) == before or os.stat(first.source).st_mtime_ns == before.st_mtime_ns
    write("a.tsv", "One\tEins\nTwo\tZwei\n")
    assert pairs("a.tsv") == EXPECTED


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "One\tEins\nTwo\n", "a.tsv, line 2: has 1 column, but column 2 is needed; nmt-data prepare leaves"),
        ("a.tsv:2:2", "One\tEins\n", "a.tsv: source and target are the same column"),
        ("a.tsv:0:2", "One\tEins\n", "a.tsv: '0' is no column. Allowed: columns from 1."),
        ("a.tsv:en:fr", "en\tde\n", "a.tsv: 'fr' is no column of its first line. Allowed: en, de."),
        ("a.jsonl", '{"en": "One"}\n', "a.jsonl, line 1: the key 'de' is missing; nmt-data prepare leaves"),
        ("a.jsonl", '{"en": "One", "de": 3}\n', "a.jsonl, line 1: the key 'de' is 3, not text;"),
        ("a.jsonl", '["One"]\n', "a.jsonl, line 1: ['One'] is not a JSON object;"),
        ("a.jsonl", '{"en": "One", "de": "Eins"\n', "a.jsonl, line 1: is not JSON ("),
        ("a.jsonl", '{"en": "One", "de": "\\ud800"}\n', "a.jsonl, line 1: has half of a surrogate pair;"),
        ("a.tmx", "<tmx><body><tu></body></tmx>", "a.tmx, line 1: is not TMX (mismatched tag)"),
        ("a.tmx", "<html></html>", "a.tmx, line 1: is not TMX: it begins with <html>"),
        ("a.tmx", '<!DOCTYPE tmx [<!ENTITY a "b">]><tmx/>', "a.tmx, line 1: declares an entity, which is not read"),
        ("a.tmx", "<tmx>" + "<a>" * 1000, "a.tmx, line 1: has elements more than 64 deep"),
        ("a.tsv:1:2:3", "One\tEins\n", "a.tsv, line 1: has 2 columns, but column 3 is needed"),
        ("a.tsv:1:2:3:4", "One\tEins\n", "neither a.tsv:1:2:3:4.en nor a.tsv:1:2:3:4.en.gz exists"),
        ("a.jsonl:en:de:doc", '{"en": "One", "de": "Eins"}\n', "a.jsonl, line 1: the key 'doc' is None, not text or"),
        ("a.tmx:en:de:doc", "<tmx></tmx>", "a.tmx: 'doc': units of TMX have languages alone, not documents"),
    ],
)
def test_mistakes_are_one_line(name: str, text: str, message: str) -> None:
    write(name.partition(":")[0], text)
    with pytest.raises(DataError) as caught:
        pairs(name)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert not list(Path("cache/texts").glob("*/*")) or not [*Path("cache/texts").glob("*/made_of")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv:2:3:1", "a\tOne\tEins\na\tTwo\tZwei\nb\tOne\tEins\n"),
        ("a.tsv:en:de:doc", "en\tdoc\tde\nOne\ta\tEins\nTwo\ta\tZwei\nOne\t\tEins\n"),
        (
            "a.jsonl:en:de:doc",
            '{"en": "One", "de": "Eins", "doc": 1}\n{"en": "Two", "de": "Zwei", "doc": 1}\n'
            '{"doc": 2, "translation": {"en": "One", "de": "Eins", "doc": "x"}}\n',
        ),
    ],
)
def test_a_third_column_divides_documents_by_blank_lines(name: str, text: str) -> None:
    write(name.partition(":")[0], text)
    assert pairs(name) == [("One", "Eins"), ("Two", "Zwei"), ("", ""), ("One", "Eins")]


def test_text_that_is_not_utf_8_is_named() -> None:
    Path("a.tsv").write_bytes(b"One\tEins\nTwo\tZw\xf6lf\n")
    with pytest.raises(DataError, match=r"^a\.tsv, line 2: "):
        pairs("a.tsv")


def test_all_that_is_missing_is_said_by_key() -> None:
    write("x.en", "")
    found = missing_pairs(["no", "x.en:x.de", "no.tsv"], "en", "de", key="data.train")
    assert [key for key, _ in found] == ["data.train.0", "data.train.0", "data.train.1", "data.train.2"]
    assert [message for _, message in found][2:] == ["x.de: no such file", "no.tsv: no such file"]


def test_a_prefix_comes_first() -> None:
    write("a.tsv.en", "One\n")
    write("a.tsv.de", "Eins\n")
    write("a.tsv", "x\ty\n")
    assert pairs("a.tsv") == EXPECTED[:1]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"source": "x.en", "target": "y.txt"}, "x.en:y.txt"),
        ({"file": "a.tsv"}, "a.tsv"),
        ({"file": "a.tsv", "columns": [3, "de"]}, "a.tsv:3:de"),
        (["x", {"file": "a.jsonl", "columns": ["src", "tgt"]}], ["x", "a.jsonl:src:tgt"]),
    ],
)
def test_mappings_of_a_configuration(given: object, name: object) -> None:
    assert load_config({"run_dir": "r", "data": {"train": given, "dev": "d"}}).data.train == name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"source": "x"},
            "data.train: {'source': 'x'} is not allowed; a mapping is {prefix: PREFIX}, {source: FILE",
        ),
        ({"file": "a.txt"}, "data.train: file: 'a.txt' has no ending of a form. Allowed: jsonl, tmx, tsv."),
        ({"file": "a.tsv", "columns": [1]}, "data.train: columns: [1] is not a list of two columns"),
        ({"source": "a:b", "target": "c"}, "data.train: 'a:b' is not allowed; names here are text without a colon"),
        ({"file": "a.tsv", "columns": [1.5, 2]}, "data.train: 1.5 is not allowed; names here are"),
    ],
)
def test_mappings_that_are_refused(given: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({"run_dir": "r", "data": {"train": given}})
    assert message in str(caught.value)


def test_a_run_keeps_where_its_files_are(place: Path) -> None:
    for name in ("x.en", "y.txt", "a.tsv"):
        write(name, "")
    train = ["x.en:y.txt", "a.tsv:3:4", "p/q:r"]
    config = anchored(load_config({"run_dir": "r", "data": {"train": train, "dev": "d"}}))
    assert config.data.train == [f"{place}/x.en:{place}/y.txt", f"{place}/a.tsv:3:4", f"{place}/p/q:r"]
    assert ("data.train", f"{place}/y.txt") in [*named_paths(config)]
    assert located(config, place / "r" / "config.yaml") == config


def test_the_same_text_in_another_form_gives_the_same_weights(place: Path) -> None:
    write_corpus(place)
    for part in ("train", "dev"):
        sides = [Path(f"{part}.{code}").read_text("utf-8").splitlines() for code in ("en", "de")]
        write(f"{part}.tsv", "".join(f"{target}\t{source}\n" for source, target in zip(*sides, strict=True)))
    states = []
    for data in ({}, {"train": {"file": "train.tsv", "columns": [2, 1]}, "dev": "dev.tsv:2:1"}):
        config = write_config(place, data=data)
        assert nmt_train(config, "--overwrite") == 0
        states.append(training_state(place / "run", 12))
    assert same(
        states[0]["model"] if "model" in states[0] else states[0],
        states[1]["model"] if "model" in states[1] else states[1],
    )
