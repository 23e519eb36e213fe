"""Attention through what a search may see in place of a model: an ensemble, a shortlist, both."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.models import Seq2Seq
from nmt.search.ensemble import Ensemble
from nmt.search.shortlist import BatchWords, RestrictedModel
from tests.models.test_attention_weights import by_steps, close
from tests.models.test_seq2seq import SOURCE, TARGET, V, make

WORDS = TARGET != 0


@pytest.fixture(scope="module")
def models() -> list[Seq2Seq]:
    others: list[tuple[str, str]] = [("rnnsearch", "atr"), ("rnnsearch_deepatt", "sru")]
    return [make("deepnmt", "lrn", deep_attention=True), *(make(*other) for other in others)]


def log_probs(logits: Tensor) -> Tensor:
    return logits.double().log_softmax(-1)


def test_an_ensemble_attends_as_its_members_do_on_average(models: list[Seq2Seq]) -> None:
    logits, attention = by_steps(Ensemble(models), SOURCE, TARGET)
    alone = [by_steps(model, SOURCE, TARGET) for model in models]
    close(attention[WORDS], torch.stack([weights for _, weights in alone]).mean(0)[WORDS])
    mean = torch.stack([log_probs(of_one) for of_one, _ in alone]).logsumexp(0) - torch.tensor(3.0).log()
    close(log_probs(logits)[WORDS], mean[WORDS])


@pytest.mark.parametrize("count", [1, 2])
def test_a_shortlist_leaves_the_attention_as_it_is(models: list[Seq2Seq], count: int) -> None:
    inner: Any = models[0] if count == 1 else Ensemble(models[:2])
    ids = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 11])
    forbidden = torch.zeros(3, len(ids), dtype=torch.bool)
    forbidden[1, 8] = True
    restricted = RestrictedModel(inner, BatchWords(ids, forbidden))
    places = torch.searchsorted(ids, TARGET)
    logits, attention = by_steps(restricted, SOURCE, places)
    close(attention[WORDS], by_steps(inner, SOURCE, TARGET)[1][WORDS])
    # Each member divides its probability among the words of the list.
    allowed = [by_steps(model, SOURCE, TARGET)[0][:, :, ids] for model in models[:count]]
    alone = [log_probs(of_one.masked_fill(forbidden.unsqueeze(1), -torch.inf)) for of_one in allowed]
    mean = torch.stack(alone).logsumexp(0) - torch.tensor(float(count)).log()
    close(log_probs(logits)[WORDS], mean[WORDS])
    assert logits.size(2) == len(ids) < V
