"""Sessions of the engine write what those in Python write, in whatever pieces the text comes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import nmt
from nmt.compiling import engine_recipe, library
from nmt.config.schema import DecodingConfig
from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.library.translator import Translator as LibraryTranslator
from nmt.light.binding import Session as EngineSession
from nmt.light.errors import EngineError
from nmt.light.options import LIVE
from nmt.light.translator import Translator
from nmt.live.session import Session
from nmt.models import build_model
from nmt.models.base import Seq2Seq
from nmt.registry import POLICIES
from tests.compiled import needed_engine
from tests.interop.engine_models import content_of, section
from tests.light.subword_models import trained, training_text

BLOCKS: dict[str, Any] = {
    "architecture": "transformer",
    "embedding_size": 24,
    "architecture_options": {"heads": 2, "encoder_layers": 2, "decoder_layers": 2},
}
CACHED: dict[str, Any] = {**BLOCKS["architecture_options"], "decoder_mixing": "attention"}
ONE_WAY: dict[str, dict[str, Any]] = {
    "atr": {"cell": "atr", "encoder_layers": 2, "decoder_layers": 2},
    "lrn": {"cell": "lrn", "encoder_layers": 3},
    "gru": {"cell": "gru", "encoder_layers": 2},
    "rnnsearch": {"architecture": "rnnsearch", "cell": "gru"},
    "blocks": {**BLOCKS, "cell": "lrn"},
    "blocks with a cache": {**BLOCKS, "cell": "atr", "architecture_options": CACHED},
    "self-attention": {**BLOCKS, "architecture_options": {**CACHED, "encoder_mixing": "attention"}},
}
LIMIT = {"max_length_offset": 3}
ODD = ["\u9f98", "\u0e01\u0e02", "caf\u00e9", "x\ufeffy", "\U0001f600", "\ufb01", "a\u0301", "(Dr.", "yes!No."]


def source(sentences: int, *, seed: int) -> str:
    """Sentences of words, some of characters that tokenizers do not know or take out, some without spaces."""
    draw, found = random.Random(seed), list[str]()
    while len(found) < sentences:
        words = [*draw.choice(training_text()).split()[:5], *draw.choices(ODD, k=draw.randint(0, 2))]
        draw.shuffle(words)
        found.append("".join(word + draw.choice(["  ", "\n", "\u3000", *" " * 9]) for word in words).strip() + ". The ")
    return "".join(found)


def random_model(tokenizer: SentencePieceTokenizer, **given: Any) -> Seq2Seq:
    """A model whose words differ enough from each other, and often begin."""
    torch.manual_seed(7)
    size = tokenizer.source_size
    begins = torch.tensor([piece.startswith("\u2581") for piece in tokenizer.target_tokens(range(size))])
    model = build_model(section(tie_embeddings="none", **given), size, size)
    tables = model.embeddings
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.add_(torch.randn_like(weight) * (1.0 if "embeddings" in name else 0.3))
        table = tables.target_table if tables.softmax is None else tables.softmax
        table.mul_(4 / table.norm(dim=1, keepdim=True))
        table[~begins] *= 0.85
    return model.eval()


def in_python(model: Seq2Seq, tokenizer: Any, **options: Any) -> Session:
    """Python's session of a model."""
    stub = SimpleNamespace(hypotheses=lambda **_: 1, source_language="en", target_language="de")
    return Session(stub, "wait_k", options, (model, tokenizer, nullcontext, DecodingConfig(**LIMIT)))


def fed(session: Any, pieces: list[str]) -> list[str]:
    """What is returned for each piece, and at the end."""
    return [*map(session.feed, pieces), session.end()]


def words_of(text: str) -> list[str]:
    return [f"{word} " for word in text.split(" ")]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("name", ONE_WAY)
