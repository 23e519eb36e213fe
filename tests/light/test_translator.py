"""`nmt_light.Translator` in Python: arguments that are not allowed are refused."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nmt
import nmt.light
from nmt.light import EngineError, NmtError, Translator
from tests.interop.engine_models import content_of, make_model, section
from tests.light.engine_files import pieces
from tests.light.subword_models import edited

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
    for lines, name in (("ab", "str"), (b"ab", "bytes"), (5, "int")):
        with pytest.raises(TypeError, match=f"^lines must be an iterable of strings, not {name}$"):
            translator.stream(lines)  # type: ignore[arg-type]
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


def test_without_scores_there_are_the_same_tokens(translator: Translator) -> None:
    """Greedy search does not compute them where nobody asks; nothing else depends on that."""
    greedy = {"beam_size": 1, "details": ["tokens", "alignment"]}
    for with_scores, without in zip(
        translator.translate(LINES, **greedy), translator.translate(LINES, scores=False, **greedy), strict=True
    ):
        assert (without.text, without.tokens, without.alignment) == (
            with_scores.text,
            with_scores.tokens,
            with_scores.alignment,
        )
        assert math.isnan(without.score) == bool(without.source_tokens)
    assert translator.translate(LINES[0], scores=False, **greedy).tokens


def test_a_glossary_is_terms_a_file_or_one_that_was_opened(translator: Translator, tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_bytes(b"\xef\xbb\xbf# a file\r\n\xe4\xb8\x81\tA b\r\n")
    opened = translator.glossary({"\u4e01": "A  b"})
    for glossary in (opened, {"\u4e01": "A b"}, path, str(path)):
        found = translator.translate(LINES, glossary=glossary, details=["alignment"])
        assert found[0].text.split().count("A") == 1 and found[0].alignment
        assert found[1:] == translator.translate(LINES[1:], details=["alignment"])
    assert translator.translate(LINES, glossary="none") == translator.translate(LINES)
    with pytest.raises(NmtError, match="a Glossary cannot be copied"):
        copy.copy(opened)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a\tb\nc\n", "terms.tsv, line 2: 'c' is not a term, a tab and its translation"),
        (b"a\tb\n\xff\n", "terms.tsv, line 2: .*not UTF-8"),
        (b"# a\n", "terms.tsv: the glossary is empty"),
        (None, "terms.tsv: no such file"),
        ({}, "^glossary: has no term"),
        ({"a": " "}, "^glossary: 'a': the term or its translation is empty"),
        ({"a": 1}, "^glossary: the translation of 'a' must be a string, not int"),
        ({"e\u0301": "b", "\u00e9": "c"}, "^glossary, line 2: '\u00e9' has two translations, 'b' and 'c'"),
        (5, "^glossary must be terms with their translations or a file, not int"),
    ],
)
def test_what_can_be_no_glossary_is_one_line(
    translator: Translator, tmp_path: Path, content: Any, problem: str
) -> None:
    given = tmp_path / "terms.tsv" if content is None or isinstance(content, bytes) else content
    if isinstance(content, bytes):
        given.write_bytes(content)
    with pytest.raises(NmtError, match=problem) as caught:
        translator.translate(LINES, glossary=given)
    assert "\n" not in str(caught.value)


def test_a_line_separator_in_a_translation_ends_no_text(engine: Path, tmp_path: Path) -> None:
    """Only a line feed does, as everywhere else."""
    own = make_model(section())
    target = edited(pieces(own.target_vocab_size), separated)
    (tmp_path / "model.nmt").write_bytes(content_of(own, subwords=(pieces(own.source_vocab_size), target)))
    with Translator(tmp_path / "model.nmt", library=engine) as translator:
        texts = translator.texts(LINES)
        assert texts == [result.text for result in translator.translate(LINES)]
        assert any("\u2028" in text for text in texts)


def separated(message: Any) -> None:
    """Every character of a model's vocabulary with a line separator before it."""
    for piece in message.pieces:
        if piece.type == piece.NORMAL and piece.piece != "\u2581":
            piece.piece = f"\u2028{piece.piece}"


