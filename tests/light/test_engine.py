"""The engine finds what the search of PyTorch finds, whatever the model is made of, and however it is asked."""

from __future__ import annotations

import dataclasses
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
from nmt.light.options import OPTIONS
from nmt.models.base import Seq2Seq
from nmt.search.ensemble import EQUAL, as_one
from nmt.search.ruled import RepeatPenalty, RuledModel
from nmt.search.shortlist import RestrictedModel, Shortlist
from nmt.search.values import Hypothesis
from nmt.zero.search import beam_search
from tests.interop.engine_models import BLOCKS, EACH_UNIT, OTHERS, TRANSFORMER, content_of, make_model, section
from tests.light.engine_files import (
    NO_LIMIT,
    by_pytorch,
    hypotheses,
    library,
    opened,
    options,
    pieces,
    sentences,
    translated_ids,
)


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
        results = translated_ids(engine, sources, given)
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
    results = translated_ids(engine, sources, given)
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


def model_that_ends(cell: str, *, seed: int) -> Seq2Seq:
    """A small model whose translations end by themselves, short and long ones, while most of the others never do."""
    model = make_model(section(cell=cell, deep_output=False, embedding_size=16))
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        model.embeddings.softmax_table[EOS] = 2.0 * torch.randn(16, generator=draw)
    return model


def test_a_beam_of_one_is_not_greedy_search(tmp_path: Path) -> None:
    model = model_that_ends("lrn", seed=3)
    engine, sources = opened(model, tmp_path), sentences(20, vocabulary=17)
    expected = beam_search(model, pad([[*source, EOS] for source in sources]), beam_size=1, **NO_LIMIT)
    found = everything(engine, sources, beam_size=1, n_best=1, beam_of_one=True)
    for one, other in zip(found, expected, strict=True):
        same(one, other)
    greedy = everything(engine, sources, beam_size=1, n_best=1)
    assert [one[0].ids for one in found] != [one[0].ids for one in greedy]


@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 4.0])
@pytest.mark.parametrize(("cell", "seed"), [("gru", 4), ("lrn", 3), ("lrn", 5)])
def test_a_search_ends_when_nothing_wanted_can_be_better(
    cell: str, seed: int, length_penalty: float, tmp_path: Path
) -> None:
    """Not earlier: also where long translations are preferred, and where only some of the beam are wanted."""
    model = model_that_ends(cell, seed=seed)
    engine, sources = opened(model, tmp_path), sentences(40, vocabulary=17)
    lengths = set[int]()
    for beam, n_best, normalization, factor in ((4, 1, "gnmt", 1.0), (6, 3, "power", 0.7), (5, 5, "power", 2.3)):
        given = {"length_penalty": length_penalty, "max_length_offset": 9, "max_length_factor": factor}
        own = {**given, "length_normalization": OPTIONS["length_normalization"].number(normalization)}
        found = everything(engine, sources, beam_size=beam, n_best=n_best, **own)
        given["length_normalization"] = normalization
        for one, expected in zip(found, by_pytorch(model, sources, beam=beam, n_best=n_best, **given), strict=True):
            same(one, expected)
            lengths |= {len(each.ids) for each in one if each.has_ended}
    assert len(lengths) > 1


def test_of_equal_translations_the_first_found_is_the_better_one(tmp_path: Path) -> None:
    """Where two words are the same to the model, to the last bit, the translations with the first one come first."""
    model = model_that_ends("lrn", seed=4)
    table = model.embeddings.softmax_table  # that of the target, too
    with torch.no_grad():
        table[4::2] = table[3:-1:2]
    engine = opened(model, tmp_path)
    equal = 0
    for found in everything(engine, sentences(40, vocabulary=17), beam_size=8, n_best=8, max_length_offset=9):
        for one, other in zip(found[:-1], found[1:], strict=True):
            assert one.score >= other.score
            if one.score == other.score and one.has_ended and other.has_ended:
                assert one.ids < other.ids
                equal += 1
    assert equal > 20


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
        if beam == 1:
            unscored = everything(engine, sources, beam_size=1, n_best=1, scores=False)
            assert [one[0].ids for one in unscored] == [one[0].ids for one in found]
    results = translated_ids(engine, sources[3:4], options(engine, beam_size=2, attention=True, **NO_LIMIT))
    batch, target = torch.tensor([[*sources[3], EOS]]), torch.tensor([results.ids(0, 0, 0)])
    mean = torch.stack([member.attention(batch, target).mean[0] for member in members]).mean(0)
    torch.testing.assert_close(torch.tensor(results.attention(0, 0, 0)), mean, rtol=0, atol=2e-4)


def test_another_tokenizer_is_no_part_of_an_ensemble(tmp_path: Path) -> None:
    opened(make_model(section()), tmp_path, name="first")
    opened(make_model(section(tie_embeddings="all")), tmp_path, name="second")
    with pytest.raises(EngineError, match=r"second\.nmt: has another tokenizer than the first model of the ensemble$"):
        library().open([tmp_path / "first.nmt", tmp_path / "second.nmt"])


