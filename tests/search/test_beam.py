"""Beam search against a line-by-line oracle, exhaustive search and itself in other batches."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from nmt.errors import ConfigError
from nmt.ops.matrices.best_words import BestWords, best_words
from nmt.registry import SEARCHES
from nmt.search import Hypothesis
from nmt.search.base import Settings
from nmt.search.beam import Beam, advance, are_done, choice_of, empty_beam, rows_of
from nmt.zero.search import beam_search
from tests.search.naive import cut, exhaustive, strip, zero_beam_search
from tests.search.table_model import EOS, PAD, UNK, TableModel, random_sources

CASES = [
    # vocabulary, beam size, alpha, offset, attraction of the end symbol
    (12, 1, 0.6, 3, 1.5),
    (12, 4, 0.6, 5, 1.0),
    (12, 4, 0.0, 4, 2.0),
    (12, 5, 1.0, 2, 0.0),
    (9, 3, 1.6, 6, 3.0),
    (12, 4, 0.6, 0, -2.0),
    (12, 4, 1.0, 2, -30.0),
    (5, 4, 0.6, 3, 1.0),
    (4, 6, 0.6, 4, 1.0),
]


def assert_same(found: list[list[Hypothesis]], expected: list[list[tuple[float, list[int]]]]) -> None:
    assert [[h.ids for h in row] for row in found] == [[cut(ids) for _, ids in row] for row in expected]
    for row, wanted in zip(found, expected, strict=True):
        # A score of -1e8 (an end symbol at the first step) has no digits left for an absolute 1e-12.
        assert [h.score for h in row] == pytest.approx([score for score, _ in wanted], rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("vocabulary", "beam_size", "alpha", "offset", "eos"), CASES)
def test_batch_mode_is_the_joint_rule(
    seed: int, vocabulary: int, beam_size: int, alpha: float, offset: int, eos: float
) -> None:
    model = TableModel(seed, vocabulary=vocabulary, eos=eos)
    source = random_sources(seed, sentences=4, longest=6, vocabulary=max(vocabulary, 8))
    expected = zero_beam_search(model, strip(source), beam_size=beam_size, alpha=alpha, offset=offset)
    found = beam_search(
        model, source, beam_size=beam_size, length_penalty=alpha, max_length_offset=offset, stopping="batch"
    )
    assert_same(found, expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("vocabulary", "beam_size", "alpha", "offset", "eos"), CASES)
def test_sentence_mode_is_each_sentence_alone(
    seed: int, vocabulary: int, beam_size: int, alpha: float, offset: int, eos: float
) -> None:
    """The oracle searches every sentence in a batch of its own, with padding left out of the candidates."""
    model = TableModel(seed, vocabulary=vocabulary, eos=eos)
    source = random_sources(seed, sentences=6, longest=6, vocabulary=max(vocabulary, 8))
    found = beam_search(model, source, beam_size=beam_size, length_penalty=alpha, max_length_offset=offset)
    expected = [
        zero_beam_search(model, [row], beam_size=beam_size, alpha=alpha, offset=offset, pad_allowed=False)[0]
        for row in strip(source)
    ]
    assert_same(found, expected)


@pytest.mark.parametrize(("vocabulary", "beam_size", "alpha", "offset", "eos"), CASES)
def test_sentence_mode_equals_batch_mode_of_one(
    vocabulary: int, beam_size: int, alpha: float, offset: int, eos: float
) -> None:
    model = TableModel(11, vocabulary=vocabulary, eos=eos)
    model.table[:, PAD] = -math.inf
    source = random_sources(11, sentences=30, longest=9, vocabulary=12)
    options = {"beam_size": beam_size, "length_penalty": alpha, "max_length_offset": offset}
    together = beam_search(model, source, **options)
    alone = [beam_search(model, row.unsqueeze(0), stopping="batch", **options)[0] for row in source]
    assert together == alone


@pytest.mark.parametrize(("factor", "offset", "alpha"), [(2.0, 0, 1.0), (0.7, 2, 0.6), (0.0, 3, 0.0), (0.1, 0, 1.0)])
def test_scores_by_the_power_of_a_length_and_limits_by_a_factor(factor: float, offset: int, alpha: float) -> None:
    model = TableModel(4, vocabulary=12, eos=0.5)
    source = random_sources(4, sentences=8, longest=6, vocabulary=12)
    lengths = {"length_penalty": alpha, "max_length_offset": offset, "max_length_factor": factor}
    by = {**lengths, "length_normalization": "power", "scores": True}
    found = SEARCHES.get("beam")().search(model, source, beam_size=4, n_best=4, **by)
    rules = {"alpha": alpha, "offset": offset, "pad_allowed": False, "power": True, "factor": factor}
    assert_same(found, [zero_beam_search(model, [row], beam_size=4, **rules)[0] for row in strip(source)])
    narrow = SEARCHES.get("greedy")().search(model, source, n_best=1, beam_size=1, **by)
    for (one,), row in zip(narrow, strip(source), strict=True):
        assert len(one.ids) + one.has_ended <= max(1, int(factor * len(row)) + offset)
        assert one.score * (len(one.ids) + one.has_ended) ** alpha < 0


def test_the_joint_rule_differs_from_the_sentence_rule() -> None:
    """Otherwise the tests above would not tell one from the other."""
    options = {"beam_size": 3, "length_penalty": 0.6, "max_length_offset": 3}
    differing = 0
    for seed in range(5):
        model = TableModel(seed, vocabulary=12, eos=0.5)
        source = random_sources(seed, sentences=6, longest=8, vocabulary=12)
        joint = beam_search(model, source, stopping="batch", **options)
        differing += sum(a != b for a, b in zip(beam_search(model, source, **options), joint, strict=True))
    assert differing > 5


def test_batch_of_1_and_of_64_in_float32() -> None:
    """Ids may differ only where two hypotheses score within 1e-5; here rows are computed alike, so none does."""
    model = TableModel(2, vocabulary=40, eos=1.0, dtype=torch.float32)
    source = random_sources(2, sentences=64, longest=12, vocabulary=40)
    options = {"beam_size": 4, "length_penalty": 0.6, "max_length_offset": 10}
    together = beam_search(model, source, **options)
    assert together == [beam_search(model, row.unsqueeze(0), **options)[0] for row in source]


def test_finished_sentences_leave_the_batch() -> None:
    model = TableModel(3, vocabulary=12, eos=3.0)
    source = random_sources(3, sentences=32, longest=6, vocabulary=12)
    options = {"beam_size": 2, "length_penalty": 1.0, "max_length_offset": 60}
    beam_search(model, source, **options)
    together, model.steps = model.steps, 0
    for row in source:
        beam_search(model, row.unsqueeze(0), **options)
    # Cut only to some sizes; by the sentences that fill up the last one, the batch is at most a quarter too large.
    assert model.steps <= together <= 1.25 * model.steps


@pytest.mark.parametrize("seed", range(6))
def test_a_wide_beam_finds_the_best_of_all_sequences(seed: int) -> None:
    """With room for all hypotheses nothing is lost: 3 words, at most 5 tokens."""
    model = TableModel(seed, vocabulary=5, eos=0.5)
    source = torch.tensor([[3, 4, EOS]])
    score, ids = exhaustive(model, [3, 4, EOS], alpha=0.7, limit=5)
    best = beam_search(model, source, beam_size=300, length_penalty=0.7, max_length_offset=2)[0][0]
    assert best.ids == cut(ids)
    assert best.score == pytest.approx(score, abs=1e-12)


def test_padding_is_never_generated_for_users() -> None:
    model = TableModel(0, vocabulary=8)
    model.table[:, PAD] += 50.0
    source = random_sources(0, sentences=5, longest=4, vocabulary=8)
    options = {"beam_size": 2, "length_penalty": 0.6, "max_length_offset": 3}
    users = beam_search(model, source, **options)
    assert all(len(h.ids) > 0 and PAD not in h.ids for row in users for h in row)
    # Not renormalised: nearly all the probability is PAD's, so what is left scores very low.
    assert users[0][0].score < -40
    assert beam_search(model, source, stopping="batch", **options)[0][0].ids == []


def test_results_are_best_first_and_cut() -> None:
    model = TableModel(4, vocabulary=20, eos=2.0)
    source = random_sources(4, sentences=8, longest=6, vocabulary=20)
    options = {"beam_size": 5, "length_penalty": 0.6, "max_length_offset": 5}
    rows = beam_search(model, source, **options)
    for row in rows:
        assert 1 <= len(row) <= 5
        assert [h.score for h in row] == sorted((h.score for h in row), reverse=True)
        assert all(EOS not in h.ids for h in row)
    assert beam_search(model, source, n_best=2, **options) == [row[:2] for row in rows]


def test_equal_scores_take_the_smaller_place() -> None:
    """All words alike: the first beam and the smallest ids win, whatever the batch."""
    model = TableModel(0, vocabulary=50)
    model.table.zero_()
    source = torch.tensor([[5, EOS, PAD], [5, 6, EOS]])
    found = beam_search(model, source, beam_size=3, length_penalty=1.0, max_length_offset=0, stopping="batch")
    assert found[1][0].ids == []  # PAD, then EOS, is the first sequence that can finish
    users = beam_search(model, source, beam_size=3, length_penalty=1.0, max_length_offset=0)
    assert [h.ids for h in users[0]] == [[UNK]]
    assert [h.ids for h in users[1]] == [[UNK], [UNK, UNK]]


def test_nothing_to_translate() -> None:
    model = TableModel(5, vocabulary=9)
    options = {"beam_size": 3, "length_penalty": 0.6}
    assert beam_search(model, torch.empty(0, 4, dtype=torch.int64), max_length_offset=3, **options) == []
    only_padding = torch.zeros(1, 3, dtype=torch.int64)
    (found,) = beam_search(model, only_padding, max_length_offset=0, **options)
    assert len(found[0].ids) == 1 and not found[0].has_ended
    only_end = beam_search(model, torch.tensor([[EOS, PAD]]), max_length_offset=2, **options)
    assert 1 <= len(only_end[0][0].ids) <= 3


def test_wrong_stopping_is_named() -> None:
    with pytest.raises(ConfigError, match="'joint' is not allowed. Allowed: sentence, batch"):
        beam_search(
            TableModel(0, vocabulary=5),
            torch.tensor([[EOS]]),
            beam_size=1,
            length_penalty=0.6,
            max_length_offset=1,
            stopping="joint",  # type: ignore[arg-type]
        )


def test_searches_are_registered() -> None:
    assert {"beam", "greedy"} <= set(SEARCHES.names())
    source, limits = torch.tensor([[3, 4, EOS], [5, EOS, PAD]]), {"length_penalty": 0.6, "max_length_offset": 4}
    model = TableModel(1, vocabulary=7)
    found = SEARCHES.get("beam")().search(model, source, beam_size=3, n_best=2, scores=True, **limits)
    assert found == beam_search(model, source, beam_size=3, n_best=2, **limits)


def settings(offset: int, *, alpha: float = 0.6, n_best: int | None = None) -> Settings:
    return Settings(beam_size=2, length_penalty=alpha, max_length_offset=offset, n_best=n_best)


class TestSteps:
    """The single steps."""

    source = torch.tensor([[5, 6, EOS], [5, EOS, PAD]])

    def logits(self) -> Tensor:
        return torch.log(torch.tensor([[0.1, 0.1, 0.4, 0.3, 0.1], [0.1, 0.05, 0.2, 0.05, 0.6]], dtype=torch.float64))

    def best(self, beam: Beam, t: int) -> BestWords:
        choice = choice_of(beam, t)
        return best_words(self.logits().repeat_interleave(choice.hypotheses, dim=0), choice)

    def test_empty_beam(self) -> None:
        beam = empty_beam(self.source, settings(4))
        assert beam.limits.tolist() == [7, 6]
        assert beam.log_probs.tolist() == [[0.0, -math.inf], [0.0, -math.inf]]

    def test_the_first_candidates_do_not_end(self) -> None:
        beam = empty_beam(self.source, settings(4))
        best = self.best(beam, 0)
        assert best.words.tolist() == [[3, 1, 4, EOS], [4, 1, 3, EOS]]
        assert best.values[0, :3].exp().tolist() == pytest.approx([0.3, 0.1, 0.1])
        assert best.values[0, 3].item() == pytest.approx(-1e8, rel=1e-6)

    def test_finished_candidates_move_over(self) -> None:
        beam = empty_beam(self.source, settings(4))
        beam, _ = advance(beam, self.best(beam, 0), 0, settings(4, alpha=1.0))
        best = self.best(beam, 1)
        assert best.words[0].tolist() == [EOS, 3, EOS, 1] and best.hypotheses[0].tolist() == [0, 0, 1, 0]
        after, beams = advance(beam, best, 1, settings(4, alpha=1.0))
        penalty = (5 + 2) / 6
        assert after.finished_ids[0].tolist() == [[3, EOS], [1, EOS]]
        assert after.finished_scores[0].tolist() == pytest.approx([math.log(0.12) / penalty, math.log(0.04) / penalty])
        assert after.ids[0].tolist() == [[3, 3], [3, 1]]
        assert beams[0].tolist() == [0, 0]
        assert rows_of(beams).tolist()[:2] == [0, 0]
        assert min(rows_of(beams).tolist()[2:]) >= 2

    def test_all_end_at_the_limit(self) -> None:
        beam = empty_beam(self.source, settings(0))
        beam, _ = advance(beam, self.best(beam, 0), 0, settings(4, alpha=1.0))
        beam, _ = advance(beam, self.best(beam, 2), 2, settings(4, alpha=1.0))
        assert beam.log_probs[1].tolist() == [-math.inf] * 2 and min(beam.finished_scores[1].tolist()) > -math.inf
        assert beam.log_probs[0, 0].item() > -math.inf

    def test_stopping(self) -> None:
        beam = empty_beam(self.source, settings(4))._replace(
            log_probs=torch.tensor([[-4.0, -5.0], [-4.0, -5.0]]),
            finished_scores=torch.tensor([[-1.0, -math.inf], [-1.0, -9.0]]),
        )
        # One filled slot is enough; the worst of the filled ones counts.
        assert are_done(beam, 3, settings(4, alpha=0.6), joint=False).tolist() == [True, False]
        assert are_done(beam, 3, settings(4, alpha=0.6), joint=True).tolist() == [False, False]
        assert are_done(beam, 6, settings(4, alpha=0.6), joint=False).tolist() == [True, True]
        assert are_done(beam, 6, settings(4, alpha=0.6), joint=True).tolist() == [False, False]
        assert are_done(beam, 7, settings(4, alpha=0.6), joint=True).tolist() == [True, True]

    def test_an_equal_score_does_not_stop(self) -> None:
        """What is still alive could end with that very score and take the slot that is empty."""
        scores = torch.tensor([[-4.0, -math.inf], [-3.9, -math.inf]])
        beam = empty_beam(self.source, settings(4))._replace(
            log_probs=torch.tensor([[-4.0, -5.0], [-4.0, -5.0]]), finished_scores=scores
        )
        assert are_done(beam, 3, settings(4, alpha=0.0), joint=False).tolist() == [False, True]
        assert are_done(beam, 3, settings(4, alpha=0.0, n_best=1), joint=False).tolist() == [False, True]
