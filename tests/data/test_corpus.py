"""Encoding text into a memory-mapped corpus: what is kept, what is reported, and that memory stays flat."""

from __future__ import annotations

import os
import tracemalloc
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from nmt.data import EOS, UNK, Vocabulary
from nmt.data import corpus as corpus_module
from nmt.data.corpus import (
    Corpus,
    CorpusReport,
    CorpusWriter,
    Encoder,
    FlatSentences,
    LengthRule,
    encode,
    id_dtype,
    new_folder,
)
from nmt.data.text import Block, FilePair, TextPosition
from nmt.data.whitespace import WhitespaceOptions, WhitespaceTokenizer
from nmt.errors import DataError

WORDS = [f"w{i}" for i in range(50)]


def tokenizer(words: list[str] = WORDS) -> WhitespaceTokenizer:
    return WhitespaceTokenizer(Vocabulary(words), Vocabulary(words), options=WhitespaceOptions())


def pair(folder: Path, source: list[str], target: list[str], name: str = "t") -> FilePair:
    files = FilePair(folder / f"{name}.en", folder / f"{name}.de")
    for path, lines in zip(files, (source, target), strict=True):
        path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return files


def build(folder: Path, files: list[FilePair], rule: LengthRule | None = None, **options: object) -> Corpus:
    options = {"encoder": Encoder(tokenizer(), rule or LengthRule()), "key": "k", "workers": 1, **options}
    encode(files, folder / "corpus", **options)  # type: ignore[arg-type]
    return Corpus(folder / "corpus")


def test_pairs_end_with_the_end_symbol_and_lengths_count_it(tmp_path: Path) -> None:
    corpus = build(tmp_path, [pair(tmp_path, ["w0 w1", "w2"], ["w3", "what w4 w5"])])
    assert len(corpus) == 2 and corpus.key == "k"
    assert corpus.source(0).tolist() == [3, 4, EOS]
    assert corpus.target(1).tolist() == [UNK, 7, 8, EOS]
    assert corpus.source_lengths.tolist() == [3, 2]
    assert corpus.target_lengths.tolist() == [2, 4]
    assert corpus.report == CorpusReport(
        read=2, kept=2, source_tokens=3, target_tokens=4, target_unknown=1, looked_at=2
    )
    assert corpus.report.lines("train")[1].endswith("target tokens (25.00% unknown)")


def test_ids_take_two_bytes_while_they_fit(tmp_path: Path) -> None:
    assert (id_dtype(2**16 - 1), id_dtype(2**16)) == (np.uint16, np.uint32)
    large = tokenizer([f"w{i}" for i in range(70_000)])
    corpus = build(tmp_path, [pair(tmp_path, ["w69999"], ["w1"])], encoder=Encoder(large, LengthRule()))
    assert corpus.source(0).tolist() == [70_002, EOS] and corpus.source(0).dtype == np.uint32
    assert (tmp_path / "corpus" / "source.ids").stat().st_size == 8


def test_empty_sides_are_skipped_counted_and_named(tmp_path: Path) -> None:
    first = pair(tmp_path, ["w0", "", "w1", " \u00a0"], ["w0", "w1", "\t", ""], "1")
    second = pair(tmp_path, ["", "w1"], ["w1", "w1"], "2")
    corpus = build(tmp_path, [first, second], LengthRule(skip_empty=True))
    assert len(corpus) == 2
    assert (corpus.report.read, corpus.report.kept, corpus.report.empty) == (6, 2, 4)
    assert corpus.report.empty_examples == (
        f"{first.source}, line 2", f"{first.target}, line 3", f"{first.source}, line 4", f"{second.source}, line 1",
    )  # fmt: skip
    assert f"4 with an empty side skipped ({first.source}, line 2; " in corpus.report.lines("train")[0]