@pytest.mark.parametrize("side", [0, 1], ids=["source", "target"])
def test_another_vocabulary_of_the_same_size_is_no_part_of_an_ensemble(side: int, tmp_path: Path) -> None:
    model = make_model(section())
    vocabularies = [pieces(model.source_vocab_size), pieces(model.target_vocab_size)]
    for name in ("first", "second"):
        content = content_of(model, subwords=(vocabularies[0], vocabularies[1]))
        (tmp_path / f"{name}.nmt").write_bytes(content)
        vocabularies[side] = vocabularies[side].replace("\u4e03".encode(), "\u4f03".encode())
    with pytest.raises(EngineError, match=r"second\.nmt: has another tokenizer than the first model of the ensemble$"):
        library().open([tmp_path / "first.nmt", tmp_path / "second.nmt"])


def shortlist() -> Shortlist:
    """For 17 source tokens a few of 19, for some of them none."""
    counts = [number % 4 for number in range(17)]
    starts = torch.tensor([0, *counts]).cumsum(0)
    partners = torch.tensor([3 + (7 * i) % 16 for i in range(int(starts[-1]))], dtype=torch.int32)
    return Shortlist(frequent=torch.tensor([5, 11]), partners=partners, starts=starts, target_size=19)


@pytest.mark.parametrize(("precision", "multiple"), [("fp32", 1), ("bf16", 1), ("int8", 1), ("fp32", 8), ("fp32", 5)])
def test_a_shortlist_is_kept_to(precision: Any, multiple: int, tmp_path: Path) -> None:
    """Also where a sentence gets a multiple of words."""
    model = make_model(section(hidden_size=32, embedding_size=32, init_range=0.2))
    own = dataclasses.replace(shortlist(), multiple=multiple)
    engine = opened(model, tmp_path, shortlist=own, precision=precision)
    sources = sentences(12, vocabulary=17)
    found = everything(engine, sources, n_best=1)
    for source, one in zip(sources, found, strict=True):
        words = own.words(torch.tensor([[*source, EOS]]))
        assert set(one[0].ids) <= set(words.ids.tolist()) and (len(words.ids) - 1) % multiple == 0
        if precision == "fp32":
            restricted = RestrictedModel(model, words)
            (expected,) = restricted.with_ids(by_pytorch(restricted, [source], beam=3))
            same(one, expected)
    without = everything(opened(model, tmp_path, name="without", precision=precision), sources, n_best=1)
    assert everything(engine, sources, n_best=1, shortlist=False) == without != found
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
        model.embeddings.softmax_table[:] = 3e38 * torch.randn_like(model.embeddings.softmax_table).sign()
    engine = opened(model, tmp_path)
    for beam in (1, 3):
        results = translated_ids(engine, [[3, 4]], options(engine, beam_size=beam))
        assert (
            results.notes(0) == ["no_finite_translation"]
            and results.score(0, 0) == -math.inf
            and results.translations(0) == 1
        )


def test_the_limit_of_the_length_is_noted(tmp_path: Path) -> None:
    model = make_model(section())
    with torch.no_grad():
        model.embeddings.softmax_table[EOS] = -model.embeddings.softmax_table[3:].sum(0)  # nearly never the best
    engine = opened(model, tmp_path)
    results = translated_ids(engine, [[3, 4], []], options(engine, beam_size=1, max_length_offset=0))
    assert len(results.ids(0, 0, 0)) <= 3
    assert ("length_limit" in results.notes(0)) == (EOS not in results.ids(0, 0, 0))
    assert not results.sources(1) and results.score(1, 0) == 0 and not results.notes(1)


def test_a_line_counts_as_cut_if_one_of_its_parts_was(tmp_path: Path) -> None:
    engine = opened(model_that_ends("gru", seed=4), tmp_path)
    draw = torch.Generator().manual_seed(2)
    drawn = torch.randint(0x4E00, 0x4E00 + 13, (60, 12), generator=draw).tolist()
    lines = ["".join(map(chr, characters)).encode() for characters in drawn]
    results = engine.translate(lines, options(engine, beam_size=1, max_length_offset=3, split_long=4))
    seen = set[tuple[bool, bool]]()
    for line in range(len(lines)):
        cut = [results.ids(line, 0, part)[-1] != EOS for part in range(len(results.sources(line)))]
        assert ("length_limit" in results.notes(line)) == any(cut)
        seen.add((cut[0], cut[-1]))
    assert len(seen) == 4, "each of first and last, cut and not"


def test_few_sentences_after_others_with_a_smaller_beam(tmp_path: Path) -> None:
    """What a search leaves behind is used again only where it is large enough."""
    engine = opened(make_model(section()), tmp_path)
    (source,) = sentences(1, vocabulary=17)
    wanted = everything(opened(make_model(section()), tmp_path, name="other"), [source], beam_size=6, n_best=6)
    for beam in (1, 2, 3):
        everything(engine, [source], beam_size=beam, n_best=1)
    assert everything(engine, [source], beam_size=6, n_best=6) == wanted


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
        translated_ids(engine, [[3]], engine.defaults()._replace(**changes))
    with pytest.raises(EngineError, match="^sentence 1: id 17 is not in the vocabulary of 17$"):
        translated_ids(engine, [[3], [17]], engine.defaults())
