"""Ensembles: Zero's formula computed by numpy, whole searches beside an oracle, batches, shortlists, precisions."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.config.schema import DecodingConfig, ModelConfig
from nmt.data import EOS, PAD, Vocabulary
from nmt.data.whitespace import WhitespaceOptions, WhitespaceTokenizer
from nmt.errors import ConfigError
from nmt.models import Seq2Seq, build_model
from nmt.models.parts import OutputWords
from nmt.ops.matrices.best_words import Choice
from nmt.search import Hypothesis
from nmt.search.ensemble import Ensemble, EnsembleMean, as_one, choose_search_precision, ensemble_mean, mean_nll
from nmt.search.reading import score_pairs
from nmt.search.shortlist import BatchWords, RestrictedModel, Shortlist
from nmt.search.translator import Translator
from nmt.zero.search import beam_search, greedy_search
from tests.search.naive import cut, greedy, strip, zero_beam_search
from tests.search.table_model import TableModel, TableState, random_sources
from tests.search.test_golden_beam import model_of

UNITS = ("atr", "gru", "lrn", "lstm", "olrn", "sru")
GOLDEN = {
    "shared vocabulary": ("beam_deepnmt_atr_cae1_ln1", "beam_deepnmt_lrn_cae0_ln0", "beam_deepnmt_lrn_cae1_ln1"),
    "both architectures": (
        "beam_rnnsearch_olrn_cae1_ln1",
        "beam_deepnmt_gru_cae1_ln1",
        "beam_deepnmt_lstm_cae1_ln0",
        "beam_deepnmt_olrn_cae0_ln1",
        "beam_deepnmt_sru_cae1_ln0",
    ),
}
V = 19
OPTIONS: dict[str, Any] = {"length_penalty": 0.6, "max_length_offset": 4}


class Table(TableModel):
    """A table as a member of an ensemble."""

    def step(
        self, tokens: Tensor | None, state: TableState, words: OutputWords | None = None
    ) -> tuple[Tensor, TableState]:
        assert words is None
        return super().step(tokens, state)


class NumpyEnsemble:
    """What the oracles ask: the logits ln((1/K) sum_k softmax(logits_k)) after a history, members one by one."""

    def __init__(self, models: Sequence[Any], *, forbidden: Sequence[int] = ()) -> None:
        self.models, self.forbidden = models, list(forbidden)
        self.known: dict[Any, tuple[Tensor, Any]] = {}

    def next_logits(self, source: list[int], history: list[int | None]) -> Tensor:
        found = []
        for place in range(len(self.models)):
            logits = self._member(place, source, tuple(history))[0].numpy()[0].astype(np.float64)
            logits[self.forbidden] = -np.inf
            powers = np.exp(logits - logits.max())
            found.append(powers / powers.sum())
        with np.errstate(divide="ignore"):
            return torch.from_numpy(np.log(np.mean(found, axis=0)))

    def _member(self, place: int, source: list[int], history: tuple[int | None, ...]) -> tuple[Tensor, Any]:
        key = (place, tuple(source), history)
        if key not in self.known:
            model, ids, token = self.models[place], torch.tensor([source]), history[-1]
            state = self._member(place, source, history[:-1])[1] if history[1:] else model.start(ids)
            with torch.inference_mode():
                self.known[key] = model.step(None if token is None else torch.tensor([token]), state)
        return self.known[key]


def make_model(cell: str, seed: int, **options: Any) -> Seq2Seq:
    """A small one in fp64 whose translations depend on the source and do not end at once."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 6 + seed % 3, "embedding_size": 8, "attention_heads": 1, "tie_embeddings": "none"}
    options = {"layer_norm": False, **options}
    config = ModelConfig(cell=cell, init_range=0.4, **{**sizes, **options})
    model = build_model(config, V, V).double().eval()
    with torch.no_grad():
        model.embeddings.source.mul_(6)
        model.embeddings.softmax_table.mul_(4)
        model.embeddings.softmax_table[EOS] *= 0.3
    return model


@pytest.fixture(scope="module")
def six() -> list[Seq2Seq]:
    """One of each unit, of three architectures, some widths and depths."""
    options = {
        "gru": {"architecture": "rnnsearch"},
        "lrn": {"encoder_layers": 2, "decoder_layers": 3},
        "olrn": {"architecture": "rnnsearch_deepatt", "decoder_layers": 2},
    }
    return [make_model(cell, seed, **options.get(cell, {})) for seed, cell in enumerate(UNITS)]


