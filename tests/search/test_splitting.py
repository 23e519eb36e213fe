"""Lines that are too long: cut at sentence ends, translated in bounded batches, put together again."""

from __future__ import annotations

import dataclasses
import math
import time

import pytest
import torch
from torch import Tensor

from nmt.config import DecodingConfig
from nmt.data import EOS, text
from nmt.data.sentences import Lines
from nmt.interop.model_dir import LoadedModel, load_model
from nmt.search import Hypothesis
from nmt.search.source import Part, Sources
from nmt.search.translator import Translator
from nmt.search.values import Request
from tests.tiny_run import make_run


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(make_run(tmp_path_factory.mktemp("runs") / "run"))


def translator(loaded: LoadedModel, **changes: object) -> Translator:
    decoding = dataclasses.replace(loaded.config.decoding, **{"precision": "fp32", **changes})
    return Translator(loaded.model, loaded.tokenizer, decoding)


def parts_of(line: str, tokenizer: object, *, longest: int) -> list[Part]:
    decoding = DecodingConfig(split="none", split_long=longest)
    found = Sources(tokenizer, decoding, Lines("en", "de")).of([Request(line)])  # type: ignore[arg-type]
    return [part for source in found.values() for part in source.parts]


def texts(loaded: LoadedModel, line: str, longest: int) -> list[str]:
    return [loaded.tokenizer.decode_source(part.ids) for part in parts_of(line, loaded.tokenizer, longest=longest)]


@pytest.mark.parametrize(
    ("line", "longest", "parts"),
    [
        ("a b c .  d a .  b .", 5, ["a b c <unk>", "d a <unk> b <unk>"]),
        ("a b c . d a . b .", 100, ["a b c <unk> d a <unk> b <unk>"]),
        ('a ?" b !) c . . d', 2, ["a <unk>", "b <unk>", "c <unk>", "<unk> d"]),
        ("a b c d. a", 2, ["a b", "c <unk>", "a"]),
        ("a b c", 1, ["a", "b", "c"]),
    ],
)
def test_parts_end_with_sentences_or_else_words(loaded: LoadedModel, line: str, longest: int, parts: list[str]) -> None:
    assert texts(loaded, line, longest) == parts


class Letters:
    """A tokenizer whose tokens are the characters but white space, as for languages without words."""

    def encode_source(self, lines: list[str]) -> list[list[int]]:
        return [[ord(letter) for letter in line if not letter.isspace()] for line in lines]

    def languages(self) -> dict[str, int]:
        return {}


@pytest.mark.parametrize(
    ("line", "longest", "parts"),
    [
        ("今日。明日！昨日", 4, ["今日。", "明日！", "昨日"]),
        ("abcdefgh i", 3, ["abc", "def", "gh", "i"]),
        ("一。」二", 3, ["一。」", "二"]),
    ],
)
def test_text_without_words(line: str, longest: int, parts: list[str]) -> None:
    found = parts_of(line, Letters(), longest=longest)
    assert ["".join(map(chr, part.ids)) for part in found] == parts


@pytest.mark.parametrize("unit", [".", ". ", "a", "ab c. ", " ", "。", '"', '."'])
def test_nothing_is_lost_and_time_is_linear(unit: str) -> None:
    line = unit * (60_000 // len(unit))
    started = time.process_time()
    found = parts_of(line, Letters(), longest=100)
    assert time.process_time() - started < 10
    assert "".join(chr(i) for part in found for i in part.ids) == "".join(line.split())
    assert all(0 < len(part.ids) <= 100 for part in found)


def test_a_line_in_parts_has_the_translations_of_its_parts(loaded: LoadedModel) -> None:
    parts = ["a b c .", "d c a .", "b"]
    whole = translator(loaded, split_long=4, n_best=3).translate_window([" ".join(parts), "", "a"])
    alone = translator(loaded, n_best=3).translate_window([*parts, "a"])
    assert [line.parts for line in whole] == [3, 1, 1]
    found, pieces = whole[0], alone[:3]
    for rank, hypothesis in enumerate(found.hypotheses):
        chosen = [piece.hypotheses[min(rank, len(piece.hypotheses) - 1)] for piece in pieces]
        assert hypothesis.text == " ".join(part.text for part in chosen if part.text)
        assert hypothesis.score == pytest.approx(sum(part.score for part in chosen), abs=1e-5)
    assert [h.score for h in found.hypotheses] == sorted((h.score for h in found.hypotheses), reverse=True)
    assert found.source_tokens == 9 and found.longest_part == 4 and found.unknown == 2
    assert found.has_ended == all(piece.has_ended for piece in pieces)
    assert whole[2] == alone[3]


def test_one_part_without_a_finite_hypothesis_leaves_the_line_without(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(self: Translator, sources: list[list[int]], *_: object) -> list[list[Hypothesis]]:
        return [[Hypothesis([4], -1.0, is_finite=source[0] != 4)] for source in sources]

    monkeypatch.setattr(Translator, "search", search)
    found = translator(loaded, split_long=1).translate_window(["a c", "a b", "c c"])
    assert [line.is_finite for line in found] == [True, False, True]
    assert [(h.text, h.score) for h in found[1].hypotheses] == [("", -math.inf)]


def test_a_very_long_line_beside_short_ones_stays_within_the_batch(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[torch.Size] = []

    def search(self: Translator, source: Tensor, *_: object) -> list[list[Hypothesis]]:
        shapes.append(source.shape)
        assert all(EOS in row for row in source.tolist())
        return [[Hypothesis([3], -1.0)] for _ in source]

    monkeypatch.setattr(Translator, "_search_batch", search)
    long = "a b c d . " * 20_000
    found = translator(loaded, batch_tokens=12_000, beam_size=4).translate_window(["a", long, "b c", ""])
    assert [line.parts for line in found] == [1, 100, 1, 1]
    assert found[1].best == " ".join(["x"] * 100) and found[1].source_tokens == 100_000
    assert max(width for _, width in shapes) == 1001
    assert all(rows * width * 4 <= 12_000 for rows, width in shapes)
    shapes.clear()
    translator(loaded, split_long=None).translate_window(["a b " * 1000])
    assert shapes == [(1, 2001)]


def test_long_lines_make_windows_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.data.text.CHARACTERS", 10)
    assert list(text.windows(["12345678", "9", "1", "2", "x" * 50, "3", "4"], size=3)) == [
        ["12345678", "9", "1"], ["2", "x" * 50], ["3", "4"],
    ]  # fmt: skip
