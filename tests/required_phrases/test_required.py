"""Required phrases through the translator: words and subwords, lists, ensembles, beside the other wishes of a line."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.data.matching import is_in_text
from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.errors import DataError
from nmt.interop.model_dir import LoadedModel, load_model
from nmt.search.constraints import joining
from nmt.search.shortlist import Shortlist
from nmt.search.translator import Translator
from nmt.search.values import Request, Translation
from tests.tiny_run import make_run

LINES = ["a b c", "d", "a a b c d", "c b", "b b b"]
PHRASES: list[tuple[str, ...]] = [("w v",), (), ("x", "y z"), ("u",), ("t@@ x", "v v v")]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(make_run(tmp_path_factory.mktemp("runs") / "run"))


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A model with subwords."""
    return load_model(make_run(tmp_path_factory.mktemp("runs") / "run", sentencepiece=True))


def translator(loaded: LoadedModel, *, others: Sequence[Any] = (), **changes: Any) -> Translator:
    settings = {"precision": "fp32", "batch_tokens": 4096, "search": "beam", **changes}
    return Translator(
        loaded.model, loaded.tokenizer, dataclasses.replace(loaded.config.decoding, **settings), others=others
    )


def requests() -> list[Request]:
    return [Request(text=line, required=phrases) for line, phrases in zip(LINES, PHRASES, strict=True)]


def has_all(found: Translation, phrases: Sequence[str]) -> bool:
    return all(is_in_text(phrase.replace("@@ ", ""), one.text) for phrase in phrases for one in found.hypotheses)


@pytest.mark.parametrize(
    "options",
    [{}, {"beam_size": 1}, {"beam_size": 5, "n_best": 5}, {"search": "noisy_beam"}, {"max_length_offset": 0},
     {"no_repeat_ngram": 1}, {"no_repeat_ngram": 2, "beam_size": 1}, {"min_length": 3}, {"coverage_penalty": 0.5},
     {"precision": "int8"}, {"split_long": 2}],
)  # fmt: skip
def test_every_phrase_is_in_the_translation(loaded: LoadedModel, options: dict[str, Any]) -> None:
    found = list(translator(loaded, **options).translations(requests()))
    for phrases, one in zip(PHRASES, found, strict=True):
        assert one.missing == 0
        assert has_all(one, phrases)
        assert options.get("split_long") is None or one.parts == 1 or not phrases
        assert min(len(h.text.split()) for h in one.hypotheses) >= options.get("min_length", 0)


def test_companions_change_nothing(loaded: LoadedModel) -> None:
    together = list(translator(loaded).translations(requests()))
    alone = list(translator(loaded, batch_tokens=1).translations(requests()))
    assert [one.best for one in alone] == [one.best for one in together]
    free = list(translator(loaded).translations(LINES))
    # Who asks for nothing gets what he would get; a CPU without AVX-512 adds up other numbers of rows in another order.
    assert together[1].best == free[1].best
    assert together[1].hypotheses[0].score == pytest.approx(free[1].hypotheses[0].score, rel=1e-6)
    assert together[0].best != free[0].best


def test_a_list_gets_the_words_of_the_phrases(loaded: LoadedModel) -> None:
    usual = translator(loaded)
    tokenizer = loaded.tokenizer
    usual._shortlist = Shortlist(
        frequent=torch.tensor([3, 4]),
        partners=torch.empty(0, dtype=torch.int32),
        starts=torch.zeros(tokenizer.source_size + 1, dtype=torch.int64),
        target_size=tokenizer.target_size,
    )
    for phrases, one in zip(PHRASES, usual.translations(requests()), strict=True):
        assert has_all(one, phrases)
        allowed = {"x", "y", "\u2047", *(word for phrase in phrases for word in phrase.replace("@@ ", "").split())}
        assert set(one.best.split()) <= allowed | {"<unk>", "tx", "ty"}