def test_a_model_that_reads_forward_writes_what_it_writes_in_python(name: str, kind: str, tmp_path: Path) -> None:
    """After each word, however long it waits for the first ones."""
    proto = trained(model_type=kind, byte_fallback=name == "lrn", user_defined_symbols=[] if name == "gru" else ["x-y"])
    tokenizer = SentencePieceTokenizer(proto, proto, options=SentencePieceOptions())
    model = random_model(tokenizer, encoder_direction="forward", **ONE_WAY[name])
    path = tmp_path / "model.nmt"
    path.write_bytes(content_of(model, subwords=(proto, proto), **LIMIT))
    with Translator(path, library=needed_engine()) as translator:
        seen = set[str]()
        for wait in (1, 3, 40):
            pieces, other = words_of(source(8, seed=wait)), in_python(model, tokenizer, wait=wait)
            found = fed(translator.live(wait=wait), pieces)
            assert found == fed(other, pieces)
            assert wait > 3 or sum(map(bool, found)) > 5
            seen |= {*"".join(found).split()}
        assert len(seen) > 2 or name == "atr"


CAPITALS = (
    "The Dog sleeps in Berlin",
    "the dog SLEEPS",
    "a cat in BERLIN eats",
    "The Cat Of The Dog eats",
    "NATO and the cat",
)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_words_in_capitals_are_split_as_in_python(kind: str, tmp_path: Path) -> None:
    """Of a model with case marks, which are about several words: in segments that end with words in small letters."""
    (tmp_path / "text").write_text("\n".join(CAPITALS * 20) + "\n", encoding="utf-8")
    options = SentencePieceOptions(case="markup", model_type=kind, vocab_size=90, byte_fallback=False)
    tokenizer = SentencePieceTokenizer.train([tmp_path / "text"], [tmp_path / "text"], options=options, seed=1)
    model = random_model(tokenizer, encoder_direction="forward", **ONE_WAY["blocks"])
    path = tmp_path / "model.nmt"
    path.write_bytes(content_of(model, subwords=(tokenizer.models * 2)[:2], **LIMIT))
    draw, words = random.Random(3), sorted({word for line in CAPITALS for word in line.split()})
    text = [
        draw.choice([str.lower, str.upper, str.title, str])(draw.choice([*words, "☃", "x1", "Ünd-so"]))
        for _ in range(150)
    ]
    pieces = [f"{word}{'. ' if place % 40 == 39 else ' '}" for place, word in enumerate(text)]
    with Translator(path, library=needed_engine()) as translator:
        for wait in (1, 3):
            found = fed(translator.live(wait=wait), pieces)
            assert found == fed(in_python(model, tokenizer, wait=wait), pieces)
            assert len({*"".join(found).split()}) > 5


def test_the_engine_has_the_policies_of_python_and_their_options() -> None:
    """Its own are in C: `read_policy` refuses what is not among them."""
    own = {name: [field.name for field in fields(POLICIES.get(name).Options)] for name in POLICIES.names()}
    assert own == {name: [option] for name, option in LIVE.items()}


@pytest.mark.slow
def test_an_engine_may_be_without_them(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compiled of the files that are there, translates, and says what it lacks."""
    monkeypatch.setattr("nmt.light.sources._LIVE", "live/nowhere.c")
    with Translator(file, library=library(engine_recipe())) as translator:
        assert translator.translate(["the small dog"])
        with pytest.raises(EngineError, match="^this engine was compiled without live translation$"):
            translator.live(wait=3)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that reads both ways."""
    proto = trained(model_type="unigram")
    tokenizer = SentencePieceTokenizer(proto, proto, options=SentencePieceOptions())
    path = tmp_path_factory.mktemp("live") / "model.nmt"
    model = random_model(tokenizer, cell="gru", encoder_layers=1)
    path.write_bytes(content_of(model, subwords=(proto, proto), beam_size=2, **LIMIT))
    return path


@pytest.fixture
def translator(file: Path) -> Iterator[Translator]:
    with Translator(file, library=needed_engine()) as opened:
        yield opened


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("wait_k", {"wait": 2}),
        ("wait_k", {"wait": 2, "beam_size": 3}),
        ("local_agreement", {}),
        ("local_agreement", {"agree": 3, "beam_size": 1}),
        ("alignatt", {"unread": 1}),
        ("alignatt", {}),
    ],
)
def test_translating_anew_writes_what_python_does(policy: str, options: dict[str, Any], file: Path) -> None:
    """Also what may follow."""
    needed_engine()
    with nmt.load(file) as opened:
        own, other = opened.live(policy, **options), LibraryTranslator.live(opened, policy, **options)
        assert isinstance(own, EngineSession) and isinstance(other, Session)
        for piece in words_of(source(5, seed=2)):
            assert (own.feed(piece), own.tail) == (other.feed(piece), other.tail)
        assert own.end() == other.end()


