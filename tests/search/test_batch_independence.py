"""Every unit, in every precision: a sentence gets the same translation alone as in a batch, but for rounding."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config.schema import ModelConfig
from nmt.data.vocabulary import EOS
from nmt.models import Seq2Seq, build_model
from nmt.models.transformer import FORMS
from nmt.ops.hardware import bf16_hardware
from nmt.search import Hypothesis
from nmt.search.ensemble import PrecisionName, choose_search_precision
from nmt.search.shortlist import RestrictedModel, Shortlist
from nmt.zero.search import beam_search, greedy_search

VOCABULARY = 23
SENTENCES = 64
ALONE = range(0, SENTENCES, 3)
"""Those that are translated alone, too."""
NEAR_TIE = 1e-5
OPTIONS = {"length_penalty": 0.6, "max_length_offset": 4}


def sentences() -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(1, 10, (SENTENCES, 1), generator=generator)
    source = torch.randint(3, VOCABULARY, (SENTENCES, 10), generator=generator)
    places = torch.arange(10)
    return source.masked_fill(places >= lengths, 0).masked_fill(places == lengths - 1, 2)


def ids(hypotheses: list[Hypothesis]) -> list[list[int]]:
    return [hypothesis.ids for hypothesis in hypotheses]


def is_near_tie(found: list[Hypothesis], alone: list[Hypothesis]) -> bool:
    """Whether, where the two first differ, a runner-up is that close; after the last rank none is known."""
    rank = next(place for place, (a, b) in enumerate(zip(found, alone, strict=True)) if a.ids != b.ids)
    return rank + 1 == len(alone) or alone[rank].score - alone[rank + 1].score < NEAR_TIE


def small_model(cell: str, *, layer_norm: bool, **settings: Any) -> Seq2Seq:
    """One whose translations depend on the source and do not end at once."""
    config = ModelConfig(
        **settings,
        cell=cell,
        layer_norm=layer_norm,
        hidden_size=16,
        embedding_size=12,
        encoder_layers=2,
        decoder_layers=2,
        context_aware_encoder=layer_norm,
        tie_embeddings="none",
        init_range=0.3,
    )
    model = build_model(config, VOCABULARY, VOCABULARY).eval()
    with torch.no_grad():
        model.embeddings.source.mul_(6)
        model.embeddings.softmax.mul_(2)
        model.embeddings.softmax[EOS] *= 0.3
    return model


UNITS = ["atr", "gru", "lrn", "lstm", "olrn", "sru", "ssru"]
ALL_UNITS = [*UNITS, *(pytest.param(unit, marks=pytest.mark.slow) for unit in ("min_gru", "min_lstm"))]
VARIANTS: dict[str, dict[str, Any]] = {
    **{cell: {"cell": cell} for cell in (*UNITS, "rnn")},
    "gru, reset after": {"cell": "gru", "cell_options": {"reset": "after"}},
    "lstm, peepholes": {"cell": "lstm", "cell_options": {"peepholes": True, "output_activation": "identity"}},
    "transformer": {"architecture": "transformer", "architecture_options": {"heads": 2}},
    "plain transformer": {
        "architecture": "transformer",
        "architecture_options": {"heads": 2, "encoder_mixing": "attention", "decoder_mixing": "attention"},
    },
    **{
        form: {
            "architecture": "transformer",
            "cell": "ssru",
            "architecture_options": {**options, "heads": 2, "encoder_layers": 2, "decoder_layers": 2},
        }
        for form, options in FORMS.items()
    },
}
BLOCKS = {
    "lrn, blocks": VARIANTS["transformer"],
    "attention, blocks": VARIANTS["plain transformer"],
    "marian": {key: value for key, value in VARIANTS["marian"].items() if key != "cell"},
}


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("cell", ALL_UNITS)
def test_batches_of_1_and_64(cell: str, layer_norm: bool) -> None:
    """In float32 the ids may differ where two hypotheses are closer than 1e-5; such cases are counted."""
    torch.manual_seed(5)
    model = small_model(cell, layer_norm=layer_norm)
    source = sentences()
    near_ties = 0
    together = beam_search(model, source, beam_size=4, **OPTIONS)
    for place in ALONE:
        found, alone = together[place], beam_search(model, source[place, None], beam_size=4, **OPTIONS)[0]
        assert [h.score for h in found] == pytest.approx([h.score for h in alone], rel=1e-5)
        if ids(found) != ids(alone):
            near_ties += 1
            assert is_near_tie(found, alone)
    assert near_ties <= 1
    assert len({str(ids(hypotheses)) for hypotheses in together}) > 40


FEW = [pytest.param(cell, marks=() if cell in ("atr", "gru", "sru") else pytest.mark.slow) for cell in ALL_UNITS]


@pytest.mark.parametrize("precision", ["bf16", pytest.param("int8", marks=pytest.mark.slow)])
@pytest.mark.parametrize("cell", [*FEW, *BLOCKS])
def test_in_few_bits_companions_change_less_than_the_bits_do(cell: str, precision: PrecisionName) -> None:
    """A library may add up the product of one row in another order than those of many, which rounding makes visible.

    How much is held against what the precision itself changes.
    """
    if precision == "bf16" and cell in BLOCKS and not bf16_hardware(torch.device("cpu")):
        pytest.skip("this CPU has no bf16 arithmetic, and what stands in for it rounds one row otherwise")
    torch.manual_seed(8)
    model = small_model(
        cell if cell in UNITS else "lrn", layer_norm=cell in ("gru", "lrn", "sru"), **BLOCKS.get(cell, {})
    )
    format_ = choose_search_precision(precision, device=torch.device("cpu"))
    converted = format_.converted(model)
    source = sentences()[:12]

    def search(searched: Seq2Seq, rows: Tensor, method: Any, size: int, shortlist: Shortlist | None) -> list[Any]:
        with torch.inference_mode(), format_.autocast() if searched is converted else nullcontext():
            if shortlist is None:
                return method(searched, rows, beam_size=size, **OPTIONS)
            restricted = RestrictedModel(searched, shortlist.words(rows))
            return restricted.with_ids(method(restricted, rows, beam_size=size, **OPTIONS))

    for method, size, shortlist in (
        (greedy_search, 1, None),
        (beam_search, 4, None),
        (beam_search, 2, lists_of_their_own()),
    ):
        together = search(converted, source, method, size, shortlist)
        exact = search(model, source, method, size, shortlist)
        alone = [search(converted, row.unsqueeze(0), method, size, shortlist)[0] for row in source]
        by_format, by_companions = largest_change(together, exact), largest_change(together, alone)
        assert by_companions <= by_format / 4
        assert by_format > 1e-3
        assert sum(ids(found) != ids(other) for found, other in zip(together, alone, strict=True)) <= 1


def largest_change(found: list[list[Hypothesis]], other: list[list[Hypothesis]]) -> float:
    """Of a score, among sentences with the same translations."""
    same = [(ours, theirs) for ours, theirs in zip(found, other, strict=True) if ids(ours) == ids(theirs)]
    return max(abs(a.score - b.score) for ours, theirs in same for a, b in zip(ours, theirs, strict=True))


def lists_of_their_own() -> Shortlist:
    """Each source word has three partners."""
    partners = torch.arange(3, 3 + 3 * VOCABULARY, dtype=torch.int32) * 7 % (VOCABULARY - 3) + 3
    starts = 3 * torch.arange(VOCABULARY + 1)
    frequent = torch.arange(4, VOCABULARY, 4, dtype=torch.int32)
    return Shortlist(frequent=frequent, partners=partners, starts=starts, target_size=VOCABULARY)


@pytest.mark.parametrize("unit", VARIANTS)
def test_in_double_precision_nothing_differs(unit: str) -> None:
    torch.manual_seed(6)
    settings = {"architecture": "rnnsearch", "hidden_size": 8, "embedding_size": 8, "init_range": 0.5}
    config = ModelConfig(**{**settings, **VARIANTS[unit]})
    model = build_model(config, VOCABULARY, VOCABULARY).double().eval()
    source = sentences()
    for search, size in ((beam_search, 3), (greedy_search, 1)):
        together = search(model, source, beam_size=size, **OPTIONS)
        for place in ALONE:
            found, alone = together[place], search(model, source[place, None], beam_size=size, **OPTIONS)[0]
            assert ids(found) == ids(alone)
            assert [h.score for h in found] == pytest.approx([h.score for h in alone], abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_ids_of_either_integer_type(dtype: torch.dtype) -> None:
    """Arrays of numpy and of other tools are often int32."""
    torch.manual_seed(7)
    model = build_model(ModelConfig(cell="lrn", hidden_size=8, embedding_size=8, init_range=0.5), 23, 23).eval()
    source = sentences()[:4]
    wanted = beam_search(model, source, beam_size=3, **OPTIONS)
    given = source.to(dtype)
    assert beam_search(model, given, beam_size=3, **OPTIONS) == wanted
    assert beam_search(model, given, beam_size=3, stopping="batch", **OPTIONS)
    assert len(greedy_search(model, given, **OPTIONS)) == 4
    torch.testing.assert_close(model.score(given, given), model.score(source, source))
    torch.testing.assert_close(model.loss(given, given), model.loss(source, source))
