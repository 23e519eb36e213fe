"""Which sentences have maps, and what the page holds of them."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from nmt.inspection.values import Inspection, UnitTrace
from nmt.report.contents import Sentences, Subject
from nmt.report.maps import MOST_HEADS, chosen_sentences, packed


def scored(chrf: list[list[float]], lengths: list[int]) -> Sentences:
    subject = Subject(systems={}, references=[[""] * len(lengths)])
    return Sentences(bleu=chrf, chrf=chrf, repeating=[[]] * len(chrf), lengths=lengths, subject=subject)


def test_hard_sentences_different_ones_and_some_of_all() -> None:
    count = 300
    first = [float(n % 100) for n in range(count)]
    second = [score + (50 if n >= 290 else 0) for n, score in enumerate(first)]
    lengths = [10] * count
    lengths[0], lengths[100], lengths[299] = 51, 0, 60
    found = chosen_sentences(scored([first, second], lengths), 9, models=[1])
    assert len(found.places) == len(set(found.places)) == 9 and found.places == sorted(found.places)
    assert {200, 1, 101} <= set(found.places), "the lowest scores of the model"
    assert {290, 291, 292} <= set(found.places), "where the systems differ most, in their order"
    assert not {0, 100, 299} & set(found.places)
    rest = [place for place in found.places if place not in (200, 1, 101, 290, 291, 292)]
    assert min(rest) < 100 and max(rest) > 180
    assert found.reason == (
        "3 with the lowest chrF2 of the first model, 3 on which the systems differ most in chrF2, "
        "3 spread evenly over the text, of at most 50 words"
    )


def test_the_lowest_scores_are_those_of_the_model_that_has_maps() -> None:
    scores = [[60.0, 70.0, 80.0, 50.0, 45.0, 99.0], [60.0, 70.0, 80.0, 45.0, 50.0, 49.0]]
    for model, lowest in ((0, 4), (1, 3)):
        found = chosen_sentences(scored(scores, [10] * 6), 3, models=[model])
        assert found.places == [0, lowest, 5], "the first of all, the lowest, the one with the largest difference"


def test_few_sentences_are_all_chosen() -> None:
    assert chosen_sentences(scored([[1.0, 2.0, 3.0]], [3, 0, 9]), 10, models=[0]).places == [0, 2]
    one = chosen_sentences(scored([[3.0, 1.0, 2.0, 9.0]], [5, 5, 5, 5]), 1, models=[0])
    assert len(one.places) == 1 and "0 with" not in one.reason


def inspection(heads: int, **units: UnitTrace) -> Inspection:
    weights = np.arange(heads * 6, dtype=np.float32).reshape(heads, 2, 3)
    attention = {"decoder.0": weights, "encoder.0.self": np.ones((heads, 3, 3), dtype=np.float32)}
    scores = np.array([-0.5, -1.0], dtype=np.float32)
    return Inspection("a b", "x", ("a", "b", "<eos>"), ("x", "<eos>"), scores, scores, attention, dict(units))


def trace(tokens: tuple[str, ...], memory: np.ndarray | None) -> UnitTrace:
    count = len(tokens)
    return UnitTrace("lrn", False, tokens, np.zeros((count, 4), dtype=np.float32), {}, memory)


def levels(found: dict[str, object]) -> np.ndarray:
    rows, columns = found["size"]  # type: ignore[misc]
    data = np.frombuffer(base64.b64decode(str(found["levels"])), dtype=np.uint8)
    return data.reshape(rows, columns) / 255 * found["most"]


def test_maps_keep_their_weights_to_half_a_level() -> None:
    memory = np.array([[0.5, 0.0], [0.1, 0.7]], dtype=np.float32)
    units = {"decoder.0": trace(("<bos>", "x"), memory), "encoder.0.forward": trace(("a", "b", "<eos>"), None)}
    (found,) = packed({3: inspection(2, **units)}).values()
    titles = {entry["title"]: entry for entry in found["maps"]}
    assert list(titles) == [
        "Attention, mean of all",
        "Attention, decoder.0, mean of its heads",
        "Attention, decoder.0, head 1",
        "Attention, decoder.0, head 2",
        "Attention, encoder.0.self, mean of its heads",
        "Attention, encoder.0.self, head 1",
        "Attention, encoder.0.self, head 2",
        "Memory of lrn, decoder.0",
    ]
    weights = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    assert levels(titles["Attention, mean of all"]) == pytest.approx(weights.mean(0), abs=8.5 / 510)
    assert levels(titles["Attention, decoder.0, head 2"]) == pytest.approx(weights[1], abs=11.5 / 510)
    assert levels(titles["Memory of lrn, decoder.0"]) == pytest.approx(memory, abs=0.71 / 510)
    assert [titles[title]["kind"] for title in (*list(titles)[:1], *list(titles)[-2:])] == [
        "attention",
        "source",
        "memory",
    ]
    assert (found["source"], found["target"], found["memory"]) == (["a", "b", "<eos>"], ["x", "<eos>"], ["<bos>", "x"])


def test_the_decoders_attention_to_itself_is_over_target_tokens() -> None:
    given = inspection(1)
    given.attention["decoder.0.self"] = np.ones((1, 2, 2), dtype=np.float32)  # type: ignore[index]
    (found,) = packed({0: given}).values()
    kinds = {entry["title"]: entry["kind"] for entry in found["maps"]}
    assert (kinds["Attention, encoder.0.self"], kinds["Attention, decoder.0.self"]) == ("source", "target")


def test_what_is_not_a_number_is_no_weight() -> None:
    memory = np.array([[np.nan, 0.0], [0.25, np.inf]], dtype=np.float32)
    (found,) = packed({0: inspection(1, **{"decoder.0": trace(("<bos>", "x"), memory)})}).values()
    (entry,) = [entry for entry in found["maps"] if entry["title"].startswith("Memory")]
    assert levels(entry).tolist() == [[0, 0], [0.25, 0]]


def test_many_heads_are_shown_by_their_means_and_long_sentences_not_at_all() -> None:
    (found,) = packed({0: inspection(MOST_HEADS)}).values()
    assert [entry["title"] for entry in found["maps"] if "head " in entry["title"]] == []
    assert len(found["maps"]) == 3
    long = inspection(1)
    object.__setattr__(long, "target_tokens", ("x",) * 200)
    assert packed({0: long}) == {}
