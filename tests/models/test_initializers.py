"""Each initializer draws every variable of the original system from the distribution that belongs to its shape."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt.cells import Cell, HiddenState, as_initializer
from nmt.config.schema import ModelConfig
from nmt.models import build_model
from nmt.models.parts import initialize
from nmt.registry import INITIALIZERS
from nmt.zero.weights import named_variables
from tests.models.parameters import count_parameters

H, E, V = 40, 24, 150


def config(cell: str = "gru", **settings: Any) -> ModelConfig:
    sizes = {"hidden_size": H, "embedding_size": E, "encoder_layers": 2, "decoder_layers": 2, "attention_heads": 2}
    settings = {"layer_norm": False, "layer_norm_scale": 1.0, **settings}
    return ModelConfig(cell=cell, **{**sizes, **settings})


def weights(settings: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    """The variables of the original system that an initializer fills, with their values."""
    torch.manual_seed(7)
    model = build_model(settings, V, V)
    for name, parameter, view in named_variables(model, model.variable_scope):
        last, value = name.rpartition("/")[2], view(parameter.detach())
        if last in ("b_0", "offset"):
            assert not value.any(), name
        elif last == "scale":
            assert (value == 1).all(), name
        else:
            yield name, value


def fans(variable: Tensor) -> tuple[int, int]:
    """As TensorFlow counts them for a vector [E] and for a matrix [in, out]."""
    return (len(variable), len(variable)) if variable.dim() == 1 else (variable.size(0), variable.size(1))


def bounds(name: str, gain: float, n: float) -> tuple[float, float]:
    """Standard deviation and largest value of one variable."""
    if name == "glorot":
        return math.sqrt(1 / n), math.sqrt(3 / n)
    if name == "uniform_unit_scaling":
        return math.sqrt(gain / n), math.sqrt(3 * gain / n)
    if name == "normal_unit_scaling":  # a normal distribution cut at 2 deviations keeps 0.8796 of its deviation
        return math.sqrt(gain / n), 2 * math.sqrt(gain / n) / 0.8796256
    return gain, (1.7320508 if name == "uniform" else 6) * gain


@pytest.mark.parametrize("cell", ["gru", "lstm", "atr", "sru", "lrn", "olrn"])
@pytest.mark.parametrize("name", ["glorot", "uniform_unit_scaling", "normal_unit_scaling", "normal"])
def test_every_variable_has_the_distribution_of_its_own_shape(name: str, cell: str) -> None:
    gain = 1.0 if name == "glorot" else 0.3
    options = {} if name == "glorot" else {"gain": gain}
    settings = config(cell, initializer=name, initializer_options=options, tie_embeddings="none", layer_norm=True)
    for variable, value in weights(settings):
        deviation, largest = bounds(name, gain, sum(fans(value)) / 2)
        assert value.abs().max() <= largest, variable
        error = 5 / math.sqrt(value.numel())  # five standard errors, at least
        assert value.mean().abs() <= error * deviation, variable
        assert value.numel() < 200 or abs(value.std() / deviation - 1) < error, variable
        if "uniform" in name and value.numel() >= 500:
            assert value.abs().max() > 0.98 * largest, variable


def test_what_is_drawn_is_cut_and_not_folded_to_two_deviations() -> None:
    """The kurtosis of a normal distribution cut at two deviations is 2.36 (of an uncut one 3, of a uniform one 1.8)."""
    made = INITIALIZERS.get("normal_unit_scaling")(0.08)
    weight = torch.empty(400, 600)
    made.weight_(weight, fan_in=600, fan_out=400)
    assert weight.pow(4).mean() / weight.pow(2).mean() ** 2 == pytest.approx(2.363, abs=0.03)
    assert weight.std() == pytest.approx(math.sqrt(1 / 500), rel=0.01)


def test_uniform_is_drawn_as_if_a_weight_were_one_matrix() -> None:
    """So a seed goes on giving the weights that it gave before there were other initializers."""
    cell = build_model(config("lstm"), 9, 9).encoder.layers[0].forward_rnn.double()  # type: ignore[union-attr,index]
    torch.manual_seed(4)
    cell.reset_parameters(0.3)
    torch.manual_seed(4)
    whole = [torch.empty_like(parameter).uniform_(-0.3, 0.3) for parameter in cell.parameters() if parameter.dim() > 1]
    assert all(torch.equal(a, b) for a, b in zip((p for p in cell.parameters() if p.dim() > 1), whole, strict=True))


def test_orthogonal_recurrent_matrices_and_forget_bias_stay() -> None:
    options = {"recurrent_init": "orthogonal", "forget_bias": 1.0}
    model = build_model(config("lstm", initializer="glorot", cell_options=options), 9, 9)
    cell: Any = model.encoder.layers[0].forward_rnn  # type: ignore[union-attr,index]
    for block in cell.recurrent_weight.split(H):
        torch.testing.assert_close(block @ block.T, torch.eye(H))
    assert (cell.recurrent_bias[H : 2 * H] == 1).all()


@pytest.mark.parametrize("name", INITIALIZERS.names())
def test_counting_needs_no_memory(name: str) -> None:
    big = config(initializer=name, hidden_size=50_000, embedding_size=50_000)
    assert count_parameters(big, 10**6, 10**6) > 10**11


class Old(nn.Module):
    """A part that knows a range only, as one of a plugin may."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(30, 30))

    def reset_parameters(self, init_range: float) -> None:
        nn.init.uniform_(self.weight, -init_range, init_range / 2)


class OldCell(Cell):
    """A unit of one's own that starts a bias by itself."""

    def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.input = nn.Linear(input_size, hidden_size)
        self.reset_parameters()

    def reset_parameters(self, init_range: float = 0.08) -> None:
        super().reset_parameters(init_range)
        nn.init.constant_(self.input.bias, init_range)

    def project(self, x: Tensor) -> Tensor:
        return self.input(x)

    def step(self, projected: Tensor, state: HiddenState) -> HiddenState:
        return HiddenState(torch.tanh(projected + state.h))


@pytest.mark.parametrize("name", INITIALIZERS.names())
def test_parts_that_know_a_range_only_go_on_working(name: str) -> None:
    made = INITIALIZERS.get(name)(0.25)
    part, cell = Old(), OldCell(20, 30)
    initialize(nn.ModuleList([part, cell]), made)
    assert -0.25 <= part.weight.min() < -0.24 and 0.115 < part.weight.max() <= 0.125
    assert (cell.input.bias == 0.25).all()
    deviation = {"uniform": 0.25 / math.sqrt(3), "normal": 0.08}.get(name, math.sqrt(1 / 25))
    assert cell.input.weight.std().item() == pytest.approx(deviation, rel=0.15)


@pytest.mark.parametrize("name", [name for name in INITIALIZERS.names() if name not in ("uniform", "glorot")])
@pytest.mark.parametrize("gain", [0.0, -1.0, math.inf, math.nan])
def test_a_gain_is_greater_than_0(name: str, gain: float) -> None:
    with pytest.raises(ValueError, match="gain: must be greater than 0, not "):
        INITIALIZERS.get(name).Options(gain=gain)


def test_a_number_is_the_range_of_uniform() -> None:
    given = as_initializer(0.25)
    assert given == 0.25 and given.reads_range and as_initializer(given) is given
