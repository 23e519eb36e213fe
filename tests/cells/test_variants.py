"""Designs of LSTM and GRU that no kernel knows, and the plain unit: equations, PyTorch's own layers, and what runs."""

from __future__ import annotations

import copy
import itertools
import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn, sigmoid, tanh

from nmt.cells import GRU, LSTM, RNN, Cell, HiddenState, MemoryState
from nmt.errors import ConfigError, say_once
from nmt.models.decoder import AttentionRNN
from nmt.models.encoder import Bidirectional, OneToOneRNN
from nmt.ops import dispatch
from nmt.ops.matrices import quantize
from nmt.ops.recurrence import layer_norm
from nmt.ops.sequence import sequence
from tests.models.two_cells import USUAL, check, given, maker, run_attention, run_one_to_one, started, with_gradients

B, T, D, H = 4, 5, 6, 7

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "peepholes": ("lstm", {"peepholes": True}),
    "identity": ("lstm", {"output_activation": "identity"}),
    "sigmoid": ("lstm", {"output_activation": "sigmoid"}),
    "peepholes and identity": ("lstm", {"peepholes": True, "output_activation": "identity"}),
    "reset after": ("gru", {"reset": "after"}),
    "rnn": ("rnn", {}),
    "relu": ("rnn", {"activation": "relu"}),
}


