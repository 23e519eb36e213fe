"""Options of the units against their equations written out, initial weights, and a unit from outside."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn, sigmoid, tanh

from nmt.cells import (
    ATR,
    GRU,
    LRN,
    LSTM,
    OLRN,
    RNN,
    SRU,
    SSRU,
    Cell,
    HiddenState,
    MemoryState,
    MinGRU,
    MinLSTM,
    reorder_state,
)
from nmt.ops.recurrence import layer_norm
from nmt.registry import CELLS

UNITS = ["atr", "gru", "lrn", "lstm", "min_gru", "min_lstm", "olrn", "rnn", "sru", "ssru"]
N, D, H = 4, 5, 6


def start(width: int = H) -> Tensor:
    return torch.linspace(-1.5, 1.5, N * width).view(N, width)


def inputs() -> Tensor:
    return torch.randn(N, D, generator=torch.Generator().manual_seed(3)) * 10


@pytest.mark.parametrize("gates", ["twin", "coupled", "coupled_input"])
@pytest.mark.parametrize("activation", ["none", "output", "state", "candidate"])
def test_atr_designs(activation: Any, gates: Any) -> None:
    cell = ATR(D, H, options=ATR.Options(activation=activation, gates=gates))
    nn.init.uniform_(cell.recurrent_bias)
    h = start()
    p, q = inputs() @ cell.input_weight.T, h @ cell.recurrent_weight.T + cell.recurrent_bias
    i, f = {
        "twin": (sigmoid(p + q), sigmoid(p - q)),
        "coupled": (1 - sigmoid(p - q), sigmoid(p - q)),
        "coupled_input": (sigmoid(p + q), 1 - sigmoid(p + q)),
    }[gates]
    expected = i * (tanh(p) if activation == "candidate" else p) + f * h
    if activation == "state":
        expected = tanh(expected)
    projected = cell.project(inputs())
    state = cell.step(projected, HiddenState(h))
    torch.testing.assert_close(state.h, expected)
    put_out = tanh(expected) if activation == "output" else expected
    torch.testing.assert_close(cell.output(state), put_out)
    outputs, last = cell.sequence(projected[:, None], HiddenState(h))
    torch.testing.assert_close(outputs[:, 0], put_out)
    torch.testing.assert_close(last.h, expected)


def test_lrn_with_tanh() -> None:
    cell, h = LRN(D, H, options=LRN.Options(tanh=True)), start()
    p, q, r = (inputs() @ cell.input_weight.T).split(H, -1)
    expected = tanh(sigmoid(p + h) * r + sigmoid(q - h) * h)
    torch.testing.assert_close(cell.step(cell.project(inputs()), HiddenState(h)).h, expected)


def test_olrn_with_tanh_has_it_before_the_output_gate() -> None:
    cell, h = OLRN(D, H, options=OLRN.Options(tanh=True)), start()
    p, q, r, s = (inputs() @ cell.input_weight.T).split(H, -1)
    c = tanh(sigmoid(p + h) * r + sigmoid(q - h) * h)
    torch.testing.assert_close(cell.step(cell.project(inputs()), HiddenState(h)).h, sigmoid(s - c) * c)


def test_lstm_forget_bias_is_that_of_the_forget_gate_alone() -> None:
    cell = LSTM(D, H, options=LSTM.Options(forget_bias=1.5))
    assert cell.recurrent_bias.tolist() == [0.0] * H + [1.5] * H + [0.0] * 2 * H
    x, packed = inputs(), start(2 * H)
    i, f, o, g = (x @ cell.input_weight.T + packed[:, :H] @ cell.recurrent_weight.T + cell.recurrent_bias).split(H, -1)
    c = sigmoid(i) * tanh(g) + sigmoid(f) * packed[:, H:]
    state = cell.step(cell.project(x), cell.unpack_state(packed))
    torch.testing.assert_close(state, MemoryState(sigmoid(o) * tanh(c), c))


def test_gru_layer_norm_covers_both_gates_together_and_leaves_out_the_biases() -> None:
    cell, x, h = GRU(D, H, layer_norm=True), inputs(), start()
    own = dict(cell.named_parameters())
    for parameter in own.values():
        nn.init.uniform_(parameter, -1, 1)

    def norm(product: Tensor, name: str, rows: slice) -> Tensor:
        return layer_norm(product, own[f"{name}_scale"][rows], own[f"{name}_offset"][rows])

    gates, rest, every = slice(0, 2 * H), slice(2 * H, 3 * H), slice(None)
    x_zr = norm(x @ cell.input_weight[gates].T, "input", gates)
    x_h = norm(x @ cell.input_weight[rest].T, "input", rest)
    z, r = sigmoid(x_zr + norm(h @ cell.recurrent_weight.T, "recurrent", every) + cell.recurrent_bias).split(H, -1)
    g = tanh(x_h + norm((r * h) @ cell.candidate_weight.T, "candidate", every) + cell.candidate_bias)
    torch.testing.assert_close(cell.step(cell.project(x), HiddenState(h)).h, z * h + (1 - z) * g)


def test_atr_layer_norm_leaves_out_the_bias() -> None:
    cell, x, h = ATR(D, H, layer_norm=True), inputs(), start()
    for parameter in cell.parameters():
        nn.init.uniform_(parameter, -1, 1)
    p = layer_norm(x @ cell.input_weight.T, cell.input_scale, cell.input_offset)
    q = layer_norm(h @ cell.recurrent_weight.T, cell.recurrent_scale, cell.recurrent_offset) + cell.recurrent_bias
    expected = sigmoid(p + q) * p + sigmoid(p - q) * h
    torch.testing.assert_close(cell.step(cell.project(x), HiddenState(h)).h, expected)


@pytest.mark.parametrize("layer_norm", [False, True], ids=["plain", "layer_norm"])
@pytest.mark.parametrize("unit", UNITS)
def test_initial_weights(unit: str, layer_norm: bool) -> None:
    torch.manual_seed(1)
    cell = CELLS.get(unit)(100, 60, layer_norm=layer_norm)
    for init_range in (0.08, 0.5):
        for name, parameter in cell.named_parameters():
            if name.endswith(("bias", "offset")):
                assert torch.all(parameter == 0), name
            elif name.endswith("scale"):
                assert torch.all(parameter == 1), name
            else:
                assert 0.9 * init_range < parameter.abs().max() <= init_range, name
                assert abs(parameter.mean().item()) < 0.3 * init_range, name
        cell.reset_parameters(0.5)


def test_layer_norm_parameters_exist_only_with_layer_norm() -> None:
    plain = {name for name, _ in GRU(D, H).named_parameters()}
    normed = {name for name, _ in GRU(D, H, layer_norm=True).named_parameters()}
    products = ("input", "recurrent", "candidate")
    assert normed - plain == {f"{product}_{kind}" for product in products for kind in ("scale", "offset")}


@pytest.mark.parametrize("unit", [ATR, GRU, LSTM, RNN])
def test_orthogonal_recurrent_matrices(unit: Any) -> None:
    cell = unit(D, H, options=unit.Options(recurrent_init="orthogonal"))
    matrices = [value for name, value in cell.named_parameters() if name in ("recurrent_weight", "candidate_weight")]
    blocks = [block for matrix in matrices for block in matrix.split(H)]
    assert len(blocks) == {ATR: 1, GRU: 3, LSTM: 4, RNN: 1}[unit]
    for block in blocks:
        torch.testing.assert_close(block @ block.T, torch.eye(H))


@pytest.mark.parametrize("unit", UNITS)
def test_unknown_option_is_refused(unit: str) -> None:
    with pytest.raises(TypeError, match="tnah"):
        CELLS.get(unit).Options(tnah=True)


@pytest.mark.parametrize("unit", UNITS)
def test_a_cell_needs_no_memory_on_the_meta_device(unit: str) -> None:
    with torch.device("meta"):
        cell = CELLS.get(unit)(D, H, layer_norm=True)
    assert all(parameter.is_meta for parameter in cell.parameters())


@pytest.mark.parametrize(("unit", "products", "recurrent"), [
    (ATR, 1, 1), (GRU, 3, 3), (LRN, 3, 0), (LSTM, 4, 4), (MinGRU, 2, 0), (MinLSTM, 3, 0), (OLRN, 4, 0), (RNN, 1, 1),
    (SRU, 4, 0), (SSRU, 2, 0),
])  # fmt: skip
def test_number_of_parameters(unit: Any, products: int, recurrent: int) -> None:
    vectors = {SRU: 2, SSRU: 1, MinGRU: 2, MinLSTM: 3}.get(unit, 0)
    expected = products * H * D + recurrent * (H * H + H) + vectors * H
    assert sum(parameter.numel() for parameter in unit(D, H).parameters()) == expected
    with_norm = sum(parameter.numel() for parameter in unit(D, H, layer_norm=True).parameters())
    assert with_norm - expected == 2 * H * (products + recurrent)


@pytest.mark.parametrize("unit", UNITS)
def test_states_are_unpacked_and_follow_the_beams(unit: str) -> None:
    cell = CELLS.get(unit)(D, H)
    assert cell.state_size == (2 * H if unit in ("lstm", "sru", "ssru") else H)
    packed = torch.arange(N * cell.state_size, dtype=torch.float32).view(N, -1)
    state = cell.unpack_state(packed)
    assert torch.equal(torch.cat(list(state), -1), packed)
    rows = torch.tensor([2, 0, 0])
    assert torch.equal(torch.cat(list(reorder_state(state, rows)), -1), packed[rows])
    assert all(part.dtype == torch.float32 for part in cell.unpack_state(packed.bfloat16()))
    zeros = cell.initial_state(N, like=torch.empty(1, dtype=torch.bfloat16))
    assert all(part.shape == (N, H) and part.dtype == torch.float32 and not part.any() for part in zeros)


class PairState(NamedTuple):
    """A state of one's own."""

    h: Tensor
    total: Tensor


class Summing(Cell):
    """The least a user writes: __init__, project, step and a state."""

    State = PairState

    def __init__(self, input_size: int, hidden_size: int, *, layer_norm: bool = False, options: Any = None) -> None:
        super().__init__(input_size, hidden_size, layer_norm=layer_norm, options=options)
        self.weight = nn.Parameter(torch.empty(hidden_size, input_size))
        self.reset_parameters()

    def project(self, x: Tensor) -> Tensor:
        return x @ self.weight.T

    def step(self, projected: Tensor, state: PairState) -> PairState:
        total = state.total + projected
        return PairState(tanh(total), total)


def test_a_unit_from_outside_needs_only_project_and_step() -> None:
    cell = Summing(D, H)
    x, mask = torch.randn(2, 3, D), torch.tensor([[1, 0, 1], [1, 1, 1]])
    outputs, last = cell.sequence(cell.project(x), None, mask)
    words = cell.project(x) * mask[..., None]
    torch.testing.assert_close(last.total, words.sum(1))
    torch.testing.assert_close(outputs, tanh(words.cumsum(1)))
    assert cell.state_size == 2 * H
    assert torch.equal(reorder_state(last, torch.tensor([1])).total, last.total[1:])
