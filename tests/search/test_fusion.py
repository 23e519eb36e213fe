"""Shallow fusion: brute force over all translations, whatever is in the batch, and every search that it joins."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config.schema import DecodingConfig
from nmt.errors import CheckpointError, ConfigError
from nmt.interop.model_dir import load_model
from nmt.language_models.fusion import Fusion
from nmt.language_models.model import LanguageModel
from nmt.sampling.search import SampleOptions, sample_search
from nmt.search import Hypothesis
from nmt.search.base import build_search
from nmt.search.ensemble import Ensemble
from nmt.search.ruled import RuledModel, RuledState
from nmt.search.shortlist import BatchWords, RestrictedModel
from nmt.search.translator import Translator
from nmt.search.values import Request
from nmt.zero.search import beam_search, greedy_search
from tests.search.table_model import EOS, PAD, TableModel, random_sources
from tests.search.test_batch_independence import ids, is_near_tie, sentences, small_model
from tests.search.test_ensemble import Table
from tests.tiny_language_model import log_q, make_language_model, target_words, tiny_language_model
from tests.tiny_run import make_run, subwords

V = 6
WEIGHT = 0.7
SOURCE = torch.tensor([[4, 5, EOS]])


def fused(model: Any, language_model: LanguageModel, *, weight: float = WEIGHT, **settings: Any) -> RuledModel[Any]:
    return RuledModel(model, fusion=Fusion(language_model, weight=weight), **settings)


def totals(
    model: TableModel, language_model: LanguageModel, source: list[int], found: list[int], *, weight: float = WEIGHT
) -> float:
    """The fused log-probability of ids, the end symbol among them if it is there: teacher-forced."""
    own = sum(
        float(model.next_logits(source, [None, *found[:t]]).log_softmax(0)[token]) for t, token in enumerate(found)
    )
    return own + weight * float(log_q(language_model, found).sum())


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
def test_a_beam_as_wide_as_the_space_finds_what_brute_force_finds(alpha: float) -> None:
    """All translations of up to 3 words, by their scores."""
    model, language_model = TableModel(3, vocabulary=V, eos=1.0), tiny_language_model(V)
    everything = []
    for length in range(1, 4):
        for body in itertools.product([1, 3, 4, 5], repeat=length):
            total = totals(model, language_model, SOURCE[0].tolist(), [*body, EOS])
            everything.append((total / ((5 + length + 1) / 6) ** alpha, list(body)))
    everything.sort(key=lambda one: -one[0])
    settings: dict[str, Any] = {"beam_size": 400, "n_best": 20, "length_penalty": alpha, "max_length_offset": 1}
    (found,) = beam_search(fused(model, language_model), SOURCE, **settings)
    assert len(found) >= 4
    expected = everything[: len(found)]
    assert ids(found) == [body for _, body in expected]
    assert [one.score for one in found] == pytest.approx([score for score, _ in expected], rel=1e-5)
    (plain,) = beam_search(model, SOURCE, **settings)
    assert ids(plain) != ids(found)


def check_scores(
    results: list[list[Hypothesis]], source: Tensor, model: TableModel, language_model: LanguageModel, *, alpha: float
) -> None:
    """Each score is that of the hypothesis read again: no row has another one's state."""
    for row, own in zip(source.tolist(), results, strict=True):
        assert own
        for one in own:
            tokens = [*one.ids, EOS] if one.has_ended else one.ids
            total = totals(model, language_model, [i for i in row if i != PAD] + [PAD], tokens)
            assert one.score == pytest.approx(total / ((5 + len(tokens)) / 6) ** alpha, rel=1e-4)


@pytest.mark.parametrize("search", ["beam", "greedy", "diverse_beam", "sample"])
def test_scores_are_those_of_what_is_found_read_again(search: str) -> None:
    """In a batch whose sentences are done at different times, so that rows are reordered and leave."""
    model, language_model = TableModel(7, vocabulary=9, eos=1.5), tiny_language_model(9)
    source = random_sources(1, sentences=13, longest=5, vocabulary=9)
    beam = 1 if search == "greedy" else 4
    decoding = DecodingConfig(search=search, beam_size=beam, n_best=min(beam, 3))
    found = build_search(decoding).search(
        fused(model, language_model),
        source,
        beam_size=beam,
        length_penalty=0.6,
        max_length_offset=6,
        n_best=decoding.n_best,
        scores=True,
    )
    check_scores(found, source, model, language_model, alpha=0.6)
    assert len({len(one.ids) for own in found for one in own}) > 2


