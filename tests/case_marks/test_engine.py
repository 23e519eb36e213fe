"""The engine's case marks beside those of nmt/case_marks: the same ids and texts."""

from __future__ import annotations

import random

import pytest

from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from tests.case_marks.test_marks import ODD, WORDS
from tests.light.subwords_library import Library, Model, compiled

LINES = [f"the {size} Dog of NASA saw the {thing}." for size in ("small", "big") for thing in ("Mann", "iPhone", "cat")]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(compiled(tmp_path_factory.mktemp("library") / "subwords.so", "-O2", "-shared", "-fPIC"))


@pytest.fixture(scope="module", params=[("bpe", "nfc"), ("unigram", "nmt_nfkc"), ("bpe", "identity")], ids=str)
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SentencePieceTokenizer:
    kind, rule = request.param
    text = tmp_path_factory.mktemp("text") / "text"
    text.write_text("\n".join(LINES * 3) + "\n", encoding="utf-8")
    symbols = ["<BT>", "⇧⇧X"]
    options = SentencePieceOptions(
        vocab_size=330, case="markup", model_type=kind, normalization=rule, symbols=symbols, joint=False
    )
    return SentencePieceTokenizer.train([text], [text], options=options, seed=1)


@pytest.fixture(scope="module")
def model(library: Library, tokenizer: SentencePieceTokenizer) -> Model:
    return library.open(tokenizer.models[1])


def lines(count: int) -> list[str]:
    draw = random.Random(3)
    words = [*WORDS, "<BT>", "⇧⇧X", "x'Y", "(A)", "Dog", "DOG", "saw", "Of"]
    found = ["".join(draw.choices([*ODD, *" " * 30], k=draw.randrange(14))) for _ in range(count)]
    return [*found, *(" ".join(draw.choices(words, k=draw.randrange(9))) for _ in range(count))]


@pytest.mark.parametrize("count", [1000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_ids_and_texts_are_the_same(tokenizer: SentencePieceTokenizer, model: Model, count: int) -> None:
    texts = lines(count)
    for text, ids in zip(texts, tokenizer.encode_target(texts), strict=True):
        assert model.encode(text.encode()) == ids, text
        assert model.decode(ids).decode() == tokenizer.decode_target(ids), text
        assert model.spelled(text.encode()).decode() == tokenizer.spelled(text)
    for text, ids in zip(texts, tokenizer.encode_inside(texts), strict=True):
        assert model.encode(text.encode(), inside=True) == ids, text


def test_places_of_tokens_are_the_same(tokenizer: SentencePieceTokenizer, model: Model) -> None:
    for text in lines(400):
        raw = text.encode()
        spans = [(len(raw[:begin].decode()), len(raw[:end].decode())) for begin, end in model.spans(raw)]
        ids = model.encode(raw)
        if tokenizer.models[0] == tokenizer.models[1]:
            assert spans == tokenizer.source_spans(text), text
        own, places = tokenizer.target_spans(ids)
        written = model.decode(ids)
        assert [len(written[:end].decode()) for end in model.ends(ids)] == [end for _, end in places], text
        assert len(own) == len(written.decode())


def test_texts_of_any_ids_are_the_same(tokenizer: SentencePieceTokenizer, model: Model) -> None:
    draw = random.Random(4)
    marks = tokenizer.encode_target(["⇧ x"])[0]
    often = [*range(3, 12), *marks]
    for _ in range(2000):
        ids = [
            draw.choice(often) if draw.random() < 0.5 else draw.randrange(3, tokenizer.target_size) for _ in range(8)
        ]
        assert model.decode(ids).replace(b"\n", b" ").replace(b"\r", b" ").decode() == tokenizer.decode_target(ids)


def test_bytes_that_are_no_text_are_kept_from_the_marks(tokenizer: SentencePieceTokenizer, model: Model) -> None:
    for text in (b"\xff\xc3", b"A\xe2\x87", b"\xf0\x9f Dog DOG\x80", b"\xe2\x87\xa7\xe2"):
        as_text = b"".join(bytes([b]) if b < 128 else b"\xef\xbf\xbd" for b in text.replace("⇧".encode(), b"")).decode()
        assert model.decode(model.encode(text)).decode().replace("⇧", "") == tokenizer.source_form(as_text)


def test_a_table_of_another_kind_is_refused(library: Library, tokenizer: SentencePieceTokenizer) -> None:
    with pytest.raises(ValueError, match="case marks of a kind that is not known here"):
        library.open(tokenizer.models[1].replace(b"markup 1\n", b"markup 2\n"))