def test_validation_text_keeps_every_line(tmp_path: Path) -> None:
    corpus = build(tmp_path, [pair(tmp_path, ["", "w0 " * 500], ["w0", ""])])
    assert corpus.source(0).tolist() == [EOS]
    assert corpus.source_lengths.tolist() == [1, 501]
    assert (corpus.report.kept, corpus.report.empty) == (2, 2)
    assert "2 with an empty side kept" in corpus.report.lines("dev")[0]


@pytest.mark.parametrize("truncate", [False, True])
def test_long_pairs_are_dropped_or_truncated_and_counted(tmp_path: Path, truncate: bool) -> None:
    files = pair(tmp_path, ["w0 w1 w2", "w0 w1 w2 w3", "w5"], ["w1", "w2", "w1 w2 w3 w4 w5"])
    corpus = build(tmp_path, [files], LengthRule(max_length=3, truncate=truncate, skip_empty=True))
    report = corpus.report
    assert report.too_long_examples == (f"{files.source}, line 2", f"{files.target}, line 3")
    if truncate:
        assert [corpus.source(i).tolist() for i in range(3)] == [[3, 4, 5, EOS], [3, 4, 5, EOS], [8, EOS]]
        assert corpus.target(2).tolist() == [4, 5, 6, EOS]
        assert (report.kept, report.truncated, report.too_long) == (3, 2, 0)
        assert "2 too long truncated" in report.lines("train")[0]
    else:
        assert len(corpus) == 1
        assert (report.kept, report.truncated, report.too_long) == (1, 0, 2)
        assert "2 too long dropped" in report.lines("train")[0]


def test_nothing_left_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    files = pair(tmp_path, ["", "w0 w1"], ["w0", "w0"])
    with pytest.raises(DataError, match="of 2 read, 1 have an empty side and 1 are longer than data.max_length"):
        build(tmp_path, [files], LengthRule(max_length=1, skip_empty=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.de", "t.en"]


def many(folder: Path, count: int, name: str = "t") -> FilePair:
    generator = np.random.default_rng(count)
    lengths = generator.integers(1, 12, (2, count))
    source, target = ([" ".join(generator.choice(WORDS, n)) for n in side] for side in lengths)
    source[count // 2] = ""
    return pair(folder, source, target, name)


def test_the_number_of_processes_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "BLOCK", 64)
    files = [many(tmp_path, 900, "1"), many(tmp_path, 100, "2")]
    done: dict[int, list[int]] = {}
    for workers in (1, 2, 3):
        (tmp_path / str(workers)).mkdir()
        done[workers] = []
        rule = LengthRule(max_length=9, skip_empty=True)
        corpus = build(tmp_path / str(workers), files, rule, workers=workers, advance=done[workers].append)
        assert sum(done[workers]) == 1000
    for part in (tmp_path / "1" / "corpus").iterdir():
        for workers in ("2", "3"):
            assert (tmp_path / workers / "corpus" / part.name).read_bytes() == part.read_bytes(), part.name
    assert corpus.report.empty_examples == (f"{files[0].source}, line 451", f"{files[1].source}, line 51")


def test_a_bad_line_far_inside_stops_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "BLOCK", 16)
    files = many(tmp_path, 400)
    lines = files.target.read_bytes().split(b"\n")
    lines[299] += b"\xff"
    files.target.write_bytes(b"\n".join(lines))
    with pytest.raises(DataError, match=r"t\.de, line 300: not UTF-8"):
        build(tmp_path, [files], workers=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.de", "t.en"]


class Killer(WhitespaceTokenizer):
    """Ends its process as the kernel does when memory runs out."""

    def encode_source(self, lines: object) -> list[list[int]]:
        os._exit(9)


def test_a_killed_worker_is_one_line_not_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "BLOCK", 16)
    killer = Killer(Vocabulary(WORDS), Vocabulary(WORDS), options=WhitespaceOptions())
    with pytest.raises(DataError, match="a process that encodes text was killed"):
        build(tmp_path, [many(tmp_path, 100)], workers=2, encoder=Encoder(killer, LengthRule()))


def test_memory_does_not_grow_with_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "BLOCK", 128)
    peaks = []
    for count in (1_000, 8_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        files = many(folder, count)
        tracemalloc.start()
        corpus = build(folder, [files])
        total = sum(int(corpus.source(i).sum()) for i in range(len(corpus)))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert total > 0
    assert peaks[1] < 1.3 * peaks[0]


def test_reading_maps_the_file_and_copies_nothing(tmp_path: Path) -> None:
    corpus = build(tmp_path, [pair(tmp_path, ["w0 w1"], ["w2"])])
    row = corpus.source(0)
    assert not row.flags.owndata and not row.flags.writeable
    assert isinstance(corpus.source_lengths.base, np.memmap)


@pytest.mark.parametrize("damage", ["shorter", "missing", "no meta", "bad meta"])
def test_damaged_folders_are_refused(tmp_path: Path, damage: str) -> None:
    build(tmp_path, [pair(tmp_path, ["w0 w1"], ["w2"])])
    folder = tmp_path / "corpus"
    if damage == "shorter":
        (folder / "target.ids").write_bytes(b"\x01\x00")
    elif damage == "missing":
        (folder / "source.offsets").unlink()
    elif damage == "no meta":
        (folder / "corpus.json").unlink()
    else:
        (folder / "corpus.json").write_text("{}")
    with pytest.raises(DataError, match="not a complete encoded corpus"):
        Corpus(folder)


def test_new_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), new_folder(tmp_path / "a" / "b") as folder:
        (folder / "file").write_text("x")
        raise RuntimeError
    assert list((tmp_path / "a").iterdir()) == []
    for content in ("first", "second"):  # the first to finish wins
        with new_folder(tmp_path / "a" / "b") as folder:
            assert not (folder / "file").exists()
            (folder / "file").write_text(content)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
    assert (tmp_path / "a" / "b" / "file").read_text() == "first"