def test_an_ensemble_is_fused_as_one_model() -> None:
    members, language_model = [Table(seed, vocabulary=8, eos=1.0) for seed in (1, 2)], tiny_language_model(8)
    (found,) = beam_search(
        fused(Ensemble(members), language_model), SOURCE, beam_size=3, length_penalty=0.0, max_length_offset=3
    )
    for one in found:
        tokens = [*one.ids, EOS] if one.has_ended else one.ids
        total = WEIGHT * float(log_q(language_model, tokens).sum())
        for t, token in enumerate(tokens):
            history = [None, *tokens[:t]]
            each = [m.next_logits(SOURCE[0].tolist(), history).softmax(0)[token] for m in members]
            total += math.log(float(sum(each)) / 2)
        assert one.score == pytest.approx(total, rel=1e-5)


def test_samples_are_drawn_in_proportion_to_the_product() -> None:
    """First words of 4,000 samples against p * q ** weight, normalised, by chi-square."""
    model, language_model = TableModel(5, vocabulary=V, spread=1.0), tiny_language_model(V, spread=8.0)
    count = 4000
    (found,) = sample_search(
        fused(model, language_model), SOURCE, samples=count, options=SampleOptions(), length_penalty=0.0,
        max_length_offset=0,
    )  # fmt: skip
    log_p = model.next_logits(SOURCE[0].tolist(), [None]).log_softmax(0)
    values = log_p + WEIGHT * language_model.step(torch.tensor([EOS]), None)[0][0].double()
    values[[PAD, EOS]] = -math.inf
    expected = values.softmax(0) * count
    counts = torch.bincount(torch.tensor([one.ids[0] for one in found]), minlength=V).double()
    used = expected > 0
    assert float(((counts - expected)[used].square() / expected[used]).sum()) < 30  # of 4 words


SHORT = torch.tensor([PAD, 1, EOS, 4, 7, 8, 11, 12, 15, 20, 22])


@pytest.mark.parametrize("restricted", [False, True])
@pytest.mark.parametrize(("method", "beam"), [(greedy_search, 1), (beam_search, 4)])
def test_batches_of_1_and_64(method: Any, beam: int, restricted: bool) -> None:
    torch.manual_seed(5)
    model, language_model = small_model("lrn", layer_norm=True), tiny_language_model(23, cell="lrn")
    options: dict[str, Any] = {"beam_size": beam, "length_penalty": 0.6, "max_length_offset": 4}

    def search(source: Tensor, *, with_fusion: bool = True) -> list[list[Hypothesis]]:
        fusion = Fusion(language_model, weight=0.4) if with_fusion else None
        if not restricted:
            return method(RuledModel(model, fusion=fusion), source, **options)
        forbidden = torch.zeros(len(source), len(SHORT), dtype=torch.bool)
        inner = RestrictedModel(model, BatchWords(SHORT, forbidden))
        return inner.with_ids(method(RuledModel(inner, words=SHORT, fusion=fusion), source, **options))

    source = sentences()
    together, near_ties = search(source), 0
    for place in range(0, len(source), 7):
        found, (alone,) = together[place], search(source[place, None])
        assert [one.score for one in found] == pytest.approx([one.score for one in alone], rel=1e-5)
        if ids(found) != ids(alone):
            near_ties += 1
            assert is_near_tie(found, alone)
    assert near_ties <= 1
    if restricted:
        assert {token for own in together for one in own for token in one.ids} <= {*SHORT.tolist()}
    plain = search(source, with_fusion=False)
    assert sum(ids(one) != ids(other) for one, other in zip(together, plain, strict=True)) > 20


def test_with_a_shortlist_it_reads_the_words_that_the_places_stand_for() -> None:
    """Scores are those of the translations read again: p over the listed words, q over all."""
    torch.manual_seed(5)
    model, language_model = small_model("lrn", layer_norm=True), tiny_language_model(23)
    source = sentences()[:6]
    inner = RestrictedModel(model, BatchWords(SHORT, torch.zeros(len(source), len(SHORT), dtype=torch.bool)))
    ruled = RuledModel(inner, words=SHORT, fusion=Fusion(language_model, weight=WEIGHT))
    found = inner.with_ids(beam_search(ruled, source, beam_size=3, length_penalty=0.0, max_length_offset=4))
    for row, own in enumerate(found):
        for one in own:
            tokens = [*one.ids, EOS] if one.has_ended else one.ids
            with torch.no_grad():
                logits = model(source[row, None], torch.tensor([tokens]))[0, :, SHORT]
            places = torch.searchsorted(SHORT, torch.tensor(tokens))
            log_p = logits.double().log_softmax(1).gather(1, places.unsqueeze(1)).sum()
            assert one.score == pytest.approx(float(log_p + WEIGHT * log_q(language_model, tokens).sum()), rel=1e-4)


