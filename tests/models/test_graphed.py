"""A step as one graph finds what plain steps find, whether it is called, recorded or replayed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.models.base import Seq2Seq
from nmt.models.build import build_model
from nmt.models.graphed import GraphedModel
from nmt.ops import graphs

SOURCE = torch.tensor([[5, 7, 3, 9, 1], [4, 8, 1, 0, 0], [6, 6, 2, 1, 0]])


def make_model(cell: str, **options: Any) -> Seq2Seq:
    torch.manual_seed(2)
    config: Any = SimpleNamespace(
        architecture="deepnmt", cell=cell, cell_options={}, hidden_size=6, encoder_hidden_size=None, embedding_size=5,
        encoder_layers=1, decoder_layers=2, context_aware_encoder=True, deep_attention=False, deep_output=True,
        attention_heads=2, layer_norm=False, tie_embeddings="target_softmax", dropout=0.0, init_range=0.8,
    )  # fmt: skip
    config.__dict__.update(options)
    return build_model(config, 12, 12).eval()


class Replayed:
    """Recordings without a GPU: they compute again on the memory of their inputs."""

    def __init__(self) -> None:
        self.replays = 0
        self.recorder = graphs.Recorder(self.record)

    def record(self, work: graphs.Work, inputs: graphs.Inputs) -> graphs.Recording:
        outputs = list(work(*inputs))

        def replay() -> None:
            self.replays += 1
            for place, new in zip(outputs, work(*inputs), strict=True):
                place.copy_(new)

        return graphs.Recording(replay, inputs, outputs)

    def run(self, work: Any, inputs: Any, *, recorder: None, **options: Any) -> list[Tensor]:
        return self.recorder.run(work, inputs, **options)


def search(model: Any, beam: int) -> Any:
    pytest.importorskip("sentencepiece", reason="the search package needs what only an installation has")
    from nmt.search import beam_search, greedy_search

    limits = {"max_length_offset": 4}
    if beam == 1:
        return greedy_search(model, SOURCE, beam_size=1, length_penalty=0.6, **limits)
    return beam_search(model, SOURCE, beam_size=beam, length_penalty=0.6, **limits)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(("cell", "options"), [("lrn", {}), ("lstm", {"deep_attention": True}), ("atr", {})])
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
    logits, _ = GraphedModel(model).step(None, state)
    torch.testing.assert_close(logits, model.step(None, model.start(SOURCE))[0])


@pytest.mark.gpu
def test_on_a_gpu_a_replay_is_the_step_itself() -> None:
    model = make_model("lrn").cuda()
    graphed, source = GraphedModel(model), SOURCE.cuda()
    with torch.inference_mode():
        state, plain = graphed.start(source), model.start(source)
        tokens = torch.tensor([4, 5, 6], device="cuda")
        for _ in range(5):
            (ours, state), (wanted, plain) = graphed.step(tokens, state), model.step(tokens, plain)
            torch.testing.assert_close(ours, wanted)
            order = torch.tensor([0, 1, 2], device="cuda")
            state, plain = state.reorder(order), plain.reorder(order)
