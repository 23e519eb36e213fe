"""Greedy search against a loop over full passes."""

from __future__ import annotations

import pytest
import torch

from nmt.errors import ConfigError
from nmt.zero.search import beam_search, greedy_search
from tests.search.naive import cut, greedy, strip
from tests.search.table_model import EOS, PAD, TableModel, random_sources


@pytest.mark.parametrize("eos", [0.0, 2.0, -40.0])
@pytest.mark.parametrize("offset", [0, 5])
def test_is_the_argmax_of_full_passes(eos: float, offset: int) -> None:
    model = TableModel(1, vocabulary=12, eos=eos)
    model.table[::3, PAD] += 20.0
    source = random_sources(1, sentences=12, longest=7, vocabulary=12)
    found = greedy_search(model, source, length_penalty=0.6, max_length_offset=offset)
    expected = [greedy(model, row, alpha=0.6, offset=offset) for row in strip(source)]
    assert [row[0].ids for row in found] == [cut(ids) for _, ids in expected]
    assert [row[0].score for row in found] == pytest.approx([score for score, _ in expected], abs=1e-12)
    assert {len(row) for row in found} == {1}


def test_a_beam_of_one_never_scores_less() -> None:
    """They are different searches: the beam of one looks past its first end symbol."""
    options = {"length_penalty": 1.0, "max_length_offset": 8}
    differing = 0
    for seed in range(10):
        model = TableModel(seed, vocabulary=10, eos=1.0)
        model.table[:, PAD] = -torch.inf
        source = random_sources(seed, sentences=8, longest=6, vocabulary=10)
        beams = beam_search(model, source, beam_size=1, **options)
        limits = ((source != PAD).sum(dim=1) + 8).tolist()
        for (narrow,), (plain,), limit in zip(beams, greedy_search(model, source, **options), limits, strict=True):
            differing += narrow.ids != plain.ids
            # One that greedy search cut at the limit never finished, so the beam prefers any that did.
            assert narrow.ids == plain.ids or narrow.score > plain.score or len(plain.ids) == limit
    assert differing > 0


def test_edges() -> None:
    model = TableModel(5, vocabulary=9)
    assert greedy_search(model, torch.empty(0, 4, dtype=torch.int64), length_penalty=0.6, max_length_offset=3) == []
    row = greedy_search(model, torch.tensor([[EOS]]), length_penalty=0.6, max_length_offset=0)
    assert len(row[0][0].ids) == 1
    with pytest.raises(ConfigError, match="one hypothesis"):
        greedy_search(model, torch.tensor([[EOS]]), length_penalty=0.6, max_length_offset=0, beam_size=2)