def test_rows_of_a_language_model_go_with_theirs() -> None:
    """What expand, reorder and keep leave is what each sentence has alone."""
    model, language_model = TableModel(2, vocabulary=V), tiny_language_model(V)
    source = torch.tensor([[4, EOS], [5, EOS], [3, EOS]])

    def after(rows: Tensor, tokens: Tensor) -> tuple[Tensor, RuledState[Any]]:
        ruled = fused(model, language_model)
        _, state = ruled.step(None, ruled.start(rows))
        return ruled.step(tokens, state.expand(2))

    first = torch.tensor([3, 4, 5, 1, 4, 3])
    _, state = after(source, first)
    moved = state.reorder(torch.tensor([1, 0, 2, 2, 5, 4])).keep(torch.tensor([0, 2]))
    log_probs, _ = fused(model, language_model).step(torch.tensor([5, 3, 1, 4]), moved)
    for row, (sentence, history) in enumerate([(0, [4, 5]), (0, [3, 3]), (2, [3, 1]), (2, [4, 4])]):
        own = model.next_logits(source[sentence].tolist(), [None, *history]).log_softmax(0)
        q = language_model.run(torch.tensor([[EOS, *history]]))
        expected = own + WEIGHT * language_model.log_probabilities(q.features)[0, -1].double()
        torch.testing.assert_close(log_probs[row], expected, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run and a language model over its target words."""
    folder = tmp_path_factory.mktemp("fusion")
    make_run(folder / "run")
    make_language_model(folder / "lm", target_words())
    return folder


LINES = ["a b c", "", "d", "a b c d a b", "long@@ er b", "c"] * 2


def translator(folder: Path, **changes: Any) -> Translator:
    loaded = load_model(folder / "run")
    decoding = dataclasses.replace(loaded.config.decoding, **{"precision": "fp32", **changes})
    return Translator(loaded.model, loaded.tokenizer, decoding)


def test_weight_0_is_no_language_model_bit_for_bit(folder: Path) -> None:
    name = str(folder / "lm")
    plain = list(translator(folder, n_best=3).translations(LINES))
    none, usual, given = (
        list(translator(folder, n_best=3, language_model=name, **weight).translations(LINES))
        for weight in ({"language_model_weight": 0.0}, {}, {"language_model_weight": 0.2})
    )
    assert none == plain != usual == given


def test_a_language_model_computes_in_fp32_whatever_the_rest_does() -> None:
    fusion = Fusion(tiny_language_model(V), weight=1.0)
    found = []
    for bf16 in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            log_probs = torch.zeros(2, V)
            states = fusion.add_to(log_probs, None, None, None)
            fusion.add_to(log_probs, torch.tensor([3, 4]), states, None)
        found.append(log_probs)
    assert torch.equal(*found)


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_models_in_few_bits_have_a_language_model(folder: Path, precision: str) -> None:
    name = str(folder / "lm")
    plain = list(translator(folder, precision=precision).translate(LINES))
    found = list(translator(folder, precision=precision, language_model=name).translate(LINES))
    assert all(bool(one) == bool(line) for one, line in zip(found, LINES, strict=True)) and found != plain


def test_prefixes_and_phrases_are_kept(folder: Path) -> None:
    fused_translator = translator(folder, language_model=str(folder / "lm"), language_model_weight=2.0)
    found = fused_translator.translations(
        [Request(text="a b", prefix="z u"), Request(text="a b", required=("v w",)), Request(text="d", forbidden=("x",))]
    )
    first, second, third = (one.best for one in found)
    assert first.startswith("z u") and "v w" in second and "x" not in third.split()


def test_what_a_language_model_prefers_comes_more_often(folder: Path) -> None:
    """The greater the weight, the more probable it finds the translations."""
    language_model = load_model(folder / "lm", task="language_model")
    model: Any = language_model.model
    means = []
    for weight in (0.0, 0.5, 4.0):
        found = translator(folder, language_model=str(folder / "lm"), language_model_weight=weight).translate(LINES)
        tokens = [[*language_model.tokenizer.encode_target([line])[0], EOS] for line in found if line]
        means.append(sum(float(log_q(model, own).mean()) for own in tokens))
    assert means[0] < means[1] < means[2]


def test_a_model_that_does_not_fit_is_refused_in_one_line(folder: Path, tmp_path: Path) -> None:
    make_language_model(tmp_path / "other", subwords(tmp_path), name="sentencepiece")
    with pytest.raises(ConfigError, match="other: its vocabulary is not the target vocabulary .* word 3 is "):
        translator(folder, language_model=str(tmp_path / "other"))
    with pytest.raises(CheckpointError, match="is a model of the task translation, but a model of language_model is"):
        translator(folder, language_model=str(folder / "run"))
    with pytest.raises(CheckpointError, match=f"{tmp_path / 'none'}: no such directory"):
        translator(folder, language_model=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="language_model_weight: has no effect without decoding.language_model"):
        translator(folder, language_model_weight=0.3)