def assert_same(found: list[list[Hypothesis]], expected: list[list[tuple[float, list[int]]]]) -> None:
    assert [[h.ids for h in row] for row in found] == [[cut(ids) for _, ids in row] for row in expected]
    for row, wanted in zip(found, expected, strict=True):
        assert [h.score for h in row] == pytest.approx([score for score, _ in wanted], rel=1e-12, abs=1e-10)


@pytest.mark.parametrize(("beam_size", "alpha", "eos"), [(1, 0.6, 1.0), (4, 0.6, 1.0), (5, 1.0, -30.0)])
def test_searches_of_tables(beam_size: int, alpha: float, eos: float) -> None:
    """Against Zero's search written with lists, its joint rule and each sentence alone."""
    tables = [Table(seed, vocabulary=12, eos=eos, spread=1.0 + seed) for seed in range(3)]
    source = random_sources(4, sentences=5, longest=6, vocabulary=12)
    oracle, limits = NumpyEnsemble(tables), {"length_penalty": alpha, "max_length_offset": 4}
    together = zero_beam_search(oracle, strip(source), beam_size=beam_size, alpha=alpha, offset=4)
    assert_same(beam_search(Ensemble(tables), source, beam_size=beam_size, stopping="batch", **limits), together)
    rule = {"beam_size": beam_size, "alpha": alpha, "offset": 4, "pad_allowed": False}
    alone = [zero_beam_search(oracle, [row], **rule)[0] for row in strip(source)]
    assert_same(beam_search(Ensemble(tables), source, beam_size=beam_size, **limits), alone)


@pytest.mark.parametrize("scores", [True, False])
def test_greedy_search_follows_the_mean_of_probabilities(scores: bool) -> None:
    """Also where scores are not wanted: the most probable word is not that with the largest sum of logits."""
    tables = [Table(seed, vocabulary=12, spread=0.5 + 4 * seed) for seed in range(2)]
    tables[0].table.sub_(1000.0 * torch.arange(tables[0].entries, dtype=torch.float64).unsqueeze(1))
    source = random_sources(5, sentences=12, longest=6, vocabulary=12)
    found = greedy_search(Ensemble(tables), source, length_penalty=0.6, max_length_offset=4, scores=scores)
    expected = [greedy(NumpyEnsemble(tables), row, alpha=0.6, offset=4) for row in strip(source)]
    assert [row[0].ids for row in found] == [cut(ids) for _, ids in expected]
    if scores:
        assert [row[0].score for row in found] == pytest.approx([score for score, _ in expected], abs=1e-10)


def test_six_units_and_three_architectures(six: list[Seq2Seq]) -> None:
    source = random_sources(6, sentences=4, longest=6, vocabulary=V)
    oracle = NumpyEnsemble(six)
    rule = {"beam_size": 3, "alpha": 0.6, "offset": 4, "pad_allowed": False}
    expected = [zero_beam_search(oracle, [row], **rule)[0] for row in strip(source)]
    assert_same(beam_search(Ensemble(six), source, beam_size=3, **OPTIONS), expected)
    singles = [beam_search(model, source, beam_size=3, **OPTIONS) for model in six]
    assert all(
        [[h.ids for h in row] for row in single] != [[cut(x) for _, x in r] for r in expected] for single in singles
    )


@pytest.mark.parametrize("kind", GOLDEN)
def test_zeros_formula_with_its_weights(golden: Any, kind: str) -> None:
    cases = [golden(name) for name in GOLDEN[kind]]
    models = [model_of(case, torch.float64) for case in cases]
    source = torch.from_numpy(cases[0][1]["in/source"]).long()[:3]
    offset = cases[0][0]["decode_length"]
    expected = zero_beam_search(NumpyEnsemble(models), strip(source), beam_size=4, alpha=0.6, offset=offset)
    limits = {"length_penalty": 0.6, "max_length_offset": offset}
    assert_same(beam_search(Ensemble(models), source, beam_size=4, stopping="batch", **limits), expected)


def test_one_model_and_the_same_twice_are_that_model(six: list[Seq2Seq]) -> None:
    source = random_sources(7, sentences=8, longest=6, vocabulary=V)
    model = six[2]
    assert as_one([model]) is model
    wanted = beam_search(model, source, beam_size=4, **OPTIONS)
    for members in ([model], [model, model], [model] * 5):
        found = beam_search(Ensemble(members), source, beam_size=4, **OPTIONS)
        assert_same(found, [[(h.score, h.ids) for h in row] for row in wanted])


