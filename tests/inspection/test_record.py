"""What can be seen inside models: numbers are those of the models themselves, and nothing of a model is changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config import import_plugins
from nmt.inspection.record import RecordedCell, record, recording
from nmt.inspection.traces import trace
from nmt.models import build_model
from nmt.models.encoder import Bidirectional, ContextAware, Forward
from nmt.ops.unit import GateValues
from nmt.search.reading import layer_names
from tests.models.small_model import ARCHITECTURES, PAIRS, make_model
from tests.models.test_attention_weights import KINDS
from tests.models.test_plugin_architecture import V, settings
from tests.models.test_seq2seq import SOURCE, TARGET, make
from tests.own_components import registries_restored, write_example

S, T = SOURCE[0], TARGET[1]

ATTENTION = {
    "one attention, two heads": ["decoder.0"],
    "deep attention": ["decoder.0", "decoder.1", "decoder.2"],
    "deepnmt, plain": ["decoder.0"],
    "rnnsearch": ["decoder.0"],
    "rnnsearch_deepatt": ["decoder.0.0", "decoder.0.1", "decoder.0.2"],
    "transformer": ["decoder.0", "decoder.1"],
    "plain transformer": [
        *["encoder.0.self", "encoder.1.self", "encoder.2.self"],
        *["decoder.0.self", "decoder.0", "decoder.1.self", "decoder.1"],
    ],
}
BACK = ["encoder.0.forward", "encoder.0.backward.lower", "encoder.0.backward.higher"]
PAIR = ["decoder.0.lower", "decoder.0.higher"]
DEEP = [f"decoder.{layer}.{cell}" for layer in range(3) for cell in ("lower", "higher")]
UNITS = {
    "one attention, two heads": [*BACK, "encoder.1", *DEEP],
    "deep attention": [*BACK, "encoder.1", *DEEP],
    "deepnmt, plain": ["encoder.0.forward", "encoder.0.backward", "encoder.1", *PAIR, "decoder.1", "decoder.2"],
    "rnnsearch": [*BACK, *PAIR],
    "rnnsearch_deepatt": [
        *["encoder.0", "encoder.1.lower", "encoder.1.higher", "encoder.2.lower", "encoder.2.higher"],
        *["decoder.0.lower", "decoder.0.higher.0", "decoder.0.higher.1", "decoder.0.higher.2"],
    ],
    "transformer": [
        *[f"encoder.{layer}.{way}" for layer in range(3) for way in ("forward", "backward")],
        *["decoder.0", "decoder.1"],
    ],
    "plain transformer": [],
}


ENCODERS = {
    Forward: ["cell"],
    Bidirectional: ["forward_rnn", "backward_rnn"],
    ContextAware: ["backward_rnn.higher"],
}
"""Cells whose states are the outputs of a layer, side by side."""


def close(ours: Tensor, wanted: Tensor, atol: float = 2e-6) -> None:
    torch.testing.assert_close(ours, wanted, rtol=0, atol=atol)


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_attends_and_all_units_are_there(kind: str) -> None:
    model = make(**KINDS[kind]).float()
    found = record(model, S, T)
    assert list(found.attention) == ATTENTION[kind]
    assert list(found.units) == UNITS[kind]
    for name, unit in found.units.items():
        words = len(S) if name.startswith("encoder") else len(T)
        assert {part.shape for part in (*unit.states, *unit.gates.values())} == {unit.states.h.shape}
        assert len(unit.states.h) == words
        assert unit.memory is not None
        assert unit.memory.shape == (words, words)
        seen = unit.memory.triu() if unit.reverse else unit.memory.tril()
        assert torch.equal(unit.memory, seen)
        assert bool((unit.memory.diagonal() > 0).all())
        assert unit.reverse == ("backward" in name or name.startswith("encoder.1.") and kind == "rnnsearch_deepatt")


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_those_of_the_model(kind: str) -> None:
    """The model itself runs its kernels."""
    model = make(**KINDS[kind]).float()
    found = record(model, S, T)
    with torch.no_grad():
        close(found.logits, model(S[None], T[None])[0])
    wanted = model.attention(S[None], T[None])
    own = [weights for name, weights in found.attention.items() if not name.endswith(".self")]
    assert len(own) == len(wanted.layers)
    for ours, layer in zip(own, wanted.layers, strict=True):
        close(ours, layer[0])
    close(torch.cat(own).mean(0), wanted.mean[0])
    for name, weights in found.attention.items():
        close(weights.sum(-1), torch.ones(weights.shape[:2]))
        if name.endswith(".self"):
            masked = weights if name.startswith("encoder") else weights.tril()
            assert torch.equal(weights, masked)


@pytest.mark.parametrize(("encoder", "decoder"), PAIRS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_states_are_what_the_layers_put_out(encoder: str, decoder: str, architecture: str) -> None:
    model = make_model("gru", encoder_cell=encoder, decoder_cell=decoder, **ARCHITECTURES[architecture])
    found = record(model, S, T)
    units = list(found.units.values())
    assert [unit.unit for unit in units] == [encoder if name.startswith("encoder") else decoder for name in found.units]
    with torch.no_grad():
        state, tokens = model.start(S[None]), None
        for t in range(len(T)):
            _, state = model.step(tokens, state)
            tokens = T[t : t + 1]
            for layer, after in enumerate(state.states):
                name = f"decoder.{layer}"
                unit = found.units.get(f"{name}.higher", found.units.get(name))
                assert unit is not None
                for ours, wanted in zip(unit.states, after, strict=True):
                    close(ours[t : t + 1], wanted, atol=5e-6)
    seen: dict[str, Any] = {}
    for path, module in model.encoder.named_modules(prefix="encoder"):
        for kind, cells in ENCODERS.items():
            if type(module) is kind:
                names = layer_names([f"{path}.{cell}" for cell in cells])
                module.register_forward_hook(lambda _, __, output, names=names: seen.update({str(names): output}))
                wanted = torch.cat([found.units[name].states.h for name in names], -1)
                with torch.no_grad():
                    model.encode(S[None])
                close(wanted, seen[str(names)].outputs[0], atol=5e-6)
    assert seen


def test_one_cell_alone_is_traced_alike() -> None:
    """The forward direction of an encoder reads the embeddings, as `nmt.cells.trace` does."""
    model = make(cell="lrn").float()
    unit = record(model, S, T).units["encoder.0.forward"]
    found = trace(model.encoder.layers[0].forward_rnn, model.embeddings.embed_source(S[None]))
    close(unit.states.h, found.states.h[0])
    for name, gate in unit.gates.items():
        close(gate, found.gates[name][0])
    memory = found.memory()
    assert memory is not None
    assert unit.memory is not None
    close(unit.memory, memory[0])


@torch.no_grad()
def test_memory_goes_through_both_cells_of_a_layer() -> None:
    """What is left of a word has been multiplied by the forget gates of both; computed by the effect of a change."""
    model = make(cell="lrn", context_aware_encoder=False).double()
    found = record(model, S, T)
    lower, higher = found.units["decoder.0.lower"], found.units["decoder.0.higher"]
    f, i, f_higher, i_higher = lower.gates["f"], lower.gates["i"], higher.gates["f"], higher.gates["i"]
    for unit, t, k, wanted in (
        (lower, 1, 0, i[0] * f_higher[0] * f[1]),
        (lower, 3, 1, i[1] * f_higher[1] * f[2] * f_higher[2] * f[3]),
        (higher, 2, 1, i_higher[1] * f[2] * f_higher[2]),
        (higher, 2, 2, i_higher[2]),
    ):
        assert unit.memory is not None
        close(unit.memory[t, k], wanted.abs().mean(), atol=1e-12)


def test_there_are_no_weights_through_a_cell_that_forgets_otherwise() -> None:
    for cell, options, there in (("lrn", {"tanh": True}, False), ("rnn", {}, False), ("lrn", {}, True)):
        found = record(make(cell=cell, cell_options=options).float(), S, T)
        assert all((unit.memory is not None) == there for unit in found.units.values())
    found = record(make_model("gru", encoder_cell="rnn"), S, T)
    assert {name.split(".")[0] for name, unit in found.units.items() if unit.memory is not None} == {"decoder"}


def test_a_copied_state_is_still_that_of_the_step_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where rows are chosen by their masks at every step."""
    model = make(cell="gru").float()
    wanted = record(model, S, T)
    for module in ("nmt.cells.base", "nmt.models.decoder"):
        monkeypatch.setattr(
            f"{module}.live_rows", lambda mask, *, length: [torch.ones(1, 1, dtype=torch.bool)] * length
        )
    found = record(model, S, T)
    for name, unit in found.units.items():
        assert unit.memory is not None
        close(unit.memory, wanted.units[name].memory)
        assert unit.reverse == wanted.units[name].reverse