def test_pieces_of_any_bytes_make_no_difference(translator: Translator) -> None:
    """Nor do bytes that are no text, a 0 among them, nor another session beside it."""
    text = source(3, seed=4).encode() + b"a\xff\xe4 b\0c \xf0\x9f d\xe4\xb8\xad \xe3\x80"
    raw = bytearray(text)

    def told(*pieces: bytes) -> tuple[bytes, int]:
        session, other = translator.live(wait=2), translator.live("local_agreement")
        parts = []
        for piece in pieces:
            parts.append(session._called("nmt_live_feed", bytes(piece), len(piece)))
            other.feed("word ")
        words = session.open_words
        return b"".join([*parts, session.end().encode()]), words

    expected = told(raw)
    assert expected[0].count(b" ") > 5
    assert told(*(raw[place : place + 1] for place in range(len(raw)))) == expected
    for place in range(0, len(raw), 7):
        assert told(raw[:place], raw[place:]) == expected


def test_a_session_that_ends_early(translator: Translator) -> None:
    session = translator.live()
    session.feed("the dog ")
    session.close()
    assert session.tail == ""
    with pytest.raises(EngineError, match="^this session has ended$"):
        session.feed("x")
    with translator.live() as other, pytest.raises(TypeError, match="text must be a string, not bytes"):
        other.feed(b"x")  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="half of a surrogate pair"):
        translator.live().feed("\ud800")
    session = translator.live("alignatt")
    translator.close()
    assert isinstance(session.feed("the dog ") + session.end(), str)


@pytest.mark.parametrize(
    ("policy", "options", "said"),
    [
        (
            "wait-k",
            {},
            "'wait-k' is not a known policy of live translation. Allowed: wait_k, local_agreement, alignatt.",
        ),
        ("wait_k", {"wait": 0}, "wait_k: wait: must be at least 1, not 0"),
        ("wait_k", {"wait": 2.5}, "wait_k: wait=2.5: is not a whole number, such as wait=3"),
        ("wait_k,wait", {}, "wait_k: wait: is not a whole number, such as wait=3"),
        ("wait_k,wait=9999999999999", {}, "wait_k: wait=9999999999999: is not a whole number, such as wait=3"),
        ("local_agreement,agree=1", {}, "local_agreement: agree: must be at least 2, not 1"),
        ("alignatt", {"wait": 2}, "wait: is not an option of alignatt. Allowed: unread."),
        (
            "wait_k",
            {"revise": True},
            "revise: the engine takes back nothing that it has read. In Python nmt.load(FILE).live(revise=True) does.",
        ),
        ("wait_k", {"beam_size": 0}, "beam_size: 0 is not allowed. Allowed: 1 to 1,000."),
        ("wait_k", {"prefix": "x"}, "prefix: a live session has no such option"),
        ("wait_k", {"placeholders": True}, "placeholders: a live session has no such option"),
    ],
)
def test_what_the_engine_refuses(policy: str, options: dict[str, Any], said: str, translator: Translator) -> None:
    with pytest.raises(EngineError) as caught:
        translator.live(policy, **options)
    assert str(caught.value) == said


def test_what_speech_recognisers_send(translator: Translator) -> None:
    session, other = translator.live(wait=1), translator.live(wait=1)
    found = [session.revise(text) for text in ("", "the", "the dog", "the dog runs ")]
    assert found == [other.feed(text) for text in ("", "", "the ", "dog runs ")] and session.open_words == 3
    with pytest.raises(EngineError, match="text does not begin with what has been read of it, 'the dog runs '"):
        session.revise("the cat runs on")
    assert session.revise("the dog runs on.", final=True) == other.feed("on. ")
    assert session.revise("a cat") + session.end() == other.feed("a ") + other.end()


def test_one_word_of_a_sentence_without_an_end(translator: Translator) -> None:
    """A megabyte in small pieces is no word before it ends."""
    session = translator.live()
    for _ in range(1000):
        assert session.feed("x" * 1000) == ""
    session.close()