def test_an_ensemble(loaded: LoadedModel, tmp_path: Path) -> None:
    other = load_model(make_run(tmp_path / "other", steps=(30,), best=()))
    for phrases, one in zip(PHRASES, translator(loaded, others=[other.model]).translations(requests()), strict=True):
        assert has_all(one, phrases)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_beside_a_prefix_and_forbidden_phrases(loaded: LoadedModel, beam_size: int) -> None:
    asked = [
        Request(text="a b", required=("x y",), prefix="u z", forbidden=("v",)),
        Request(text="a b", required=("x y",), prefix="x y"),
        Request(text="a b c", required=("x", "y"), forbidden=("x y", "y x")),
        Request(text="c", required=("x",), prefix="t@@"),
    ]
    found = list(translator(loaded, beam_size=beam_size).translations(asked))
    for request, one in zip(asked, found, strict=True):
        assert one.best.startswith(request.prefix.replace("@@", ""))
        assert has_all(one, request.required)
        assert not any(is_in_text(phrase, h.text) for phrase in request.forbidden for h in one.hypotheses)
        assert one.missing == 0


@pytest.mark.parametrize("beam_size", [1, 3])
def test_subwords_after_a_phrase_do_not_make_its_last_word_longer(pieces: LoadedModel, beam_size: int) -> None:
    asked = [
        Request(text="a long sentence", required=required)
        for required in [("sent",), ("of", "long"), ("\u00df",), ("er sent", "x"), ("q \u4e16",)]
    ]
    for request, one in zip(asked, translator(pieces, beam_size=beam_size).translations(asked), strict=True):
        assert has_all(one, request.required), (request.required, one.best)
        assert one.missing == 0


@pytest.mark.parametrize(
    ("request_", "options", "message"),
    [
        ({"required": ("x",)}, {"search": "greedy", "beam_size": 1}, "'greedy'. Allowed: beam"),
        ({"required": ("x",)}, {"search": "sample"}, "not possible with the search 'sample'"),
        ({"required": ("x",)}, {"search": "diverse_beam", "beam_size": 4}, "possible with the search 'diverse_beam'"),
        ({"required": (" ",)}, {}, "required: a phrase is empty"),
        ({"required": ("x nowhere",)}, {}, "required: 'x nowhere' has a word that is not in the model's vocabulary"),
        ({"required": ("x y z",), "forbidden": ("y",)}, {}, "required: 'x y z' contains 'y', which is forbidden"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(
    loaded: LoadedModel, request_: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError) as caught:
        list(translator(loaded, **options).translations([Request(text="a b", where="in, line 3", **request_)]))
    assert str(caught.value).startswith("in, line 3: ")
    assert message in str(caught.value)


def test_a_phrase_that_is_missing_is_counted(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    (empty,) = translator(loaded).translations([Request(text=" ", required=("x", "y"))])
    assert empty.missing == 2
    monkeypatch.setattr("nmt.search.beam.BeamSearch.accepts", frozenset({"required"}))
    monkeypatch.setattr("nmt.search.constraints.ConstraintsMaker.required", lambda *_, **__: None)
    found = list(translator(loaded).translations(requests()))
    assert sum(one.missing for one in found) > 0


def test_parts_of_characters_may_become_letters(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("".join(f"Haus {letter}\u00fc Haust\u00fcr {letter}.\n" for letter in "abcdefgh"), encoding="utf-8")
    tokenizer = SentencePieceTokenizer.train([text], [text], options=SentencePieceOptions(vocab_size=290), seed=1)
    pieces = tokenizer.target_pieces()
    assert pieces is not None
    left, right = joining(pieces)
    by_name = {name: place for place, name in enumerate(tokenizer.target_tokens(range(tokenizer.target_size)))}
    assert left[by_name["<0xC3>"]] and right[by_name["<0xC3>"]]
    assert not left[by_name["<0x2E>"]] and not left[by_name["\u2581"]]
    assert left[by_name["a"]] and right[by_name["a"]]
    assert not left[:3].any()


def test_whole_words_of_a_text() -> None:
    assert is_in_text("Haus", "Das Haus, das") and is_in_text("das  Haus", "das Haus")
    assert not is_in_text("Haus", "Haust\u00fcr") and not is_in_text("Haus", "ein Hochhaus")
    assert is_in_text("Haus", "Haust\u00fcr Haus")
