"""Recurrent dropout: what it hides of the state, in every unit, loop and direction, and that only training has it."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt.cells import GRU, Cell, DroppedCell, HiddenState, select_state
from nmt.config.schema import ModelConfig
from nmt.errors import ConfigError, say_once
from nmt.models import build_model
from nmt.models.build import check_recurrent_dropout
from nmt.models.decoder import AttentionRNN
from nmt.models.encoder import Bidirectional, OneToOneRNN
from nmt.ops import dispatch
from nmt.ops.dropout import Masks, masked_by
from nmt.registry import CELLS
from tests.models.two_cells import USUAL, given, maker, started

B, T, D, H = 4, 5, 3, 6
UNITS: list[tuple[str, dict[str, Any]]] = [
    ("atr", {}),
    ("atr", {"gates": "coupled", "activation": "output"}),
    ("gru", {}),
    ("gru", {"reset": "after"}),
    ("lrn", {}),
    ("lstm", {}),
    ("lstm", {"peepholes": True}),
    ("olrn", {}),
    ("rnn", {}),
    ("sru", {}),
]
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [1, 0, 0, 0, 0]]).bool()


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build(unit: str, options: dict[str, Any], *, p: float = 0.5, layer_norm: bool = False) -> Any:
    cell = maker(unit, hidden=H, layer_norm=layer_norm, **options)(D).double()
    for seed, parameter in enumerate(cell.parameters()):
        parameter.data = random(*parameter.shape, seed=seed) / 2
    cell.recurrent_dropout = p
    return cell


def keep_of(rows: int = B) -> Tensor:
    return (random(rows, H, seed=8) > 0) * 2.0


@pytest.mark.parametrize(("unit", "options"), UNITS)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_sequence_is_its_steps_with_one_mask(unit: str, options: dict[str, Any], reverse: bool) -> None:
    cell, x, keep = build(unit, options, layer_norm=True), random(B, T, D), keep_of()
    dropped = DroppedCell(cell, keep)
    first = state = cell.unpack_state(random(B, cell.state_size, seed=2))
    outputs, last = dropped.layer(x, first, MASK, reverse=reverse)
    projected, expected = cell.project(x), {}
    for t in sorted(range(T), reverse=reverse):
        state = select_state(MASK[:, t], cell.dropped_step(projected[:, t], state, keep), state)
        expected[t] = cell.output(state)
    torch.testing.assert_close(outputs, torch.stack([expected[t] for t in range(T)], 1), rtol=0, atol=1e-12)
    torch.testing.assert_close(tuple(last), tuple(state), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("unit", "options"), UNITS)
def test_a_mask_of_ones_is_no_dropout(unit: str, options: dict[str, Any]) -> None:
    cell, x = build(unit, options), random(B, T, D)
    outputs, last = DroppedCell(cell, torch.ones(B, H, dtype=torch.float64)).layer(x, mask=MASK)
    wanted, wanted_last = cell.layer(x, mask=MASK)
    torch.testing.assert_close(outputs, wanted)
    torch.testing.assert_close(tuple(last), tuple(wanted_last))


CARRY = {"atr", "gru", "lrn", "lstm", "olrn", "sru"}
"""Units that carry something on; `rnn` has nothing but its product."""


@pytest.mark.parametrize(("unit", "options"), UNITS)
def test_gates_and_products_do_not_see_what_is_dropped_and_it_is_carried_on(unit: str, options: Any) -> None:
    """With everything hidden a step is that from zeros, but for what it adds of the state before."""
    cell, x = build(unit, options), random(B, D)
    projected, state = cell.project(x), cell.unpack_state(random(B, cell.state_size, seed=2))
    hidden = cell.dropped_step(projected, state, torch.zeros(B, H, dtype=torch.float64))
    empty = cell.step(projected, cell.initial_state(B, like=x))
    carried = (hidden[-1] - empty[-1]).abs()  # c where there is one
    assert bool((carried > 1e-6).all()) is (unit in CARRY)
    # What is carried on is linear in the state before, as the gates do not depend on it.
    twice = cell.dropped_step(projected, type(state)(*(2 * part for part in state)), torch.zeros(B, H))
    if unit not in ("olrn",):
        torch.testing.assert_close(twice[-1] - empty[-1], 2 * (hidden[-1] - empty[-1]))


def test_the_equations_of_gru_and_lrn() -> None:
    x, h, keep = random(B, D), random(B, H, seed=2), keep_of()
    gru = build("gru", {})
    x_z, x_r, x_h = (x @ gru.input_weight.T).split(H, -1)
    u_z, u_r = ((keep * h) @ gru.recurrent_weight.T + gru.recurrent_bias).split(H, -1)
    z, r = torch.sigmoid(x_z + u_z), torch.sigmoid(x_r + u_r)
    g = torch.tanh(x_h + (r * keep * h) @ gru.candidate_weight.T + gru.candidate_bias)
    torch.testing.assert_close(gru.dropped_step(gru.project(x), HiddenState(h), keep).h, z * h + (1 - z) * g)
    lrn = build("lrn", {})
    p, q, v = (x @ lrn.input_weight.T).split(H, -1)
    wanted = torch.sigmoid(p + keep * h) * v + torch.sigmoid(q - keep * h) * h
    torch.testing.assert_close(lrn.dropped_step(lrn.project(x), HiddenState(h), keep).h, wanted)


@pytest.mark.parametrize(("unit", "options"), UNITS)
def test_gradients(unit: str, options: dict[str, Any]) -> None:
    cell, keep, mask = build(unit, options), keep_of(2), torch.tensor([[1, 1, 0], [1, 0, 1]])
    x, start = random(2, 3, D).requires_grad_(), random(2, cell.state_size, seed=2).requires_grad_()
    names, values = zip(*cell.named_parameters(), strict=True)

    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell

        def forward(self, x: Tensor, start: Tensor) -> tuple[Tensor, ...]:
            outputs, last = DroppedCell(self.cell, keep).layer(x, self.cell.unpack_state(start), mask, reverse=True)
            return outputs, *last

    def run(x: Tensor, start: Tensor, *parameters: Tensor) -> Any:
        own = {f"cell.{name}": value for name, value in zip(names, parameters, strict=True)}
        return torch.func.functional_call(Dropped(), own, (x, start))

    assert torch.autograd.gradcheck(run, (x, start, *values), fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_mask_is_drawn_for_each_sentence_and_keeps_the_mean(dtype: torch.dtype) -> None:
    cell = maker("gru", hidden=50)(D)
    cell.recurrent_dropout = 0.2
    torch.manual_seed(3)
    dropped = cell.for_batch(torch.zeros(400, T, D, dtype=dtype))
    keep = dropped._keep
    assert keep.shape == (400, 50) and keep.dtype == dtype
    assert {round(value, 5) for value in keep.unique().tolist()} == {0.0, 1.25}
    assert abs(keep.mean().item() - 1) < 0.02
    assert len({tuple(row) for row in keep.tolist()}) == 400
    torch.manual_seed(3)
    assert torch.equal(cell.for_batch(torch.zeros(400, T, D, dtype=dtype))._keep, keep)


def test_only_training_drops() -> None:
    cell, x = build("lstm", {}), random(B, T, D)
    assert isinstance(cell.for_batch(x), DroppedCell)
    assert cell.eval().for_batch(x) is cell
    assert build("lstm", {}, p=0.0).for_batch(x).unit() is not None


def test_each_layer_drops_by_masks_of_its_own() -> None:
    """In a training, where the masks of a batch are a function of its key, and of the number of the layer."""
    cell, x, found = build("gru", {}), random(B, T, D), []
    for number in (0, 1, 1):
        cell.layer_number = number
        with masked_by(Masks(5)):
            found.append(cell.for_batch(x).layer(x)[0])
    assert not torch.equal(found[0], found[1])
    assert torch.equal(found[1], found[2])


def test_recurrent_weights_are_dropped_in_training_alone_and_each_matrix_by_a_mask_of_its_own() -> None:
    cell, x = build("gru", {}, p=0.0), random(B, T, D)
    whole = cell.layer(x)[0]
    cell.weight_dropout = 0.5
    with masked_by(Masks(5)):
        assert torch.equal(cell.eval().layer(x)[0], whole)
        assert not torch.allclose(cell.train().layer(x)[0], whole)
        hidden = [(matrix == 0)[:H] for matrix in (cell.recurrent.weight, cell.candidate.weight)]
    assert all(0 < float(mask.double().mean()) < 1 for mask in hidden) and not torch.equal(*hidden)


def run(network: Any, dtype: torch.dtype = torch.float32) -> Tensor:
    """Outputs of a network over fixed inputs."""
    network = network.to(dtype)
    if isinstance(network, Bidirectional):
        x = random(USUAL.sentences, USUAL.target, USUAL.inputs).to(dtype)
        return network(x, torch.ones(x.shape[:2], dtype=torch.bool)).outputs
    attends = isinstance(network, AttentionRNN)
    tensors = given("memory" if attends else "aligned", parts=len(network.lower.State._fields))
    x, second, state = (tensors[name].to(dtype) for name in ("x", "memory" if attends else "aligned", "state"))
    first = network.lower.unpack_state(state)
    if not attends:
        return network.sequence(x, second, first, reverse=True)[0]
    memory = network.attention.prepare(second, torch.ones(second.shape[:2], dtype=torch.bool))
    return network.sequence(x, memory, first).outputs


@pytest.mark.parametrize("kind", [AttentionRNN, OneToOneRNN, Bidirectional])
@pytest.mark.parametrize("unit", ["lrn", "lstm"])
def test_networks_of_two_cells_drop_in_both_by_masks_of_their_own(unit: str, kind: Any, monkeypatch: Any) -> None:
    sizes = (USUAL.inputs,) if kind is Bidirectional else (USUAL.inputs, USUAL.memory)
    network: Any = started(kind(maker(unit), *sizes))
    wanted = run(network)
    cells = [module for module in network.modules() if isinstance(module, Cell)]
    assert len(cells) == 2
    seen = []
    original = type(cells[0]).dropped_step

    def noted(self: Any, projected: Tensor, state: Any, keep: Tensor) -> Any:
        seen.append((self, keep))
        return original(self, projected, state, keep)

    monkeypatch.setattr(type(cells[0]), "dropped_step", noted)
    for chosen in ((cells[0],), (cells[1],), cells):
        for cell in cells:
            cell.recurrent_dropout = 0.5 if cell in chosen else 0.0
        seen.clear()
        assert not torch.allclose(run(network), wanted)
        assert [cell for cell in cells if any(cell is one for one, _ in seen)] == list(chosen)
        masks = [{id(keep): keep for one, keep in seen if one is cell} for cell in chosen]
        assert [len(found) for found in masks] == [1] * len(chosen)
    first, second = (next(iter(found.values())) for found in masks)
    assert not torch.equal(first, second)
    torch.testing.assert_close(run(network.eval()), wanted)
    assert len(seen) == 2 * USUAL.target  # nothing more is dropped in evaluation
    # The kernels of the other cell must not run beside it, and the step of a search is that of evaluation.
    torch.testing.assert_close(run(copy.deepcopy(network), torch.float64).float(), wanted, rtol=1e-4, atol=1e-5)


MODELS_OF: list[dict[str, Any]] = [
    {"architecture": "rnnsearch"},
    {"architecture": "rnnsearch", "context_aware_encoder": False},
    {"architecture": "deepnmt", "encoder_layers": 2, "decoder_layers": 2},
    {"architecture": "deepnmt", "encoder_layers": 2, "decoder_layers": 2, "context_aware_encoder": False},
    {"architecture": "deepnmt", "decoder_layers": 2, "deep_attention": True},
    {"architecture": "rnnsearch_deepatt", "encoder_layers": 2, "decoder_layers": 2},
]


@pytest.mark.parametrize("settings", MODELS_OF)
def test_all_cells_of_a_model_drop_by_one_mask_each_in_training_alone(settings: Any, monkeypatch: Any) -> None:
    torch.manual_seed(2)
    model = build_model(
        ModelConfig(cell="gru", hidden_size=8, embedding_size=8, recurrent_dropout=0.5, init_range=0.5, **settings),
        9,
        9,
    )
    masks: dict[int, set[int]] = {}
    kept = []
    original = GRU.dropped_step

    def noted(self: Any, projected: Tensor, state: Any, keep: Tensor) -> Any:
        masks.setdefault(id(self), set()).add(id(keep))
        kept.append(keep)
        return original(self, projected, state, keep)

    monkeypatch.setattr(GRU, "dropped_step", noted)
    source, target = torch.tensor([[3, 4, 5, 2], [6, 7, 2, 0]]), torch.tensor([[8, 3, 2], [4, 2, 0]])
    first, second = (model.loss(source, target).item() for _ in range(2))
    assert first != second
    cells = [module for module in model.modules() if isinstance(module, Cell)]
    assert masks.keys() == {id(cell) for cell in cells}
    assert {len(found) for found in masks.values()} == {2}  # one for each of the two losses
    masks.clear()
    model.eval()
    assert model.loss(source, target).item() == model.loss(source, target).item()
    assert not masks


def test_that_no_kernel_runs_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    cell, x = build("sru", {}).float(), random(B, T, D).float()
    say_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            cell.for_batch(x).layer(x)
    said = ["recurrent dropout: there is no kernel for it, slower PyTorch code runs."]
    assert [record.getMessage() for record in caplog.records] == (said if dispatch.use_native(x) else [])


@pytest.mark.skipif(dispatch.triton_problem() is not None, reason="Triton cannot be chosen here")
def test_it_is_an_error_for_who_insists_on_kernels() -> None:
    cell, x = build("gru", {}).float(), random(B, T, D).float()
    refused = "^kernels: 'triton' cannot run recurrent dropout: there is no kernel for it. Use auto.$"
    with dispatch.selected("triton"), pytest.raises(ConfigError, match=refused):
        cell.for_batch(x)


def test_every_unit_here_has_it_whose_gates_look_at_the_state() -> None:
    shipped = [name for name in CELLS.names() if CELLS.get(name).__module__.startswith("nmt.cells.")]
    assert len(shipped) == 10
    without = {name for name in shipped if CELLS.get(name).dropped_step is Cell.dropped_step}
    assert without == {"min_gru", "min_lstm", "ssru"}


@pytest.mark.parametrize("unit", ["min_gru", "min_lstm", "ssru"])
def test_a_unit_whose_gates_do_not_refuses_it(unit: str) -> None:
    config = ModelConfig(cell="lrn", decoder_cell=unit, recurrent_dropout=0.1)
    said = f"the unit '{unit}' has none: its gates do not look at the state"
    assert check_recurrent_dropout(config) == [("recurrent_dropout", said)]
