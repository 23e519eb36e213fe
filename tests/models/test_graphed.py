"""A step as one graph finds what plain steps find, whether it is called, recorded or replayed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.models import graphed as graphed_module
from nmt.models.graphed import GraphedModel
from nmt.models.inference import inference_copy
from nmt.models.transformer import FORMS
from nmt.ops import graphs
from nmt.ops.matrices.best_words import Choice
from tests.models.small_model import SOURCE, make_model


class Replayed:
    """Recordings without a GPU: they compute again on the memory of their inputs."""

    def __init__(self) -> None:
        self.replays = 0
        self.recorder = graphs.Recorder(lambda: self.record, device=torch.device("cpu"))

    def record(self, work: graphs.Replay) -> graphs.Replay:
        def replay() -> None:
            self.replays += 1
            work()

        return replay

    def run(self, work: Any, inputs: Any, *, recorder: None, **options: Any) -> list[Tensor]:
        return self.recorder.run(work, inputs, **options)


def search(model: Any, beam: int) -> Any:
    pytest.importorskip("sentencepiece", reason="the search package needs what only an installation has")
    from nmt.zero.search import beam_search, greedy_search

    limits = {"max_length_offset": 4}
    if beam == 1:
        return greedy_search(model, SOURCE, beam_size=1, length_penalty=0.6, **limits)
    return beam_search(model, SOURCE, beam_size=beam, length_penalty=0.6, **limits)


KEPT: dict[str, Any] = {"decoder_mixing": "attention", "heads": 2}
BLOCKS = ("lrn", {"architecture": "transformer", "embedding_size": 8, "architecture_options": {"heads": 2}})
FORM = {**FORMS["opus_mt"], "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
OPUS_MT = ("lrn", {"architecture": "transformer", "embedding_size": 8, "architecture_options": FORM})
PLAIN = ("lrn", {"architecture": "transformer", "embedding_size": 8, "architecture_options": KEPT})


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(
    ("cell", "options"),
    [
        ("lrn", {}),
        ("lstm", {"deep_attention": True}),
        ("atr", {}),
        ("sru", {"encoder_cell": "gru"}),
        BLOCKS,
        PLAIN,
        OPUS_MT,
    ],
)
def test_the_search_finds_the_same(
    cell: str, options: dict[str, Any], beam: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, replayed = make_model(cell, **options), Replayed()
    wanted = search(model, beam)
    graphed = GraphedModel(model)
    assert [[h.ids for h in found] for found in search(graphed, beam)] == [[h.ids for h in found] for found in wanted]
    monkeypatch.setattr(graphs, "run", replayed.run)
    for _ in range(3):
        found = search(graphed, beam)
    assert replayed.replays > 5
    for ours, right in zip(found, wanted, strict=True):
        assert [h.ids for h in ours] == [h.ids for h in right]
        assert [h.score for h in ours] == pytest.approx([h.score for h in right], abs=1e-5)


def test_sources_of_similar_lengths_are_of_one_shape() -> None:
    model = make_model("lrn")
    state = GraphedModel(model).start(SOURCE)
    memory = state.inner.memories[0]
    assert memory is not None
    assert memory.keys.shape[2] == memory.values.shape[2] == memory.penalty.shape[3] == 16
    assert state.inner.memories[1] is None
    found, _ = GraphedModel(model).best(None, state, Choice(4))
    wanted, _ = model.best(None, model.start(SOURCE), Choice(4))
    torch.testing.assert_close(found.values, wanted.values)
    assert torch.equal(found.words, wanted.words)


def test_steps_of_other_choices_are_recorded_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    model, replayed = make_model("lrn"), Replayed()
    monkeypatch.setattr(graphs, "run", replayed.run)
    graphed, tokens = GraphedModel(model), torch.tensor([4, 5, 6])
    for choice in (Choice(2), Choice(2, banned=3), Choice(2, normalize=False), Choice(3), Choice(2)) * 3:
        found, _ = graphed.best(tokens, graphed.start(SOURCE), choice)
        wanted, _ = model.best(tokens, model.start(SOURCE), choice)
        torch.testing.assert_close(found.values, wanted.values)
        assert torch.equal(found.words, wanted.words)
    assert replayed.replays > 5


def shortlisted(model: Any, beam: int, words: list[list[int]]) -> Any:
    """What is found where each sentence may only have its own words."""
    pytest.importorskip("sentencepiece", reason="the search package needs what only an installation has")
    from nmt.search.shortlist import BatchWords, RestrictedModel

    ids = torch.tensor(sorted({0, 1, 2, *(word for own in words for word in own)}))
    forbidden = torch.tensor([[place not in (0, 1, 2, *own) for place in ids.tolist()] for own in words])
    restricted = RestrictedModel(model, BatchWords(ids, forbidden))
    return restricted.with_ids(search(restricted, beam))


WORDS = [[3, 5, 7, 9, 11], [4, 5], [3, 6, 8, 10]]


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("beam", [1, 3])
def test_among_the_words_of_a_shortlist(beam: int, int8: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model, replayed, shapes = inference_copy(make_model("lrn"), int8=int8), Replayed(), set()
    monkeypatch.setattr(graphed_module, "WORDS_STEP", 8)

    def run(work: Any, inputs: Any, **options: Any) -> list[Tensor]:
        shapes.add(inputs[3].shape)
        return replayed.run(work, inputs, **options)

    lists = (WORDS, [[3, 5, 7], [9], [3, 9]])
    graphed = GraphedModel(model)
    wanted = [shortlisted(model, beam, words) for words in lists]
    monkeypatch.setattr(graphs, "run", run)
    for _ in range(3):
        for words, right in zip(lists, wanted, strict=True):
            found = shortlisted(graphed, beam, words)
            assert [[h.ids for h in one] for one in found] == [[h.ids for h in one] for one in right]
            for ours, theirs in zip(found, right, strict=True):
                assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=1e-5)
    assert replayed.replays > 5
    assert shapes == {(8,), (16,)}  # of 7 and of 12 words: the shapes of ids
    used = {word for own, one in zip(WORDS, wanted[0], strict=True) for h in one for word in set(h.ids) - {*own, 1, 2}}
    assert not used


@pytest.mark.parametrize("beam", [1, 3])
def test_an_ensemble_of_graphed_models(beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all words and with a shortlist's; the graphs of the members compute what the output layers read."""
    pytest.importorskip("sentencepiece", reason="the search package needs what only an installation has")
    from nmt.search.ensemble import Ensemble

    models = [
        make_model("lrn"),
        make_model("lstm", deep_attention=True),
        make_model("gru", architecture="rnnsearch_deepatt", encoder_layers=2),
    ]
    few = [[3, 5, 7], [9], [3, 9]]
    wanted = search(Ensemble(models), beam), shortlisted(Ensemble(models), beam, few)
    assert wanted[0] != wanted[1]
    recorded = [Replayed() for _ in models]
    recorders = iter([replayed.recorder for replayed in recorded])
    monkeypatch.setattr(graphs, "new_recorder", lambda device: next(recorders))
    monkeypatch.setattr(graphs, "run", lambda *given, recorder, **options: recorder.run(*given, **options))
    graphed = Ensemble([GraphedModel(model) for model in models])
    for _ in range(3):
        found = search(graphed, beam), shortlisted(graphed, beam, few)
        for ours, right in zip(found, wanted, strict=True):
            assert [[h.ids for h in one] for one in ours] == [[h.ids for h in one] for one in right]
            for one, other in zip(ours, right, strict=True):
                assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-5)
    assert all(replayed.replays > 5 for replayed in recorded)


@pytest.mark.gpu
def test_on_a_gpu_a_replay_is_the_step_itself() -> None:
    model = make_model("lrn").cuda()
    graphed, source = GraphedModel(model), SOURCE.cuda()
    with torch.inference_mode():
        state, plain = graphed.start(source), model.start(source)
        tokens = torch.tensor([4, 5, 6], device="cuda")
        choice = Choice(3)
        for _ in range(5):
            (ours, state), (wanted, plain) = graphed.best(tokens, state, choice), model.best(tokens, plain, choice)
            torch.testing.assert_close(ours.values, wanted.values)
            assert torch.equal(ours.words, wanted.words)
            order = torch.tensor([0, 1, 2], device="cuda")
            state, plain = state.reorder(order), plain.reorder(order)