def random(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def in_double(unit: type[Cell[Any]], *, layer_norm: bool = False, **options: Any) -> Any:
    """A cell whose parameters are all random, in float64."""
    cell = unit(D, H, layer_norm=layer_norm, options=unit.Options(**options)).double()
    for seed, parameter in enumerate(cell.parameters()):
        parameter.data = random(*parameter.shape, seed=seed) / 2
    return cell


@pytest.mark.parametrize("activation", ["tanh", "identity", "sigmoid"])
@pytest.mark.parametrize("normalized", [False, True], ids=["plain", "layer_norm"])
def test_peepholes_written_out(normalized: bool, activation: Any) -> None:
    cell = in_double(LSTM, layer_norm=normalized, peepholes=True, output_activation=activation)
    x, h, c = random(B, D), random(B, H, seed=2), random(B, H, seed=3)

    def products(name: str, of: Tensor) -> list[Tensor]:
        total = of @ getattr(cell, f"{name}_weight").T
        parts = [total[:, : 3 * H], total[:, 3 * H :]]
        if normalized:
            widths = [3 * H, H]
            scales, offsets = (getattr(cell, f"{name}_{kind}").split(widths) for kind in ("scale", "offset"))
            parts = [layer_norm(*one) for one in zip(parts, scales, offsets, strict=True)]
        return list(torch.cat(parts, -1).split(H, -1))

    x_i, x_f, x_o, x_g = products("input", x)
    u_i, u_f, u_o, u_g = products("recurrent", h)
    b_i, b_f, b_o, b_g = cell.recurrent_bias.split(H)
    i = sigmoid(x_i + u_i + b_i + cell.peephole_input * c)
    f = sigmoid(x_f + u_f + b_f + cell.peephole_forget * c)
    new = i * tanh(x_g + u_g + b_g) + f * c
    o = sigmoid(x_o + u_o + b_o + cell.peephole_output * new)
    wanted = MemoryState(o * {"tanh": tanh, "identity": lambda c: c, "sigmoid": sigmoid}[activation](new), new)
    torch.testing.assert_close(cell.step(cell.project(x), MemoryState(h, c)), wanted, rtol=0, atol=1e-12)


def test_peepholes_are_there_only_if_asked_for_and_start_as_weights() -> None:
    names = {name for name, _ in LSTM(D, H).named_parameters()}
    cell = LSTM(D, 400, options=LSTM.Options(peepholes=True))
    peepholes = {name: weight for name, weight in cell.named_parameters() if name not in names}
    assert sorted(peepholes) == ["peephole_forget", "peephole_input", "peephole_output"]
    assert all(weight.shape == (400,) and 0.07 < weight.abs().max() <= 0.08 for weight in peepholes.values())


@pytest.mark.parametrize("normalized", [False, True], ids=["plain", "layer_norm"])
def test_reset_after_the_product_written_out(normalized: bool) -> None:
    cell = in_double(GRU, layer_norm=normalized, reset="after")
    x, h = random(B, D), random(B, H, seed=2)

    def product(name: str, of: Tensor, rows: slice = slice(None)) -> Tensor:
        weight, scale, offset = (getattr(cell, f"{name}_{kind}") for kind in ("weight", "scale", "offset"))
        total = of @ weight[rows].T
        return layer_norm(total, scale[rows], offset[rows]) if normalized else total

    x_zr, x_h = product("input", x, slice(0, 2 * H)), product("input", x, slice(2 * H, 3 * H))
    z, r = sigmoid(x_zr + product("recurrent", h) + cell.recurrent_bias).split(H, -1)
    g = tanh(x_h + r * (product("candidate", h) + cell.candidate_bias))
    wanted = HiddenState(z * h + (1 - z) * g)
    torch.testing.assert_close(cell.step(cell.project(x), HiddenState(h)), wanted, rtol=0, atol=1e-12)


def assert_same_layer(cell: Cell[Any], layer: nn.Module, *, bias_in: Tensor | None = None) -> None:
    """Outputs, last state and the gradients of input and state are those of PyTorch's layer."""
    x, *state = (random(B, *shape, seed=seed) for seed, shape in enumerate([(T, D), *[(H,)] * len(cell.State._fields)]))
    results = []
    for own in (True, False):
        leaves = [tensor.clone().requires_grad_() for tensor in (x, *state)]
        if own:
            projected = cell.project(leaves[0]) if bias_in is None else cell.project(leaves[0]) + bias_in
            outputs, last = cell.sequence(projected, cell.State(*leaves[1:]))
        else:
            parts = tuple(part.unsqueeze(0) for part in leaves[1:])
            outputs, last = layer(leaves[0], parts if len(parts) > 1 else parts[0])
            last = [part.squeeze(0) for part in (last if isinstance(last, tuple) else (last,))]
        total = sum((part * random(*part.shape, seed=9)).sum() for part in (outputs, *last))
        results.append([outputs, *last, *torch.autograd.grad(total, leaves)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_reset_after_the_product_is_the_gru_of_pytorch() -> None:
    cell, layer = in_double(GRU, reset="after"), nn.GRU(D, H, batch_first=True).double()
    b_r, b_z, b_n = layer.bias_ih_l0.detach().chunk(3)
    with torch.no_grad():
        for ours, theirs in ((cell.input_weight, layer.weight_ih_l0), (cell.recurrent_weight, layer.weight_hh_l0)):
            r, z, n = theirs.chunk(3)  # their order of the gates
            ours.copy_(torch.cat([z, r, n])[: len(ours)])
        cell.candidate_weight.copy_(layer.weight_hh_l0[2 * H :])
        c_r, c_z, c_n = layer.bias_hh_l0.chunk(3)
        cell.recurrent_bias.copy_(torch.cat([b_z + c_z, b_r + c_r]))
        cell.candidate_bias.copy_(c_n)
    # Beside the bias that r gates, PyTorch has one that it does not; here it is added to the products of the input.
    assert_same_layer(cell, layer, bias_in=torch.cat([torch.zeros(2 * H), b_n]))


def test_lstm_is_that_of_pytorch() -> None:
    cell, layer = in_double(LSTM), nn.LSTM(D, H, batch_first=True).double()
    with torch.no_grad():
        pairs = {"weight_ih_l0": cell.input_weight, "weight_hh_l0": cell.recurrent_weight}
        for name, ours in pairs.items():
            i, f, g, o = getattr(layer, name).chunk(4)
            ours.copy_(torch.cat([i, f, o, g]))
        i, f, g, o = (layer.bias_ih_l0 + layer.bias_hh_l0).chunk(4)
        cell.recurrent_bias.copy_(torch.cat([i, f, o, g]))
    assert_same_layer(cell, layer)


def test_a_whole_lstm_layer_gets_all_that_a_sequence_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PyTorch computes a layer with its input products, which it does on some GPUs alone."""
    cell, x, state = in_double(LSTM), random(B, T, D), MemoryState(random(B, H, seed=2), random(B, H, seed=3))
    mask, called = torch.arange(T) < torch.tensor([[3], [5], [1], [4]]), []

    def layer(unit: Any, x: Tensor, weight: Tensor, before: Any, mask: Tensor | None, *, reverse: bool) -> Any:
        called.append(reverse)
        return sequence(unit, x @ weight.T, before, mask, reverse=reverse)

    wanted = [cell.layer(x, before, mask, reverse=reverse) for before in (None, state) for reverse in (False, True)]
    monkeypatch.setattr("nmt.cells.units.lstm_layer", layer)
    found = [cell.layer(x, before, mask, reverse=reverse) for before in (None, state) for reverse in (False, True)]
    torch.testing.assert_close(found, wanted)
    assert called == [False, True] * 2


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_rnn_is_that_of_pytorch(activation: str) -> None:
    cell, layer = (
        in_double(RNN, activation=activation),
        nn.RNN(D, H, nonlinearity=activation, batch_first=True).double(),
    )
    with torch.no_grad():
        cell.input_weight.copy_(layer.weight_ih_l0)
        cell.recurrent_weight.copy_(layer.weight_hh_l0)
        cell.recurrent_bias.copy_(layer.bias_ih_l0 + layer.bias_hh_l0)
    assert_same_layer(cell, layer)


@pytest.mark.parametrize("name", VARIANTS)
def test_no_kernel_is_offered_the_variant(name: str) -> None:
    unit, options = VARIANTS[name]
    cell = maker(unit, hidden=H, **options)(D)
    assert not cell.unit().usual or cell.unit().native is None
    x = random(B, T, D, dtype=torch.float32)
    projected = cell.project(x)
    outputs, last = cell.sequence(projected)
    wanted, wanted_last = Cell.sequence(cell, projected)
    for ours, right in ((outputs, wanted), *zip(last, wanted_last, strict=True)):
        torch.testing.assert_close(ours, right)
    layer, _ = cell.layer(x, mask=torch.ones(B, T, dtype=torch.bool), reverse=True)
    torch.testing.assert_close(layer, Cell.sequence(cell, projected, reverse=True)[0])
    state = cell.unpack_state(random(B, cell.state_size, dtype=torch.float32))
    with torch.inference_mode():
        torch.testing.assert_close(cell.search_step(projected[:, 0], state), cell.step(projected[:, 0], state))


@pytest.mark.parametrize("name", VARIANTS)
def test_loops_over_two_cells(name: str) -> None:
    unit, options = VARIANTS[name]
    mask = torch.ones(USUAL.sentences, USUAL.target, dtype=torch.bool)
    mask[0, 2:] = mask[2, 1:] = mask[3, 0] = False
    make = maker(unit, **options)
    for kind, second in ((AttentionRNN, "memory"), (OneToOneRNN, "aligned")):
        network: Any = started(kind(make, USUAL.inputs, USUAL.memory))
        tensors = given(second, parts=len(network.lower.State._fields))
        for reverse in (False, True) if kind is OneToOneRNN else (False,):
            found, wanted = (
                run_attention(network, tensors, mask, dtype)
                if kind is AttentionRNN
                else run_one_to_one(network, tensors, mask, dtype=dtype, reverse=reverse)
                for network, dtype in ((network, torch.float32), (copy.deepcopy(network).double(), torch.float64))
            )
            check(found, wanted, tolerance=2e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_both_directions(name: str) -> None:
    unit, options = VARIANTS[name]
    encoder: Any = started(Bidirectional(maker(unit, hidden=H, **options), D))
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[1, 2:] = mask[3, 1:] = False
    results = []
    for network, dtype in ((encoder, torch.float32), (copy.deepcopy(encoder).double(), torch.float64)):
        x = random(B, T, D).to(dtype).requires_grad_()
        outputs, last = network(x, mask)
        results.append(with_gradients(network, {"x": x}, {"outputs": outputs, "last": last}))
    check(*results, tolerance=2e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_searches_take_its_matrices_in_int8(name: str) -> None:
    unit, options = VARIANTS[name]
    cell = maker(unit, hidden=40, **options)(24)
    cell.reset_parameters(0.5)
    projected, state = cell.project(random(B, 24, dtype=torch.float32)).detach(), random(B, cell.state_size).float()
    with torch.inference_mode():
        wanted = cell.step(projected, cell.unpack_state(state))
        for weight_name, weight in list(cell.named_parameters()):
            if weight.dim() == 2:
                delattr(cell, weight_name)
                setattr(cell, weight_name, quantize(weight))
        found = cell.search_step(projected, cell.unpack_state(state))
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.1)
    assert not torch.equal(found.h, wanted.h)


@pytest.mark.parametrize(("unit", "options"), [VARIANTS[name] for name in ("peepholes", "reset after", "rnn")])
def test_that_no_kernel_runs_is_said_once(unit: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    cell, x = maker(unit, hidden=H, **options)(D), random(B, T, D, dtype=torch.float32)
    say_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        with dispatch.selected("reference"):
            cell.layer(x)
        assert not caplog.records  # nobody expects kernels
        for _ in range(2):
            cell.layer(x)
    said = [f"{cell.unit().words}: there is no kernel for it, slower PyTorch code runs."]
    assert [record.getMessage() for record in caplog.records] == (said if dispatch.use_native(x) else [])


@pytest.mark.skipif(dispatch.triton_problem() is not None, reason="Triton cannot be chosen here")
@pytest.mark.parametrize(("unit", "options"), [VARIANTS[name] for name in ("identity", "reset after", "relu")])
def test_it_is_an_error_for_who_insists_on_kernels(unit: str, options: dict[str, Any]) -> None:
    cell, x = maker(unit, hidden=H, **options)(D), random(B, T, D, dtype=torch.float32)
    refused = f"^kernels: 'triton' cannot run {cell.unit().words}: there is no kernel for it. Use auto.$"
    with dispatch.selected("triton"), pytest.raises(ConfigError, match=refused):
        cell.layer(x)


def test_each_combination_of_designs() -> None:
    """Each of LSTM computes something else."""
    x, results = random(B, T, D), []
    for peepholes, activation in itertools.product((False, True), ("tanh", "identity", "sigmoid")):
        cell = in_double(LSTM, peepholes=peepholes, output_activation=activation)
        results.append(cell.sequence(cell.project(x))[0])
    assert all(not torch.allclose(a, b) for a, b in itertools.combinations(results, 2))
