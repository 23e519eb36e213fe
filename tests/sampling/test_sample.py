"""Sampling: frequencies against exact probabilities, what is left out, companions, rules, scores, settings."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config.schema import DecodingConfig
from nmt.errors import ConfigError
from nmt.interop.model_dir import LoadedModel, load_model
from nmt.sampling.search import SampleOptions, chosen, sample_search
from nmt.search import Hypothesis
from nmt.search.base import build_search
from nmt.search.ensemble import Ensemble
from nmt.search.ruled import MinimumLength, NoRepeatedNgrams, RuledModel
from nmt.search.shortlist import Shortlist
from nmt.search.translator import Translator
from nmt.search.values import Translation
from tests.search.naive import log_probabilities
from tests.search.table_model import EOS, PAD, TableModel, random_sources
from tests.search.test_ensemble import NumpyEnsemble, Table
from tests.search.test_rules import ALLOWED, all_of, at_least, no_repeat
from tests.tiny_run import make_run

SOURCE = torch.tensor([[3, 4, EOS]])
SAMPLES = 6000


def sample(
    model: Any, source: torch.Tensor = SOURCE, *, samples: int = 4, offset: int = 0, **options: Any
) -> list[list[Hypothesis]]:
    ruled = model if isinstance(model, RuledModel) else RuledModel(model)
    return sample_search(
        ruled, source, samples=samples, options=SampleOptions(**options), length_penalty=0.6, max_length_offset=offset
    )


def exact(model: Any, options: SampleOptions, allowed: ALLOWED, *, limit: int) -> dict[tuple[int, ...], float]:
    """The probability of every sample of at most `limit` tokens, by the rules of each step, in lists."""
    found: dict[tuple[int, ...], float] = {}
    stack: list[tuple[float, list[int]]] = [(1.0, [])]
    while stack:
        total, ids = stack.pop()
        values = log_probabilities(model, [3, 4, EOS], ids, zeros=[0])
        left = {i: math.exp(v / options.temperature) for i, v in enumerate(values) if i != PAD and allowed([*ids, i])}
        if not ids:
            left.pop(EOS, None)
        ranked = sorted(left, key=lambda i: -left[i])[: options.top_k or None]
        mass, kept = 0.0, []
        for i in ranked:
            if mass < options.top_p * sum(left[j] for j in ranked):
                kept.append(i)
            mass += left[i]
        for i in kept:
            share = total * left[i] / sum(left[j] for j in kept)
            if i == EOS or len(ids) + 1 == limit:
                found[(*ids, i)] = share
            else:
                stack.append((share, [*ids, i]))
    assert sum(found.values()) == pytest.approx(1.0)
    return found


@pytest.mark.parametrize(
    ("options", "allowed", "rules"),
    [
        ({}, lambda ids: True, []),
        ({"temperature": 2.0, "seed": 3}, lambda ids: True, []),
        ({"top_k": 2, "seed": 2}, lambda ids: True, []),
        ({"top_p": 0.6, "temperature": 1.5, "seed": 2}, lambda ids: True, []),
        ({"top_k": 3, "top_p": 0.8}, lambda ids: True, []),
        ({}, lambda ids: at_least(2)(ids) and no_repeat(1)(ids), [MinimumLength(2), NoRepeatedNgrams(1)]),
    ],
)
def test_frequencies_are_the_exact_probabilities(options: dict[str, Any], allowed: ALLOWED, rules: list[Any]) -> None:
    """Chi-square over all sequences of up to 3 tokens, those expected fewer than 5 times taken together."""
    model = TableModel(1, vocabulary=5, eos=0.5, spread=1.0)
    expected = exact(model, SampleOptions(**options), allowed, limit=3)
    (found,) = sample(RuledModel(model, rules=rules), samples=SAMPLES, **options)
    counts = Counter(tuple([*one.ids, EOS] if one.has_ended else one.ids) for one in found)
    assert set(counts) <= set(expected)
    common = [ids for ids, share in expected.items() if share * SAMPLES >= 5]
    rest = (
        SAMPLES * sum(expected[i] for i in expected if i not in common),
        sum(counts[i] for i in counts if i not in common),
    )
    cells = [(SAMPLES * expected[ids], counts[ids]) for ids in common] + [rest] * (rest[0] > 0)
    statistic = sum((count - wanted) ** 2 / wanted for wanted, count in cells)
    degrees = len(cells) - 1
    assert statistic < degrees + 4 * math.sqrt(2 * degrees), (statistic, degrees)


def test_an_ensemble_is_sampled_from_the_mean() -> None:
    tables = [Table(seed, vocabulary=5, eos=0.5, spread=1.0) for seed in (1, 2)]
    expected = exact(NumpyEnsemble(tables), SampleOptions(), lambda ids: True, limit=3)
    (found,) = sample(Ensemble(tables), samples=SAMPLES)
    counts = Counter(tuple([*one.ids, EOS] if one.has_ended else one.ids) for one in found)
    for ids, share in expected.items():
        assert counts[ids] / SAMPLES == pytest.approx(share, abs=4 * math.sqrt(share / SAMPLES) + 1e-9)


def test_scores_are_the_models_own() -> None:
    model = TableModel(4, vocabulary=9, eos=0.5)
    (found,) = sample(model, samples=20, offset=6, temperature=1.7, top_k=5)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    for one in found:
        ids = [*one.ids, EOS] if one.has_ended else one.ids
        total = sum(log_probabilities(model, [3, 4, EOS], ids[:t], zeros=[0])[i] for t, i in enumerate(ids))
        assert one.score == pytest.approx(total / ((5 + len(ids)) / 6) ** 0.6, abs=1e-10)


def test_samples_are_a_lines_own() -> None:
    """Whatever its companions are and however many samples there are; another seed draws others."""
    model = TableModel(3, vocabulary=30, eos=1.0, dtype=torch.float32)
    source = random_sources(3, sentences=64, longest=8, vocabulary=30)
    together = sample(model, source, samples=3, offset=5, seed=7)
    assert together == [sample(model, row.unsqueeze(0), samples=3, offset=5, seed=7)[0] for row in source]
    more = sample(model, source, samples=5, offset=5, seed=7)
    for few, many in zip(together, more, strict=True):
        assert not Counter(tuple(one.ids) for one in few) - Counter(tuple(one.ids) for one in many)
    other = sample(model, source, samples=3, offset=5, seed=8)
    assert sum(a != b for a, b in zip(together, other, strict=True)) > 55
    assert sum(len({tuple(one.ids) for one in row}) > 1 for row in together) > 55


def test_one_word_to_draw_from_is_greedy_search() -> None:
    from nmt.zero.search import greedy_search

    model = TableModel(5, vocabulary=12, eos=0.5)
    source = random_sources(5, sentences=20, longest=6, vocabulary=12)
    expected = greedy_search(model, source, length_penalty=0.6, max_length_offset=4)
    for options in ({"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-4}):
        found = sample(model, source, samples=1, offset=4, **options)
        assert [row[0].ids for row in found] == [row[0].ids for row in expected]
        assert [row[0].score for row in found] == pytest.approx([row[0].score for row in expected], abs=1e-9)


def test_what_is_left_out_of_a_distribution() -> None:
    values = torch.tensor([[0.1, 0.2, 0.4, 0.2, 0.1], [0.5, 0.0, 0.25, 0.25, 0.0]]).log()
    for k, p, kept in (
        (2, 1.0, [[1, 2], [0, 2]]),
        (0, 0.5, [[1, 2], [0]]),
        (0, 0.65, [[1, 2, 3], [0, 2]]),
        (3, 0.5, [[2], [0]]),
        (9, 1.0, [[0, 1, 2, 3, 4], [0, 2, 3]]),
    ):
        found = chosen(values, top_k=k, top_p=p)
        assert [(row > -math.inf).nonzero().squeeze(1).tolist() for row in found] == kept


def test_few_words_are_put_in_order_where_these_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.randn(40, 700, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 4
    values[20:] *= 0.1  # flat, so that most words are needed
    found = chosen(values, top_k=0, top_p=0.9)
    monkeypatch.setattr("nmt.sampling.search._FEW", 700)
    assert torch.equal(found, chosen(values, top_k=0, top_p=0.9))
    assert 1 <= int((found[:20] > -math.inf).sum(1).max()) < 64 < int((found[20:] > -math.inf).sum(1).min())


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(make_run(tmp_path_factory.mktemp("runs") / "run"))


def translator(loaded: LoadedModel, **changes: Any) -> Translator:
    decoding = dataclasses.replace(loaded.config.decoding, **{"precision": "fp32", "search": "sample", **changes})
    return Translator(loaded.model, loaded.tokenizer, decoding)


LINES = ["a b c", "d", "", "a a b c d", "c b", "b b b"]


def alike(found: Iterable[Translation], wanted: list[Translation]) -> bool:
    """The same texts, with the same scores up to the rounding of products of one row."""
    pairs = [
        (a, b) for x, y in zip(found, wanted, strict=True) for a, b in zip(x.hypotheses, y.hypotheses, strict=True)
    ]
    return all(a.text == b.text and a.score == pytest.approx(b.score, rel=1e-5) for a, b in pairs)


def test_samples_are_the_n_best_of_a_line(loaded: LoadedModel, tmp_path: Path) -> None:
    options: dict[str, Any] = {"n_best": 5, "search_options": {"temperature": 1.5}, "precision": "fp32"}
    found = list(translator(loaded, **options).translations(LINES))
    assert [len(one.hypotheses) for one in found] == [5, 5, 1, 5, 5, 5]
    assert alike(translator(loaded, batch_tokens=1, **options).translations(LINES), found)
    assert list(translator(loaded, **options).translations(LINES[::-1])) == found[::-1]
    assert list(translator(loaded, beam_size=1, **options).translations(LINES)) == found, "no beam"
    size = loaded.tokenizer.source_size
    shortlist = Shortlist(
        frequent=torch.tensor([4, 5, 6], dtype=torch.int32),
        partners=torch.tensor([7, 8], dtype=torch.int32),
        starts=torch.tensor([0, 0, 0, 0, 2] + [2] * (size - 4)),
        target_size=loaded.tokenizer.target_size,
    )
    (tmp_path / "list").write_bytes(shortlist.save_bytes(loaded.tokenizer))
    options["shortlist"] = str(tmp_path / "list")
    listed = list(translator(loaded, **options).translations(LINES))
    assert alike(translator(loaded, batch_tokens=1, **options).translations(LINES), listed) and listed != found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature: must be above 0, not 0"),
        ({"top_k": -1}, "top_k: must be 0 or more, not -1"),
        ({"top_p": 1.5}, "top_p: must be above 0 and at most 1, not 1.5"),
        ({"topp": 0.5}, "topp: unknown key. Did you mean 'top_p'?"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"decoding.search_options.{message}".replace("?", "[?]")):
        build_search(DecodingConfig(search="sample", search_options=options))


def test_all_sequences_can_be_drawn() -> None:
    """No sequence that the exhaustive search finds is missing among many samples of a flat model."""
    model = TableModel(1, vocabulary=4, spread=0.1)
    (found,) = sample(model, samples=2000)
    drawn = {(*one.ids, EOS) for one in found if one.has_ended}
    assert drawn == {tuple(ids) for _, ids in all_of(model, [3, 4, EOS], lambda ids: True, limit=3)}