@pytest.mark.parametrize("method", [beam_search, greedy_search])
def test_among_the_words_of_a_shortlist(six: list[Seq2Seq], method: Any) -> None:
    """Each sentence in a batch as by numpy over its own words, which each member normalises over them."""
    source = random_sources(8, sentences=6, longest=6, vocabulary=V)
    ids = torch.tensor([0, 1, 2, 4, 5, 8, 9, 12, 15, 17])
    forbidden = torch.zeros(6, len(ids), dtype=torch.bool)
    forbidden[0::2, 4] = forbidden[1::2, 6:] = True
    with torch.inference_mode():
        restricted = RestrictedModel(Ensemble(six[:3]), BatchWords(ids, forbidden))
        size = 3 if method is beam_search else 1
        found = restricted.with_ids(method(restricted, source, beam_size=size, **OPTIONS))
    for row, without, hypotheses in zip(strip(source), forbidden, found, strict=True):
        absent = sorted(set(range(V)) - set(ids[~without].tolist()))
        oracle = NumpyEnsemble(six[:3], forbidden=absent)
        if method is beam_search:
            wanted = zero_beam_search(oracle, [row], beam_size=3, alpha=0.6, offset=4, pad_allowed=False)[0]
        else:
            wanted = [greedy(oracle, row, alpha=0.6, offset=4)]
        assert_same([hypotheses], [wanted])


def test_what_is_all_but_impossible_keeps_its_order() -> None:
    """In fp32 such probabilities are 0, and their mean has no logarithm."""
    tables = [Table(seed, vocabulary=8, dtype=torch.float32) for seed in range(2)]
    for table in tables:
        table.table[:] = torch.tensor([0.0, 500.0, -9.0, -300.0, -100.0, -200.0, -400.0, 1e4])
    ensemble = Ensemble(tables)
    best, _ = ensemble.best(torch.tensor([3]), ensemble.start(torch.tensor([[4, EOS]])), Choice(8, banned=PAD))
    assert best.words.tolist() == [[7, 1, EOS, 4, 5, 3, 6, PAD]]
    assert best.values[0, 1:7].tolist() == pytest.approx([-9500.0, -10009.0, -10100.0, -10200.0, -10300.0, -10400.0])


def test_scores_are_those_of_the_mean_of_probabilities(six: list[Seq2Seq]) -> None:
    source = random_sources(9, sentences=5, longest=6, vocabulary=V)
    target = random_sources(10, sentences=5, longest=8, vocabulary=V)
    oracle = NumpyEnsemble(six)
    for row, ids, found in zip(strip(source), strip(target), mean_nll(six, source, target), strict=True):
        expected = 0.0
        for place, token in enumerate(ids):
            expected -= float(oracle.next_logits(row, [None, *ids[:place]])[token]) / len(ids)
        # Losses are fp32 also of models in fp64.
        assert float(found) == pytest.approx(expected, abs=2e-6)
    torch.testing.assert_close(mean_nll(six[:1], source, target), six[0].score(source, target))


TOKENS = [f"w{i}" for i in range(V - 3)]


def decoding(**changes: Any) -> DecodingConfig:
    return dataclasses.replace(DecodingConfig(beam_size=4, max_length_offset=4, batch_tokens=2000), **changes)


def tokenizer() -> WhitespaceTokenizer:
    return WhitespaceTokenizer(Vocabulary(TOKENS), Vocabulary(TOKENS), options=WhitespaceOptions())


def lines() -> list[str]:
    return [
        " ".join(TOKENS[i - 3] for i in row[:-1])
        for row in strip(random_sources(11, sentences=20, longest=7, vocabulary=V))
    ]


