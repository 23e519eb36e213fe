"""`nmt_light.Translator` in Python: arguments that are not allowed are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nmt.light import EngineError, Translator
from tests.interop.engine_models import content_of, make_model, section
from tests.light.engine_files import pieces

LINES = ["\u4e01", "\u4e02\u4e03", ""]


@pytest.fixture(scope="module")
def translator(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Translator]:
    own = make_model(section())
    path = tmp_path_factory.mktemp("model") / "model.nmt"
    path.write_bytes(content_of(own, subwords=(pieces(own.source_vocab_size), pieces(own.target_vocab_size))))
    with Translator(path, library=engine) as translator:
        yield translator


def test_a_path_with_a_byte_0_is_not_cut(translator: Translator, engine: Path) -> None:
    (path,) = translator.paths
    for paths in (f"{path}\0x.nmt", [path, f"{path}\0"]):
        with pytest.raises(EngineError, match=r"model\.nmt\\x00(x\.nmt)?: a byte 0 cannot be part of a path$"):
            Translator(paths, library=engine)


@pytest.mark.parametrize("window", [0, -1, True, 2.0, "2", None])
def test_a_window_is_a_number_from_1(translator: Translator, window: Any) -> None:
    with pytest.raises(TypeError, match=r"^window must be a whole number of 1 or more, not "):
        translator.stream(LINES, window=window)


def test_wrong_arguments_of_a_stream_raise_before_its_first_result(translator: Translator) -> None:
    for lines, name in (("ab", "str"), (b"ab", "bytes")):
        with pytest.raises(TypeError, match=f"^lines must be an iterable of strings, not {name}$"):
            translator.stream(lines)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not iterable"):
        translator.stream(5)  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="^beam_size: 0 is not allowed"):
        translator.stream(LINES, beam_size=0)


def test_a_stream_is_read_window_by_window(translator: Translator) -> None:
    items = iter(LINES)
    results = translator.stream(items, window=2)
    expected = translator.translate(LINES)
    assert next(results) == expected[0] and list(items) == LINES[2:]
    assert list(translator.stream(iter(LINES), window=2)) == expected


def test_switches_are_booleans(translator: Translator) -> None:
    chosen = [translator._options({"shortlist": value})[0].shortlist for value in (None, True, False, "none")]
    assert chosen == [True, True, False, False]
    assert [translator._options({"scores": value})[0].scores for value in (True, False)] == [True, False]
    for name, value, allowed in (
        ("shortlist", "words.txt", "True, False, none"),
        ("shortlist", 1, "True, False, none"),
        ("scores", "none", "True, False"),
        ("scores", "no", "True, False"),
        ("scores", 0, "True, False"),
    ):
        with pytest.raises(EngineError, match=f"^{name}: {value!r} is not allowed. Allowed: {allowed}.$"):
            translator.translate("\u4e01", **{name: value})