def test_writer_joins_pieces(tmp_path: Path) -> None:
    piece = FlatSentences.of(np.array([5, 2, 6, 7, 2], np.uint16), np.array([2, 3], np.int32))
    none = FlatSentences.of(np.zeros(0, np.uint16), np.zeros(0, np.int32))
    with CorpusWriter(tmp_path, sizes=(10, 10), key="x") as writer:
        for each in (piece, none, piece):
            writer.append(each, each)
        writer.finish(CorpusReport(read=4, kept=4))
    corpus = Corpus(tmp_path)
    assert [corpus.source(i).tolist() for i in range(4)] == [[5, 2], [6, 7, 2], [5, 2], [6, 7, 2]]


def test_reports_add_up_and_keep_the_first_examples() -> None:
    parts = [CorpusReport(read=2, kept=1, empty=1, empty_examples=(f"f, line {i}",)) for i in range(7)]
    total = sum(parts, CorpusReport())
    assert (total.read, total.kept, total.empty) == (14, 7, 7)
    assert total.empty_examples == tuple(f"f, line {i}" for i in range(5))
    assert total.lines("train")[0].endswith("f, line 4; ...)")
    assert CorpusReport.from_json(asdict(total)) == total


def test_tokens_that_vanish_count_as_an_empty_side(tmp_path: Path) -> None:
    class Silent(WhitespaceTokenizer):
        def encode_target(self, lines: object) -> list[list[int]]:
            return [[] for _ in lines]  # type: ignore[attr-defined]

    silent = Silent(Vocabulary(WORDS), Vocabulary(WORDS), options=WhitespaceOptions())
    files = pair(tmp_path, ["w0"], ["\u200b"])
    block = Block(files, 1, b"w0\n", "\u200b\n".encode(), TextPosition(0, 1))
    assert Encoder(silent, LengthRule(skip_empty=True))(block).report.empty == 1


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="file: cannot be written"), new_folder(tmp_path / "file" / "train"):
        pass
