"""The engine finds what the search of PyTorch finds, whatever the model is made of, and however it is asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.data import EOS
from nmt.data.batching import pad
from nmt.light import EngineError
from nmt.light.binding import Model
from nmt.models.base import Seq2Seq
from nmt.search.beam import beam_search
from nmt.search.ensemble import as_one
from nmt.search.ensemble_mean import EQUAL
from nmt.search.hypothesis import Hypothesis
from nmt.search.restricted import RestrictedModel
from nmt.search.ruled import RuledModel
from nmt.search.rules import RepeatPenalty
from nmt.search.shortlist import Shortlist
from tests.interop.engine_models import BLOCKS, EACH_UNIT, OTHERS, TRANSFORMER, make_model, section
from tests.light.engine_files import NO_LIMIT, by_pytorch, hypotheses, library, opened, options, sentences


def same(found: Sequence[Hypothesis], expected: Sequence[Hypothesis], *, tolerance: float = 2e-4) -> None:
    """The same translations in the same order, with nearly the same scores."""
    assert [one.ids for one in found] == [one.ids for one in expected]
    assert [one.has_ended for one in found] == [one.has_ended for one in expected]
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=tolerance)


def check(model: Seq2Seq, folder: Path, *, kernels: str | None = None, count: int = 10) -> None:
    """Greedy and beam search of sentences of every length, and of the best ones their attention."""
    engine = opened(model, folder, kernels=kernels)
    sources = sentences(count, vocabulary=model.source_vocab_size)
    for beam, n_best in ((1, 1), (3, 2)):
        given = options(engine, beam_size=beam, n_best=n_best, attention=True, **NO_LIMIT)
        results = engine.translate_ids(sources, given)
        for line, expected in enumerate(by_pytorch(model, sources, beam=beam, n_best=n_best)):
            same(hypotheses(results, line), expected)
        for line in (0, count - 1):
            told(model, sources[line], results.ids(line, 0, 0), results.attention(line, 0, 0))


def told(model: Seq2Seq, source: list[int], ids: list[int], attention: list[list[float]]) -> None:
    """What the engine says that a translation attends to is what PyTorch says."""
    whole = model.attention(torch.tensor([[*source, EOS]]), torch.tensor([ids]))
    torch.testing.assert_close(torch.tensor(attention), whole.mean[0], rtol=0, atol=2e-4)


@pytest.mark.parametrize(("cell", "options"), EACH_UNIT)
def test_each_unit_with_each_option(cell: str, options: dict[str, Any], tmp_path: Path) -> None:
    check(make_model(section(cell=cell, cell_options=options, layer_norm=True)), tmp_path)
    if not options:  # the instruction is the same
        check(make_model(section(cell=cell, **TRANSFORMER)), tmp_path)


@pytest.mark.parametrize("changes", OTHERS, ids=str)
def test_each_option_of_the_recurrent_architectures(changes: dict[str, Any], tmp_path: Path) -> None:
    check(make_model(section(**changes)), tmp_path)


@pytest.mark.parametrize("chosen", BLOCKS, ids=str)
def test_each_option_of_the_transformer(chosen: dict[str, Any], tmp_path: Path) -> None:
    check(make_model(section(architecture="transformer", architecture_options=chosen)), tmp_path)


@pytest.mark.parametrize("kernels", ["plain", "avx2", "avx512_vnni", "avx512_bf16", "neon"])
def test_each_instruction_set(kernels: str, tmp_path: Path) -> None:
    try:
        check(make_model(section(encoder_cell="lstm", decoder_cell="gru")), tmp_path, kernels=kernels)
    except EngineError as error:
        pytest.skip(str(error))


def everything(engine: Model, sources: Sequence[list[int]], **changes: Any) -> list[list[Hypothesis]]:
    given = options(engine, **{"beam_size": 3, "n_best": 3, **NO_LIMIT, **changes})
    results = engine.translate_ids(sources, given)
    return [hypotheses(results, line) for line in range(len(sources))]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("mixing", ["unit", "attention"])
def test_a_sentence_depends_on_itself_alone(precision: Any, mixing: str, tmp_path: Path) -> None:
    """To the last bit: alone, among many, in another order, by several threads."""
    chosen = {"encoder_mixing": mixing, "decoder_mixing": mixing}
    model = make_model(section(architecture="transformer", architecture_options=chosen))
    engine = opened(model, tmp_path, precision=precision)
    sources = sentences(70, vocabulary=17, longest=30)
    found = everything(engine, sources)
    for changes in ({"threads": 3}, {"beam_size": 3}):
        assert everything(engine, sources, **changes) == found
    assert everything(engine, sources[::-1])[::-1] == found
    assert [everything(engine, [source])[0] for source in sources[:9]] == found[:9]
    assert everything(engine, sources, beam_size=1, n_best=1) == everything(
        engine, sources, beam_size=1, n_best=1, threads=2
    )


def test_a_beam_of_one_is_not_greedy_search(tmp_path: Path) -> None:
    model = make_model(section())
    engine, sources = opened(model, tmp_path), sentences(20, vocabulary=17)
    expected = beam_search(model, pad([[*source, EOS] for source in sources]), beam_size=1, **NO_LIMIT)
    found = everything(engine, sources, beam_size=1, n_best=1, beam_of_one=True)
    for one, other in zip(found, expected, strict=True):
        same(one, other)
    assert found != everything(engine, sources, beam_size=1, n_best=1)


def test_several_models_are_an_ensemble(tmp_path: Path) -> None:
    """Of different architectures; the probabilities are averaged, and so is what they attend to."""
    members = [make_model(section(cell="gru")), make_model(section(cell="lrn", **TRANSFORMER))]
    for number, member in enumerate(members):
        opened(member, tmp_path, name=f"model{number}")
    engine = library().open([tmp_path / "model0.nmt", tmp_path / "model1.nmt"])
    sources = sentences(12, vocabulary=17)
    for beam in (1, 3):
        found = everything(engine, sources, beam_size=beam, n_best=1)
        for one, other in zip(found, by_pytorch(as_one(members, mean=EQUAL), sources, beam=beam), strict=True):
            same(one, other)
    results = engine.translate_ids(sources[3:4], options(engine, beam_size=2, attention=True, **NO_LIMIT))
    batch, target = torch.tensor([[*sources[3], EOS]]), torch.tensor([results.ids(0, 0, 0)])
    mean = torch.stack([member.attention(batch, target).mean[0] for member in members]).mean(0)
    torch.testing.assert_close(torch.tensor(results.attention(0, 0, 0)), mean, rtol=0, atol=2e-4)


def test_another_tokenizer_is_no_part_of_an_ensemble(tmp_path: Path) -> None:
    opened(make_model(section()), tmp_path, name="first")
    opened(make_model(section(tie_embeddings="all")), tmp_path, name="second")
    with pytest.raises(EngineError, match=r"second\.nmt: has another tokenizer than the first model of the ensemble$"):
        library().open([tmp_path / "first.nmt", tmp_path / "second.nmt"])


def shortlist() -> Shortlist:
    """For 17 source tokens a few of 19, for some of them none."""
    counts = [number % 4 for number in range(17)]
    starts = torch.tensor([0, *counts]).cumsum(0)
    partners = torch.tensor([3 + (7 * i) % 16 for i in range(int(starts[-1]))], dtype=torch.int32)
    return Shortlist(frequent=torch.tensor([5, 11]), partners=partners, starts=starts, target_size=19)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_a_shortlist_is_kept_to(precision: Any, tmp_path: Path) -> None:
    model, own = make_model(section(hidden_size=32, embedding_size=32, init_range=0.2)), shortlist()
    engine = opened(model, tmp_path, shortlist=own, precision=precision)
    sources = sentences(12, vocabulary=17)
    found = everything(engine, sources, n_best=1)
    for source, one in zip(sources, found, strict=True):
        words = own.words(torch.tensor([[*source, EOS]]))
        assert set(one[0].ids) <= set(words.ids.tolist())
        if precision == "fp32":
            restricted = RestrictedModel(model, words)
            (expected,) = restricted.with_ids(by_pytorch(restricted, [source], beam=3))
            same(one, expected)
    assert everything(engine, sources, n_best=1, shortlist=False) != found
    assert [everything(engine, [source], n_best=1)[0] for source in sources] == found


@pytest.mark.parametrize("penalty", [0.4, 1.8])
@pytest.mark.parametrize("kind", ["one", "ensemble", "shortlist"])
def test_tokens_that_are_there_already_are_less_or_more_probable(kind: str, penalty: float, tmp_path: Path) -> None:
    """Greedily and by a beam, as in PyTorch; short translations of a model that repeats itself."""
    members = [make_model(section(init_range=0.3)), make_model(section(cell="lrn", init_range=0.3))]
    own = shortlist() if kind == "shortlist" else None
    for number, member in enumerate(members):
        opened(member, tmp_path, name=f"model{number}", shortlist=own)
    files = [tmp_path / f"model{number}.nmt" for number in range(2 if kind == "ensemble" else 1)]
    engine, sources = library().open(files), sentences(20, vocabulary=17)
    model: Any = as_one(members, mean=EQUAL) if kind == "ensemble" else members[0]
    for beam in (1, 3):
        wide = {"beam_size": beam, "n_best": 1, "max_length_offset": 9}
        found = everything(engine, sources, repeat_penalty=penalty, **wide)
        for source, one in zip(sources, found, strict=True):
            words = None if own is None else own.words(torch.tensor([[*source, EOS]]))
            inner = model if words is None else RestrictedModel(model, words)
            ruled = RuledModel(inner, adjustments=[RepeatPenalty(penalty)])
            (expected,) = by_pytorch(ruled, [source], beam=beam, max_length_offset=9)
            same(one, expected if words is None else inner.with_ids([expected])[0])
        assert found != everything(engine, sources, **wide)


def test_without_a_finite_probability_there_is_no_translation(tmp_path: Path) -> None:
    model = make_model(section())
    with torch.no_grad():
        model.embeddings.softmax_table[:] = math.nan
    engine = opened(model, tmp_path)
    for beam in (1, 3):
        results = engine.translate_ids([[3, 4]], options(engine, beam_size=beam))
        assert not results.is_finite(0) and results.score(0, 0) == -math.inf and results.translations(0) == 1


def test_the_limit_of_the_length_is_noted(tmp_path: Path) -> None:
    model = make_model(section())
    with torch.no_grad():
        model.embeddings.softmax_table[EOS] = -model.embeddings.softmax_table[3:].sum(0)  # nearly never the best
    engine = opened(model, tmp_path)
    results = engine.translate_ids([[3, 4], []], options(engine, beam_size=1, max_length_offset=0))
    assert len(results.ids(0, 0, 0)) <= 3
    assert results.was_cut(0) == (EOS not in results.ids(0, 0, 0))
    assert results.parts(1) == 0 and results.score(1, 0) == 0 and not results.was_cut(1)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"beam_size": 0}, "beam_size must be 1 to 1000"),
        ({"beam_size": 2, "n_best": 3}, "n_best must be 1 to beam_size"),
        ({"length_penalty": math.nan}, "length_penalty must be 0 to 10"),
        ({"threads": 0}, "threads must be 1 to 1024"),
        ({"max_length_offset": -1}, "max_length_offset must be 0 to 1000000"),
    ],
)
def test_options_that_there_are_not(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    engine = opened(make_model(section()), tmp_path)
    with pytest.raises(EngineError, match=f"^{problem}$"):
        engine.translate_ids([[3]], engine.defaults()._replace(**changes))
    with pytest.raises(EngineError, match="^sentence 1: id 17 is not in the vocabulary of 17$"):
        engine.translate_ids([[3], [17]], engine.defaults())
