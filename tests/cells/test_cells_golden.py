"""Every unit against the numbers of the original system: states, and gradients of all variables, in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.cells import Cell
from nmt.registry import CELLS

UNITS = ["atr", "gru", "lrn", "lstm", "olrn", "sru"]
FILES = {
    "atr": "rnn_atr_ln0",
    "gru": "rnn_gru_ln0",
    "lrn": "rnn_lrn_ln0",
    "lstm": "rnn_lstm_ln1",
    "olrn": "rnn_olrn_ln1",
    "sru": "rnn_sru_ln1",
}

# Original name of each product -> name of our parameters and first and last row of theirs, in units of H.
PRODUCTS = {
    "gru": {"gate_x": ("input", 0, 2), "hide_x": ("input", 2, 3),
            "gate_h": ("recurrent", 0, 2), "hide_h": ("candidate", 0, 1)},
    "lstm": {"gate_x": ("input", 0, 3), "hide_x": ("input", 3, 4),
             "gate_h": ("recurrent", 0, 3), "hide_h": ("recurrent", 3, 4)},
    "atr": {"hide_x": ("input", 0, 1), "hide_h": ("recurrent", 0, 1)},
    "lrn": {"hide_x": ("input", 0, 3)},
    "olrn": {"hide_x": ("input", 0, 4)},
    "sru": {"hide_x": ("input", 0, 4)},
}  # fmt: skip
KINDS = {"W_0_0": "weight", "b_0": "bias", "ln_0_0/scale": "scale", "ln_0_0/offset": "offset"}
VECTORS = {"v_f": "peephole_forget", "v_r": "peephole_reset"}


def transposed_rows(tensor: Tensor, *, rows: slice) -> Tensor:
    """A block of rows, a matrix transposed to the original's [in, out]."""
    return tensor[rows].mT if tensor.dim() == 2 else tensor[rows]


def variables(cell: Cell, unit: str) -> Iterator[tuple[str, Callable[[Tensor], Tensor], str]]:
    """Original name, function from our parameter (or gradient) to it, and our name, of everything `cell` has."""
    own = dict(cell.named_parameters())
    for product, (name, first, last) in PRODUCTS[unit].items():
        scope = "fetch_state" if product.endswith("_x") else "cell"
        block = partial(transposed_rows, rows=slice(first * cell.hidden_size, last * cell.hidden_size))
        for suffix, kind in KINDS.items():
            if f"{name}_{kind}" in own:
                yield f"test/{scope}_{unit}/{product}/{suffix}", block, f"{name}_{kind}"
    for original, name in VECTORS.items():
        if name in own:
            yield f"test/cell_{unit}/{original}", lambda tensor: tensor[None], name


def load(unit: str, config: dict[str, Any], arrays: Any) -> Cell:
    """The unit of a reference file, with its weights, in float64."""
    with torch.random.fork_rng():
        cell = CELLS.get(unit)(config["D"], config["H"], layer_norm=config["layer_norm"]).double()
    own, seen = dict(cell.named_parameters()), set()
    for original, view, name in variables(cell, unit):
        with torch.no_grad():
            view(own[name]).copy_(torch.from_numpy(arrays[f"var/{original}"]))
        seen.add(f"var/{original}")
    assert seen == {name for name in arrays.files if name.startswith("var/")}
    return cell


def array(arrays: Any, name: str) -> Tensor:
    return torch.from_numpy(np.asarray(arrays[name], dtype=np.float64))


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """Equal to 1e-9 of the largest expected value, and of 1."""
    assert actual.shape == expected.shape
    scale = min(1.0, expected.abs().max().item())
    assert (actual - expected).abs().max().item() <= 1e-9 * scale


@pytest.mark.parametrize("unit", UNITS)
def test_states_are_those_of_the_original(golden: Any, unit: str) -> None:
    config, arrays = golden(FILES[unit])
    cell = load(unit, config, arrays)
    x, mask = array(arrays, "in/x"), array(arrays, "in/mask")

    projected = cell.project(x)
    fetched = [array(arrays, name) for name in ("out/fetch_0", "out/fetch_1") if name in arrays.files]
    assert_close(projected, torch.cat(fetched, -1))

    hidden, last = cell.sequence(projected, cell.unpack_state(array(arrays, "in/init_state")), mask)
    assert_close(hidden, array(arrays, "out/hidden"))
    assert_close(torch.cat(list(last), -1), array(arrays, "out/last_full"))

    hidden, last = cell.sequence(projected)
    assert_close(hidden, array(arrays, "out/hidden_default"))
    assert_close(last.h, array(arrays, "out/hidden_last_default"))


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("objective", ["grad", "gradlast"])
def test_gradients_are_those_of_the_original(golden: Any, unit: str, objective: str) -> None:
    config, arrays = golden(FILES[unit])
    cell = load(unit, config, arrays)
    x, start = array(arrays, "in/x").requires_grad_(), array(arrays, "in/init_state").requires_grad_()
    hidden, last = cell.sequence(cell.project(x), cell.unpack_state(start), array(arrays, "in/mask"))
    if objective == "grad":
        value, name = (hidden * array(arrays, "in/R")).sum(), "out/objective"
    else:
        value, name = (torch.cat(list(last), -1) * array(arrays, "in/R_last")).sum(), "out/objective_last"
    assert_close(value, array(arrays, name))

    value.backward()
    assert_close(x.grad, array(arrays, f"{objective}/x"))
    assert_close(start.grad, array(arrays, f"{objective}/init_state"))
    own = dict(cell.named_parameters())
    for original, view, name in variables(cell, unit):
        assert_close(view(own[name].grad), array(arrays, f"{objective}/var/{original}"))