def test_a_translator_and_what_it_has_found_are_neither_copied_nor_pickled(translator: Translator) -> None:
    """A copy would give the memory of the engine back a second time."""
    found = translator.found([b"a"])
    for one in (translator, translator._model, found):
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=r"^a \w+ cannot be copied or pickled; open the file again"):
                way(one)
    assert found.texts() and translator.translate(LINES)
    result = translator.translate(LINES[0])
    assert pickle.loads(pickle.dumps(result)) == copy.deepcopy(result) == result


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((5,), {}),
        ((None,), {}),
        (([None],), {}),
        (([],), {}),
        (("a\ud800",), {}),
        (("none.nmt",), {}),
        (("MODEL",), {"kernels": 5}),
        (("MODEL",), {"kernels": "\ud800"}),
        (("MODEL",), {"kernels": "plain\0"}),
        (("MODEL",), {"threads": "2"}),
        (("MODEL",), {"library": 5}),
        (("MODEL",), {"library": "a\0b"}),
        (("MODEL",), {"library": "none.so"}),
    ],
)
def test_what_cannot_be_opened_is_an_error_of_nmt_in_one_line(
    translator: Translator, engine: Path, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    files = [translator.paths[0] if argument == "MODEL" else argument for argument in arguments]
    with pytest.raises(NmtError) as caught:
        Translator(*files, **{"library": engine, **options})
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("method", "arguments", "options"),
    [
        ("translate", (5,), {}),
        ("translate", (b"a",), {}),
        ("translate", ({"a"},), {}),
        ("translate", ([b"a"],), {}),
        ("translate", ("\ud800",), {}),
        ("translate", ("a",), {"details": 5}),
        ("translate", ("a",), {"details": [[]]}),
        ("translate", ("a",), {"search": []}),
        ("translate", ("a",), {"beam_size": "4"}),
        ("translate", ("a",), {"beam": 4}),
        ("texts", (5,), {}),
        ("texts", ("ab",), {}),
        ("texts", ([None],), {}),
        ("texts", ([b"a"],), {}),
        ("score", ([b"a"], ["b"]), {}),
        ("found", (["a"],), {}),
        ("stream", (5,), {}),
        ("stream", ("ab",), {}),
        ("stream", (["a"],), {"window": 0}),
        ("card_of", (1,), {}),
        ("card_of", ("0",), {}),
    ],
)
def test_every_mistake_is_an_error_of_nmt_in_one_line(
    translator: Translator, method: str, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    with pytest.raises(NmtError) as caught:
        getattr(translator, method)(*arguments, **options)
    assert str(caught.value).isprintable()


def test_within_nmt_its_errors_and_its_version_are_those_of_nmt() -> None:
    assert nmt.light.NmtError is nmt.NmtError and issubclass(EngineError, nmt.NmtError)
    assert nmt.light.__version__ == nmt.__version__


def test_a_closed_translator_says_so(translator: Translator, engine: Path) -> None:
    with Translator(translator.paths[0], library=engine) as other:
        pass
    assert repr(other) == f"<Translator {translator.paths[0]}, closed>"
    with pytest.raises(NmtError, match="^the model is closed$"):
        other.translate(LINES)


FORKS = """
import os, signal, sys, threading
from nmt.light import Translator

importing, forked = threading.Event(), threading.Event()


class Slow:
    def find_spec(self, name, path=None, target=None):
        importing.set()
        forked.wait(20)


sys.meta_path.insert(0, Slow())
with Translator(sys.argv[1], library=sys.argv[2]) as translator:
    thread = threading.Thread(target=lambda: (translator.translate("\u4e01"), translator.card))
    thread.start()
    while thread.is_alive() and not importing.wait(0.01):
        pass  # until what a first translation imports is half there
    child = os.fork()
    if not child:
        signal.alarm(20)
        result = translator.translate("\u4e01")
        os._exit(0 if result.text is not None and translator.card == {} else 2)
    forked.set()
    thread.join()
    print(os.waitpid(child, 0)[1])
"""


def test_a_process_that_forks_during_the_first_translation_does_not_hang(translator: Translator, engine: Path) -> None:
    command = [sys.executable, "-c", FORKS, translator.paths[0], str(engine)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "0\n"
