"""Temperature, Gumbel noise and noisy beam search: Zero's order, the distribution of what wins, no companions."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.config.schema import DecodingConfig
from nmt.errors import ConfigError
from nmt.ops.matrices.best_words import Choice
from nmt.sampling.search import GumbelNoise, keys_of, uniform, uniform64
from nmt.search import Hypothesis
from nmt.search.base import build_search
from nmt.search.ensemble import Ensemble
from nmt.search.ruled import MinimumLength, RuledModel, Step, Temperature
from nmt.zero.search import beam_search
from tests.search.naive import cut, strip, zero_beam_search
from tests.search.table_model import EOS, PAD, TableModel, random_sources
from tests.search.test_ensemble import NumpyEnsemble, Table

LIMITS: dict[str, Any] = {"length_penalty": 0.6, "max_length_offset": 4}


def search(
    model: Any, source: Tensor, *, name: str, size: int = 3, n_best: int = 3, **options: Any
) -> list[list[Hypothesis]]:
    decoding = DecodingConfig(search=name, beam_size=size, n_best=n_best, search_options=options)
    ruled = model if isinstance(model, RuledModel) else RuledModel(model)
    with torch.inference_mode():
        return build_search(decoding).search(ruled, source, beam_size=size, n_best=n_best, scores=True, **LIMITS)


def test_noise_temperature_softmax_in_zeros_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """l + g, divided by T, normalised; g = -ln(-ln(u + 1e-8) + 1e-8); by hand, with numbers that are given."""
    given = torch.rand(2, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    monkeypatch.setattr("nmt.sampling.search.uniform", lambda keys, words: given.clone())
    model = TableModel(1, vocabulary=5)
    source = torch.tensor([[3, EOS], [4, EOS]])
    logits = model.step(None, model.start(source))[0].numpy()
    noisy = (logits - np.log(-np.log(given.numpy() + 1e-8) + 1e-8)) / 0.7
    expected = noisy - np.log(np.exp(noisy).sum(1, keepdims=True))
    keys = keys_of(source, seed=1)
    ruled = RuledModel(model, rules=[MinimumLength(1)]).adjusted(GumbelNoise(keys)).adjusted(Temperature(0.7))
    log_probs, _ = ruled.step(None, ruled.start(source))
    expected[:, EOS] = -math.inf  # after normalisation
    assert log_probs.numpy() == pytest.approx(expected, abs=1e-12)
    other = logits / 0.7 - np.log(-np.log(given.numpy() + 1e-8) + 1e-8)
    assert not np.allclose(other - np.log(np.exp(other).sum(1, keepdims=True)), expected), "the order matters"


def test_an_ensemble_has_its_noise_after_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    given = torch.rand(1, 5, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    monkeypatch.setattr("nmt.sampling.search.uniform", lambda keys, words: given.clone())
    tables = [Table(seed, vocabulary=5) for seed in range(2)]
    source = torch.tensor([[3, EOS]])
    mean = NumpyEnsemble(tables).next_logits([3, EOS], [None]).numpy()
    noisy = (mean - np.log(-np.log(given.numpy()[0] + 1e-8) + 1e-8)) / 1.3
    ruled = RuledModel(Ensemble(tables)).adjusted(GumbelNoise(keys_of(source, seed=1))).adjusted(Temperature(1.3))
    log_probs, _ = ruled.step(None, ruled.start(source))
    assert log_probs[0].numpy() == pytest.approx(noisy - np.log(np.exp(noisy).sum()), abs=1e-12)


def test_the_argmax_of_noisy_logits_is_a_sample_of_the_softmax() -> None:
    """Chi-square over words, with a fixed seed; rows are lines, hypotheses of lines, and steps in turn."""
    rows, logits = 12_000, torch.tensor([1.0, 0.0, -1.0, 0.5, -2.0])
    for lines, hypotheses, t in ((rows, 1, 0), (1, rows, 0), (rows // 4, 4, 7)):
        keys = keys_of(torch.arange(3, 3 + lines).unsqueeze(1), seed=5)
        step = Step(torch.zeros(rows, t), torch.arange(lines).repeat_interleave(hypotheses), hypotheses, None)
        winners = GumbelNoise(keys)(logits.repeat(rows, 1), step).argmax(1)
        expected = logits.softmax(0) * rows
        statistic = ((torch.bincount(winners, minlength=5) - expected) ** 2 / expected).sum()
        assert float(statistic) < 18.47, "of a chi-square with 4 degrees of freedom, one in a thousand is larger"


def test_random_numbers_are_uniform_and_hang_on_all_that_they_should() -> None:
    keys = keys_of(torch.tensor([[3, 4, EOS], [4, 3, EOS]]), seed=1)
    numbers = uniform(keys.unsqueeze(1), torch.arange(50_000))
    assert float(numbers.min()) >= 0 and float(numbers.max()) < 1
    assert numbers.mean(1).tolist() == pytest.approx([0.5, 0.5], abs=0.01)
    assert numbers.var(1).tolist() == pytest.approx([1 / 12, 1 / 12], abs=0.005)
    assert abs(float(torch.corrcoef(numbers)[0, 1])) < 0.02
    assert abs(float(torch.corrcoef(torch.stack([numbers[0, 1:], numbers[0, :-1]]))[0, 1])) < 0.02
    assert torch.equal(keys_of(torch.tensor([[3, 4, EOS, PAD]]), seed=1), keys[:1]), "padding is of the batch"
    assert not torch.equal(keys_of(torch.tensor([[3, 4, EOS]]), seed=2), keys[:1])
    # Known values: another version, device or number of threads draws the same.
    assert keys.tolist() == [8583932121860321303, 2556002431206610248]
    assert uniform(keys, torch.tensor([5, 1000])).tolist() == [0.32872694730758667, 0.658001184463501]
    assert uniform64(keys).tolist() == [0.2607305854886016, 0.7726980725803132]


def test_temperature_is_an_option_of_beam_search() -> None:
    model = TableModel(2, vocabulary=9, eos=1.0)
    source = random_sources(2, sentences=5, longest=5, vocabulary=9)
    cooler = TableModel(2, vocabulary=9, eos=1.0)
    cooler.table /= 2.5
    rule = {"beam_size": 3, "alpha": 0.6, "offset": 4, "pad_allowed": False}
    expected = [zero_beam_search(cooler, [row], **rule)[0] for row in strip(source)]
    found = search(model, source, name="beam", temperature=2.5)
    assert [[one.ids for one in row] for row in found] == [[cut(ids) for _, ids in row] for row in expected]
    assert found[0][0].score == pytest.approx(expected[0][0][0], abs=1e-10)
    assert search(model, source, name="beam") == beam_search(model, source, beam_size=3, n_best=3, **LIMITS)


def test_without_a_temperature_the_models_own_step_runs() -> None:
    class Fused(TableModel):
        def step(self, tokens: Any, state: Any) -> Any:
            raise AssertionError

        def best(self, tokens: Any, state: Any, choice: Choice) -> Any:
            from nmt.ops.matrices.best_words import best_words

            logits, state = super().step(tokens, state)
            return best_words(logits, choice), state

    source = random_sources(2, sentences=5, longest=5, vocabulary=9)
    assert search(Fused(2, vocabulary=9), source, name="beam")
    with pytest.raises(AssertionError):
        search(Fused(2, vocabulary=9), source, name="beam", temperature=1.1)


def test_noise_is_a_lines_own_whatever_its_companions() -> None:
    model = TableModel(3, vocabulary=20, eos=1.0)
    source = random_sources(3, sentences=64, longest=8, vocabulary=20)
    together = search(model, source, name="noisy_beam", seed=4)
    assert together == [search(model, row.unsqueeze(0), name="noisy_beam", seed=4)[0] for row in source]
    assert together == search(model, source, name="noisy_beam", seed=4)
    others = (search(model, source, name="beam"), search(model, source, name="noisy_beam", seed=5))
    for other in others:
        assert sum(a[0].ids != b[0].ids for a, b in zip(together, other, strict=True)) > 20
    nearly = search(model, source, name="noisy_beam", noise_scale=1e-9)
    assert [[one.ids for one in row] for row in nearly] == [[one.ids for one in row] for row in others[0]]


def test_the_search_has_zeros_order_too() -> None:
    model = TableModel(3, vocabulary=20, eos=1.0)
    source = random_sources(3, sentences=6, longest=8, vocabulary=20)
    noise = GumbelNoise(keys_of(source, seed=4), scale=0.5)
    ruled = RuledModel(model).adjusted(noise).adjusted(Temperature(3.0))
    found = search(model, source, name="noisy_beam", seed=4, temperature=3.0, noise_scale=0.5)
    assert found == beam_search(ruled, source, beam_size=3, n_best=3, **LIMITS)


def test_hypotheses_have_noise_of_their_own() -> None:
    """Else the beams of a sentence would be pushed to the same words."""
    keys = keys_of(torch.tensor([[3, EOS]]), seed=1)
    step = Step(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64), 4, None)
    noise = GumbelNoise(keys)(torch.zeros(4, 30), step)
    assert len({tuple(row) for row in noise.tolist()}) == 4
    later = GumbelNoise(keys)(torch.zeros(4, 30), step._replace(history=torch.zeros(4, 3)))
    assert not torch.equal(noise, later)
    listed = GumbelNoise(keys)(torch.zeros(4, 3), step._replace(words=torch.tensor([2, 11, 29])))
    assert torch.equal(listed, noise[:, [2, 11, 29]]), "of the word, not of its place in a list"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("beam", {"temperature": 0.0}, "decoding.search_options.temperature: must be above 0, not 0"),
        ("noisy_beam", {"noise_scale": -1.0}, "decoding.search_options.noise_scale: must be above 0, not -1"),
        (
            "noisy_beam",
            {"temperatur": 1.0},
            "decoding.search_options.temperatur: unknown key. Did you mean 'temperature'",
        ),
        ("greedy", {"temperature": 1.0}, "decoding.search_options.temperature: unknown key"),
    ],
)
def test_mistakes_are_named(name: str, options: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_search(dataclasses.replace(DecodingConfig(search=name, beam_size=1), search_options=options))