@pytest.mark.parametrize(
    ("precision", "beam_size", "listed"),
    [
        ("fp32", 4, False),
        ("fp32", 1, True),
        ("bf16", 4, True),
        ("bf16", 1, False),
        ("int8", 4, False),
        ("int8", 1, True),
    ],
)
def test_batches_of_1_and_of_many(
    six: list[Seq2Seq], tmp_path: Path, precision: str, beam_size: int, listed: bool
) -> None:
    options: dict[str, Any] = {"precision": precision, "beam_size": beam_size}
    if listed:
        frequent = torch.tensor([4, 7, 9, 11, 13], dtype=torch.int32)
        partners, starts = torch.arange(3, V, dtype=torch.int32), torch.arange(V + 1).sub(3).clamp(min=0)
        shortlist = Shortlist(frequent=frequent, partners=partners, starts=starts, target_size=V)
        (tmp_path / "list").write_bytes(shortlist.save_bytes(tokenizer()))
        options["shortlist"] = str(tmp_path / "list")
    first, *others = [model_in_fp32(model) for model in six[1:4]]
    found = [
        list(
            Translator(first, tokenizer(), decoding(batch_tokens=tokens, **options), others=others).translations(
                lines()
            )
        )
        for tokens in (2000, 1)
    ]
    # A rounding in fp32, which hangs on the size of a product, can take a number to the next int8 or bf16.
    tolerance, differing = (1e-5, 0) if precision == "fp32" else (1e-2, 1)
    for together, alone in zip(*found, strict=True):
        assert together.hypotheses[0].score == pytest.approx(alone.hypotheses[0].score, abs=tolerance)
        differing -= together.best != alone.best
    assert differing >= 0
    assert len({translation.best for translation in found[0]}) > 7


def model_in_fp32(model: Seq2Seq) -> Seq2Seq:
    return copy.deepcopy(model).float()


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_the_translator_converts_and_searches_all(six: list[Seq2Seq], precision: Any) -> None:
    first, *others = [model_in_fp32(model) for model in six[3:]]
    chosen = choose_search_precision(precision, device=torch.device("cpu"))
    source = random_sources(12, sentences=6, longest=6, vocabulary=V)
    with chosen.autocast():
        members = [chosen.converted(model) for model in (first, *others)]
        expected = beam_search(Ensemble(members), source, beam_size=4, **OPTIONS)
    found = Translator(first, tokenizer(), decoding(precision=precision, n_best=4), others=others).search(strip(source))
    for ours, wanted in zip(found, expected, strict=True):
        assert [h.ids for h in ours] == [h.ids for h in wanted]
        assert [h.score for h in ours] == pytest.approx([h.score for h in wanted], abs=1e-5)


def test_pairs_are_scored_by_all(six: list[Seq2Seq]) -> None:
    pairs = [("w1 w2", "w3 w4 w5"), ("", "w1"), ("w7 " * 9, ""), ("w3", "nothing known")]
    first, *others = six
    found = list(score_pairs(first, tokenizer(), pairs, batch_tokens=4096, others=others))
    alone = list(score_pairs(first, tokenizer(), pairs, batch_tokens=1, others=others))
    assert [p.mean_nll for p in found] == pytest.approx([p.mean_nll for p in alone], abs=1e-6)
    coder = tokenizer()
    for (source, target), pair in zip(pairs, found, strict=True):
        ids = [
            torch.tensor([[*encoded[0], EOS]])
            for encoded in (coder.encode_source([source]), coder.encode_target([target]))
        ]
        assert pair.mean_nll == pytest.approx(float(mean_nll(six, *ids)), abs=1e-6)
    assert [p.mean_nll for p in found] != [
        p.mean_nll for p in score_pairs(first, tokenizer(), pairs, batch_tokens=4096)
    ]


def numpy_mean(models: Sequence[Any], source: list[int], history: list[int | None], how: EnsembleMean) -> np.ndarray:
    """Log-probabilities by the formula, in float64."""
    logits = [NumpyEnsemble([model]).next_logits(source, history).numpy() for model in models]
    weights = np.array(how.weights or [1 / len(models)] * len(models))[:, None]
    found = [row - np.log(np.exp(row).sum()) for row in logits]
    if how.of == "probabilities":
        return np.log((weights * np.exp(found)).sum(0))
    mean = (weights * np.array(found)).sum(0)
    return mean - np.log(np.exp(mean).sum())


class NumpyMean(NumpyEnsemble):
    """What the oracles ask, by another mean."""

    def __init__(self, models: Sequence[Any], how: EnsembleMean) -> None:
        super().__init__(models)
        self.how = how

    def next_logits(self, source: list[int], history: list[int | None]) -> Tensor:
        return torch.from_numpy(numpy_mean(self.models, source, history, self.how))


