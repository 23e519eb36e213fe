"""Translator and scorer: order, empty lines, windows and batches do not change what comes out."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import pytest
import torch

from nmt.interop.model_dir import LoadedModel, load_model
from nmt.search.reading import score_pairs
from nmt.search.translator import AUTO_BATCH_TOKENS, Translator, batch_limits
from tests.tiny_run import make_run

LINES = ["a b c", "", "d", "a " * 30, "  \t", "unknown words here", "long@@ er b", "c", "a b c"] * 3


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(make_run(tmp_path_factory.mktemp("runs") / "run"))


def translator(loaded: LoadedModel, *, window: int = 1000, **changes: object) -> Translator:
    decoding = dataclasses.replace(loaded.config.decoding, **{"precision": "fp32", **changes})
    return Translator(loaded.model, loaded.tokenizer, decoding, window=window)


def test_each_line_is_translated_as_if_alone(loaded: LoadedModel) -> None:
    alone = [next(translator(loaded).translate([line])) for line in LINES]
    assert len({*alone}) > 4
    for window, batch_tokens in [(1000, 4096), (1000, 1), (4, 100), (1, 50)]:
        assert list(translator(loaded, window=window, batch_tokens=batch_tokens).translate(LINES)) == alone


def test_empty_lines_are_empty(loaded: LoadedModel) -> None:
    for translation in translator(loaded, n_best=2).translations(LINES):
        if not translation.source.strip():
            assert [(h.text, h.score) for h in translation.hypotheses] == [("", 0.0)]
        else:
            assert translation.best
            assert 1 <= len(translation.hypotheses) <= 2
            assert translation.source_tokens == len(translation.source.split())


def test_the_model_is_not_asked_about_empty_lines(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(loaded.model), "start", lambda *arguments: pytest.fail("the model was called"))
    assert list(translator(loaded).translate(["", "  ", "\u2003"])) == ["", "", ""]
    assert list(translator(loaded).translate([])) == []


def test_a_line_of_which_the_tokenizer_makes_nothing_is_as_an_empty_one(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = type(loaded.tokenizer).encode_source
    monkeypatch.setattr(
        type(loaded.tokenizer),
        "encode_source",
        lambda self, lines: [
            [] if line == "..." else ids for line, ids in zip(lines, encode(self, lines), strict=True)
        ],
    )
    found = list(translator(loaded).translations(["a b", "...", "c"]))
    assert [(h.text, h.score) for h in found[1].hypotheses] == [("", 0.0)] and found[1].source_tokens == 0
    assert [found[0].best, found[2].best] == list(translator(loaded).translate(["a b", "c"]))


def test_unknown_words_are_counted(loaded: LoadedModel) -> None:
    assert [t.unknown for t in translator(loaded).translations(LINES[:6])] == [0, 0, 0, 0, 0, 3]


def test_endless_input_is_answered(loaded: LoadedModel) -> None:
    """No more is read than a window."""
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield "a b"

    assert len(list(itertools.islice(translator(loaded, window=5).translate(lines()), 7))) == 7
    assert read == 10


def test_a_translation_is_one_line(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(loaded.tokenizer), "decode_target", lambda self, ids: "two\nlines\r")
    assert list(translator(loaded).translate(["a"])) == ["two lines "]


def test_batches_stay_within_the_budget(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[torch.Size] = []
    start = type(loaded.model).start

    def watched(model: torch.nn.Module, source: torch.Tensor) -> object:
        sizes.append(source.shape)
        return start(model, source)

    monkeypatch.setattr(type(loaded.model), "start", watched)
    list(translator(loaded, batch_tokens=60, beam_size=3).translate(LINES))
    assert len(sizes) > 3
    assert all(rows * width * 3 <= 60 or rows == 1 for rows, width in sizes)


def test_automatic_batches_are_large_but_not_for_a_large_vocabulary(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoding = dataclasses.replace(loaded.config.decoding, batch_tokens="auto")
    assert batch_limits(decoding, vocabulary=10)[0] == AUTO_BATCH_TOKENS
    sizes: list[int] = []
    start = type(loaded.model).start

    def watched(model: torch.nn.Module, source: torch.Tensor) -> object:
        sizes.append(len(source))
        return start(model, source)

    monkeypatch.setattr(type(loaded.model), "start", watched)
    expected = list(translator(loaded, batch_tokens=1).translate(LINES))
    sizes.clear()
    assert list(translator(loaded, batch_tokens="auto").translate(LINES)) == expected
    assert len(sizes) == 1
    monkeypatch.setattr("nmt.search.translator.AUTO_CELLS", 6 * loaded.model.target_vocab_size)
    sizes.clear()
    assert list(translator(loaded, batch_tokens="auto", beam_size=3).translate(LINES)) == expected
    assert max(sizes) == 2


def test_beam_of_one_is_greedy(loaded: LoadedModel) -> None:
    """Same ids as the argmax path; see tests/search/test_greedy.py."""
    from nmt.zero.search import greedy_search

    ids = torch.tensor([[3, 4, 5, 2]])
    expected = greedy_search(loaded.model, ids, length_penalty=0.6, max_length_offset=4)[0][0]
    found = translator(loaded, beam_size=1).translate_window(["a b c"])[0].hypotheses[0]
    assert found.text == loaded.tokenizer.decode_target(expected.ids)
    assert found.score == pytest.approx(expected.score, abs=1e-6)


def test_pair_scores_do_not_hang_on_batches(loaded: LoadedModel) -> None:
    pairs = [("a b", "x y z"), ("", "x"), ("c " * 20, ""), ("d", "nothing known"), ("a b", "z y x")]
    together = list(score_pairs(loaded.model, loaded.tokenizer, pairs, batch_tokens=4096))
    for budget, window in [(1, 1000), (30, 2)]:
        parts = list(score_pairs(loaded.model, loaded.tokenizer, pairs, batch_tokens=budget, window=window))
        assert [p.mean_nll for p in parts] == pytest.approx([p.mean_nll for p in together], abs=1e-6)
    assert [p.tokens for p in together] == [4, 2, 1, 3, 4]
    assert [p.unknown for p in together] == [0, 0, 0, 2, 0]
    assert [p.has_empty_side for p in together] == [False, True, True, False, False]
    logits = loaded.model(torch.tensor([[3, 4, 2]]), torch.tensor([[3, 4, 5, 2]]))
    expected = -logits.log_softmax(-1)[0].gather(1, torch.tensor([[3], [4], [5], [2]])).mean()
    assert together[0].mean_nll == pytest.approx(expected.item(), abs=1e-6)
