"""Beam search on real models: Zero's sequences and scores, and the same results in batches of every size."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nmt.interop import zero
from nmt.models import Seq2Seq
from nmt.models.base import DecodingState
from nmt.ops.matrices.best_words import BestWords, Choice, best_words
from nmt.zero.search import beam_search, greedy_search
from tests.conftest import Golden, golden_names
from tests.search.naive import cut

EMPTY = -1e30
"""A stored score below this marks an empty slot."""
BEAMS = golden_names("beam_")
TYPES = {"out": (torch.float64, 1e-9), "f32": (torch.float32, 1e-3)}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", BEAMS)
def test_batch_mode_gives_zeros_beams(golden, name: str, kind: str) -> None:
    config, arrays = golden(name)
    dtype, tolerance = TYPES[kind]
    model = model_of((config, arrays), dtype)
    source = torch.from_numpy(arrays["in/source"]).long()
    compared = 0
    for beam_size, alpha in config["beam_runs"]:
        key = f"{kind}/beam{beam_size}_alpha{alpha}"
        if f"{key}/seq" not in arrays:
            continue
        found = beam_search(
            model,
            source,
            beam_size=beam_size,
            length_penalty=alpha,
            max_length_offset=config["decode_length"],
            stopping="batch",
        )
        for row, ids, scores in zip(found, arrays[f"{key}/seq"], arrays[f"{key}/score"], strict=True):
            filled = scores > EMPTY
            assert [h.ids for h in row] == [cut(slot.tolist()) for slot in ids[filled]]
            assert [h.score for h in row] == pytest.approx(scores[filled].tolist(), abs=tolerance)
            compared += len(row)
    assert compared >= 10


class WithoutPad:
    """A model that never generates PAD of its own accord, so that excluding it makes no difference."""

    def __init__(self, model: Seq2Seq) -> None:
        self.model = model

    def start(self, source: Tensor) -> DecodingState:
        return self.model.start(source)

    def best(self, tokens: Tensor | None, state: DecodingState, choice: Choice) -> tuple[BestWords, DecodingState]:
        logits, state = self.model.step(tokens, state)
        return best_words(logits.index_fill(1, torch.tensor([0]), -torch.inf), choice), state


@pytest.mark.parametrize("name", BEAMS[::3])
def test_sentence_mode_is_batch_mode_of_one(golden, name: str) -> None:
    config, arrays = golden(name)
    model = WithoutPad(model_of((config, arrays), torch.float64))
    source = random_batch(config["src_vocab_size"], sentences=12)
    options = {"beam_size": 4, "length_penalty": 0.6, "max_length_offset": config["decode_length"]}
    together = beam_search(model, source, **options)
    for row, found in zip(source, together, strict=True):
        alone = beam_search(model, row.unsqueeze(0), stopping="batch", **options)[0]
        assert [h.ids for h in found] == [h.ids for h in alone]
        assert [h.score for h in found] == pytest.approx([h.score for h in alone], abs=1e-12)


@pytest.mark.parametrize("name", BEAMS[::3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_batches_of_1_and_64(golden, name: str, dtype: torch.dtype) -> None:
    """The same ids in float64; in float32 except where two hypotheses are closer than 1e-5."""
    config, arrays = golden(name)
    model = model_of((config, arrays), dtype)
    source = random_batch(config["src_vocab_size"], sentences=64)
    options = {"beam_size": 4, "length_penalty": 0.6, "max_length_offset": config["decode_length"]}
    together = beam_search(model, source, **options)
    alone = [beam_search(model, row.unsqueeze(0), **options)[0] for row in source[::3]]
    differing = [(a, b) for a, b in zip(together[::3], alone, strict=True) if [h.ids for h in a] != [h.ids for h in b]]
    if dtype == torch.float64:
        assert not differing
    assert len(differing) <= 2
    for a, b in differing:
        assert [h.score for h in a] == pytest.approx([h.score for h in b], abs=1e-5)


@pytest.mark.parametrize("name", BEAMS[::3])
def test_greedy_search_is_the_argmax_of_forward_passes(golden, name: str) -> None:
    config, arrays = golden(name)
    model = model_of((config, arrays), torch.float64)
    source = random_batch(config["src_vocab_size"], sentences=4)
    found = greedy_search(model, source, length_penalty=0.6, max_length_offset=4)
    for row, (hypothesis,) in zip(source, found, strict=True):
        limit = int((row != 0).sum()) + 4
        ids: list[int] = []
        total = 0.0
        while len(ids) < limit and 2 not in ids:
            with torch.no_grad():
                # The place after the last word is filled with any word: it is read by nothing before it.
                values = model(row.unsqueeze(0), torch.tensor([[*ids, 3]]))[0, -1].log_softmax(0)
            values[0] = -torch.inf
            values[2] -= 0 if ids else 1e8
            ids.append(int(values.argmax()))
            total += float(values.max())
        assert hypothesis.ids == cut(ids)
        assert hypothesis.score == pytest.approx(total / ((5 + len(ids)) / 6) ** 0.6, abs=1e-9)


def model_of(case: Golden, dtype: torch.dtype) -> Seq2Seq:
    config, arrays = case
    variables = {key.removeprefix("var/"): arrays[key] for key in arrays.files if key.startswith("var/")}
    return zero.from_arrays(config, variables, dtype=dtype).eval()


def random_batch(vocabulary: int, *, sentences: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    lengths = torch.randint(1, 9, (sentences, 1), generator=generator)
    source = torch.randint(3, vocabulary, (sentences, 9), generator=generator)
    places = torch.arange(9)
    return source.masked_fill(places >= lengths, 0).masked_fill(places == lengths - 1, 2)