def test_the_model_stays_as_it_is() -> None:
    model = make(cell="lrn").float()
    modules, before = list(model.modules()), {name: value.clone() for name, value in model.state_dict().items()}
    record(model, S, T)
    assert all(one is other for one, other in zip(modules, model.modules(), strict=True))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.training


def test_one_word_alone() -> None:
    for kind in KINDS:
        found = record(make(**KINDS[kind]).float(), S[-1:], T[:1])
        assert all(len(unit.states.h) == 1 for unit in found.units.values())


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Path]:
    with registries_restored():
        yield write_example(tmp_path, "blocks")


def test_of_an_architecture_of_a_plugin_there_is_what_it_has(plugin: Path) -> None:
    """Its attention is a layer of torch's, of which nothing is known."""
    import_plugins([plugin])
    model: Any = build_model(settings(), V, V).eval()
    found = record(model, S, T)
    assert found.attention == {}
    assert list(found.units) == ["encoder.0.forward", "encoder.0.backward", "decoder.0", "decoder.1"]
    with torch.no_grad():
        close(found.logits, model(S[None], T[None])[0])


def test_attention_that_only_a_decoder_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(deep_attention=True).float()
    for module in ("nmt.inspection.record", "nmt.search.reading"):
        monkeypatch.setattr(f"{module}.AttentionQuery", type("Unknown", (), {}))
    found, wanted = record(model, S, T), model.attention(S[None], T[None]).layers
    assert list(found.attention) == ["decoder.0", "decoder.1", "decoder.2"]
    for ours, layer in zip(found.attention.values(), wanted, strict=True):
        assert torch.equal(ours, layer[0])


def test_what_stands_in_place_of_a_module_has_what_that_has() -> None:
    """Parts of a plugin may read attributes of the modules inside."""
    model = make(cell="lrn", layer_norm=True)
    rnn = model.decoder.layers[0].rnn
    cell, attention = RecordedCell(rnn.lower, others={}), recording(rnn.attention, "attend", [])
    assert cell.input_scale is rnn.lower.input_scale
    assert attention.score_weight is rnn.attention.score_weight
    for one in (cell, attention):
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            _ = one.nothing


def test_names() -> None:
    paths = [
        "encoder.layers.1.cell",
        "decoder.layers.0.rnn.higher.2",
        "mine.rnn",
        "encoder.forward_rnn",
        "decoder.cell",
    ]
    assert layer_names(paths) == ["encoder.1", "decoder.0.higher.2", "mine", "encoder.0.forward", "decoder.0"]
    assert layer_names(["decoder.layers.0.cell", "decoder.layers.0.rnn"]) == [
        "decoder.layers.0.cell",
        "decoder.layers.0.rnn",
    ]
    assert GateValues().named == {}