MEANS = [
    EnsembleMean((0.7, 0.1, 0.2)),
    EnsembleMean(None, "log_probabilities"),
    EnsembleMean((0.5, 0.2, 0.3), "log_probabilities"),
]


@pytest.mark.parametrize("how", MEANS)
def test_other_means(how: EnsembleMean) -> None:
    """Whole searches beside the oracle, and log-probabilities that are such."""
    tables = [Table(seed, vocabulary=12, eos=1.0, spread=1.0 + seed) for seed in range(3)]
    source = random_sources(4, sentences=5, longest=6, vocabulary=12)
    rule = {"beam_size": 3, "alpha": 0.6, "offset": 4, "pad_allowed": False}
    expected = [zero_beam_search(NumpyMean(tables, how), [row], **rule)[0] for row in strip(source)]
    ensemble = Ensemble(tables, mean=how)
    assert_same(beam_search(ensemble, source, beam_size=3, **OPTIONS), expected)
    log_probs, _ = ensemble.step(None, ensemble.start(source))
    assert log_probs.exp().sum(1).tolist() == pytest.approx([1.0] * len(source))
    equal = beam_search(Ensemble(tables), source, beam_size=3, **OPTIONS)
    assert [row[0].score for row in equal] != pytest.approx([row[0][0] for row in expected], abs=1e-3)


@pytest.mark.parametrize("how", MEANS)
def test_scores_by_other_means(six: list[Seq2Seq], how: EnsembleMean, monkeypatch: pytest.MonkeyPatch) -> None:
    source = random_sources(9, sentences=5, longest=6, vocabulary=V)
    target = random_sources(10, sentences=5, longest=7, vocabulary=V)
    models, expected = six[1:4], []
    for row, words in zip(strip(source), strip(target), strict=True):
        history: list[int | None] = [None, *words[:-1]]
        nll = [-numpy_mean(models, row, history[: t + 1], how)[word] for t, word in enumerate(words)]
        expected.append(float(np.mean(nll)))
    assert mean_nll(models, source, target, mean=how).tolist() == pytest.approx(expected, abs=1e-10)
    monkeypatch.setattr("nmt.search.ensemble._CELLS", 1)
    assert mean_nll(models, source, target, mean=how).tolist() == pytest.approx(expected, abs=1e-10)


def test_equal_weights_are_the_default_and_one_model_is_itself(six: list[Seq2Seq]) -> None:
    source = random_sources(11, sentences=4, longest=6, vocabulary=V)
    wanted = beam_search(Ensemble(six[:2]), source, beam_size=2, **OPTIONS)
    found = beam_search(Ensemble(six[:2], mean=EnsembleMean((0.5, 0.5))), source, beam_size=2, **OPTIONS)
    assert [[h.ids for h in row] for row in found] == [[h.ids for h in row] for row in wanted]
    for how in MEANS[1:]:
        same = EnsembleMean(None if how.weights is None else (0.5, 0.5), how.of)
        twice = beam_search(Ensemble([six[1]] * 2, mean=same), source, beam_size=2, **OPTIONS)
        alone = beam_search(six[1], source, beam_size=2, **OPTIONS)
        assert [[h.ids for h in row] for row in twice] == [[h.ids for h in row] for row in alone]


def test_weights_are_settings_of_the_translator(six: list[Seq2Seq]) -> None:
    settings = {"ensemble_weights": [3.0, 1.0], "ensemble_mean": "log_probabilities"}
    assert ensemble_mean(decoding(**settings), models=2) == EnsembleMean((0.75, 0.25), "log_probabilities")
    first, second = six[1], six[2]
    lines = ["a b c", "d e"]
    found = list(Translator(first, tokenizer(), decoding(**settings), others=[second]).translations(lines))
    other = list(Translator(first, tokenizer(), decoding(), others=[second]).translations(lines))
    assert [one.hypotheses[0].score for one in found] != [one.hypotheses[0].score for one in other]
    for others, said in (([], "2 weights for 1 model;"), ([second, second], "2 weights for 3 models;")):
        with pytest.raises(ConfigError, match=f"decoding.ensemble_weights: {said} give one for each"):
            Translator(first, tokenizer(), decoding(**settings), others=others)


def test_attention_is_averaged_with_the_weights() -> None:
    weights = [torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])]
    assert EnsembleMean((0.75, 0.25)).attention(weights).tolist() == [[0.75, 0.25]]
    assert EnsembleMean().attention(weights).tolist() == [[0.5, 0.5]]
