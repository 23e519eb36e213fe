"""The word that a prefix ends within: all its spellings beside an exhaustive search, in lists, with other rules."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config.schema import DecodingConfig
from nmt.interop.model_dir import LoadedModel, load_model
from nmt.search.constraints import (
    ConstraintsMaker,
    ForbiddenPhrases,
    ForcedPrefix,
    Phrases,
    SpelledWords,
    Spellings,
    StartedWord,
)
from nmt.search.ruled import MinimumLength, RuledModel
from nmt.search.translator import Translator
from nmt.search.values import Request
from nmt.zero.search import beam_search
from tests.search.table_model import EOS, TableModel
from tests.search.test_rules import all_of
from tests.tiny_run import make_run, subwords, words

PIECES = [b"", b" ? ", b"", b" a", b"b", b" ab", b" abc", b"c"]
SOURCE = torch.tensor([[3, 4, EOS]])


def text_of(ids: list[int]) -> bytes:
    return b"".join(PIECES[i] for i in ids)


def search(model: TableModel, rules: list[Any]) -> list[Any]:
    options = {"beam_size": 600, "length_penalty": 0.7, "max_length_offset": 2, "n_best": 20}
    (found,) = beam_search(RuledModel(model, rules=rules), SOURCE, **options)
    return [one for one in found if one.has_ended]


@pytest.mark.parametrize("seed", range(2))
def test_all_spellings_beside_an_exhaustive_search(seed: int) -> None:
    """After a forced token, whatever begins with ` ab`, also ` abc` in one token, and nothing else."""
    model = TableModel(seed, vocabulary=len(PIECES), eos=-1.0)

    def allowed(ids: list[int]) -> bool:
        text = text_of(ids[1:])
        spelled = text.startswith(b" ab") or (b" ab".startswith(text) and ids[-1] not in (1, EOS))
        return ids[0] == 7 and spelled

    rules = [
        MinimumLength(3),
        SpelledWords(Spellings(PIECES), [StartedWord(1, b" ab")], places=None),
        ForcedPrefix([[7]], device=torch.device("cpu")),
    ]
    given = [[7], [3, 5, 6]]
    expected = all_of(
        model, [3, 4, EOS], lambda ids: allowed(ids) and (ids[-1] != EOS or len(ids) > 3), limit=5, given=given
    )
    found = search(model, rules)
    assert len(found) > 5
    assert [one.ids for one in found] == [ids[:-1] for _, ids in expected[: len(found)]]
    assert [one.score for one in found] == pytest.approx([score for score, _ in expected[: len(found)]])
    assert {ids[1] for _, ids in expected} == {3, 5, 6}


def test_no_token_after_which_the_rest_cannot_be_spelled() -> None:
    """In a list without `b`, ` a` would be a dead end."""
    places = {token: place for place, token in enumerate([0, 1, 2, 3, 5, 6])}
    rule = SpelledWords(Spellings(PIECES), [StartedWord(0, b" ab")], places=places)
    model = TableModel(1, vocabulary=6)
    log_probs, _ = RuledModel(model, rules=[rule]).step(None, RuledModel(model, rules=[rule]).start(SOURCE))
    assert (log_probs[0] > -torch.inf).nonzero().flatten().tolist() == [4, 5]


def test_what_goes_on_beyond_the_word_keeps_to_other_rules() -> None:
    tokenizer = words()
    phrases = Phrases([piece.replace(b"? ", b"?") for piece in PIECES], tokenizer)
    model = TableModel(1, vocabulary=len(PIECES))
    rules = [
        ForbiddenPhrases(phrases, [["abc", "ab"]], words=None),
        SpelledWords(Spellings(PIECES), [StartedWord(0, b" ab")], places=None),
    ]
    ruled = RuledModel(model, rules=rules)
    log_probs, _ = ruled.step(None, ruled.start(SOURCE))
    assert (log_probs[0] > -torch.inf).nonzero().flatten().tolist() == [3, 5], "` abc` is forbidden"


def test_which_end_of_a_prefix_is_started(tmp_path: Path) -> None:
    decoding = DecodingConfig(precision="fp32")
    tokenizer = subwords(tmp_path)
    maker = ConstraintsMaker(tokenizer, decoding)
    plain = maker.of(Request(text="a", prefix="sentence lon"))
    assert plain.started is not None and plain.started.text == b" lon"
    assert tokenizer.decode_target(plain.forced) == "sentence" and plain.prefix[: len(plain.forced)] == plain.forced
    assert maker.of(Request(text="a", prefix="sentence lon ")).started is None
    long = maker.of(Request(text="a", prefix="qqqqqqqqqqqqqqqqqqqqqq")).started
    assert long is not None and long.after == 22 + 1 - 8
    assert maker.of(Request(text="a", prefix="x y")).of_part(1).started is None
    assert ConstraintsMaker(words(), decoding).of(Request(text="a", prefix="x y")).started is None


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(make_run(tmp_path_factory.mktemp("runs") / "run", sentencepiece=True))


def test_translations_begin_with_it_and_do_not_hang_on_companions(pieces: LoadedModel) -> None:
    prefixes = ["sen", "", "lon", "sentence of", "\u00dfq", "l", "\u4e16\u754c"]
    requests = [Request(text=f"a {letter}", prefix=prefix) for letter, prefix in zip("abcdxyz", prefixes, strict=True)]

    def best(lines: list[Request], **changes: Any) -> list[str]:
        decoding = dataclasses.replace(pieces.config.decoding, precision="fp32", **changes)
        return list(Translator(pieces.model, pieces.tokenizer, decoding).translate(lines))

    for options in ({}, {"beam_size": 1}, {"search": "sample", "n_best": 1}):
        found = best(requests, **options)
        assert all(text.startswith(prefix) for text, prefix in zip(found, prefixes, strict=True))
        assert best(requests, batch_tokens=1, **options) == found
