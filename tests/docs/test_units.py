"""docs/units.md and docs/architectures.md: tables and pictures are what the scripts make of the code, and true."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType
from xml.etree import ElementTree

import pytest
import torch

from nmt.cells import Cell
from nmt.registry import CELLS, MODELS
from tests.conftest import REPOSITORY

UNITS = (REPOSITORY / "docs/units.md").read_text(encoding="utf-8")
ARCHITECTURES = (REPOSITORY / "docs/architectures.md").read_text(encoding="utf-8")
SIZE = 5
PARTS = {  # names of input products in their order, and of what multiplies the state
    "lrn": "p q r",
    "olrn": "p q r s",
    "atr": "p",
    "sru": "x_r x_f x_c x_h",
    "ssru": "x_f x_c",
    "min_gru": "x_z g",
    "min_lstm": "x_f x_i g",
    "gru": "x_z x_r x_h",
    "lstm": "x_i x_f x_o x_g",
}


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / f"scripts/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def flows() -> ModuleType:
    return script("draw_flows")


def factors(name: str, cell: Cell) -> dict[str, torch.Tensor]:
    """What multiplies the state, by its name in the picture."""
    if name == "atr":
        return {"U": cell.recurrent_weight}
    if name == "sru":
        return {"v_f": cell.peephole_forget, "v_r": cell.peephole_reset}
    if name == "gru":
        return dict(zip(("U_z", "U_r"), cell.recurrent_weight.chunk(2), strict=True)) | {"V": cell.candidate_weight}
    if name == "lstm":
        return dict(zip(("U_i", "U_f", "U_o", "V"), cell.recurrent_weight.chunk(4), strict=True))
    return {}


def computed(flow: dict, values: dict[str, torch.Tensor], times: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """All values of a flow, from those of its inputs."""
    functions = {"σ": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu, "1−": lambda x: 1 - x}
    pairs = {"+": torch.add, "−": torch.sub, "×": torch.mul, "÷": torch.div}
    for node in flow.values():
        if not node.inputs or node.operation == "output":
            continue
        given = [values[name] for name in node.inputs]
        if node.operation in pairs:
            values[node.name] = pairs[node.operation](*given)
        elif node.operation in functions:
            values[node.name] = functions[node.operation](*given)
        else:
            weight = times[node.operation]
            values[node.name] = given[0] @ weight.T if weight.dim() == 2 else given[0] * weight
    return values


@pytest.mark.parametrize("name", PARTS)
def test_a_picture_shows_what_the_unit_computes(name: str, flows: ModuleType) -> None:
    torch.manual_seed(1)
    cell = CELLS.get(name)(SIZE, SIZE).double()
    cell.reset_parameters(0.5)  # biases are 0
    projected = torch.randn(3, len(PARTS[name].split()) * SIZE, dtype=torch.double)
    state = cell.State(*(torch.randn(3, SIZE, dtype=torch.double) for _ in cell.State._fields))
    values = dict(zip(PARTS[name].split(), projected.split(SIZE, -1), strict=True))
    values |= {f"{field}'": value for field, value in zip(cell.State._fields, state, strict=True)}
    flow = flows.parse(flows.UNITS[name])
    found = computed(flow, values, factors(name, cell))
    new = cell.step(projected, state)
    carried = {node.inputs[0] for node in flow.values() if node.operation == "output"}
    assert carried == set(cell.State._fields)
    for field in carried:
        torch.testing.assert_close(found[field], getattr(new, field), rtol=1e-12, atol=1e-12)


def test_all_units_and_architectures_have_a_picture_and_a_section(flows: ModuleType) -> None:
    shipped = {name for name in CELLS.names() if CELLS.get(name).__module__.startswith("nmt.cells.")}
    assert flows.UNITS.keys() == PARTS.keys() == shipped - {"rnn"}
    assert set(re.findall(r"\(flows/(\w+)\.svg\)", UNITS)) == flows.UNITS.keys()
    architectures = {name for name in MODELS.names() if MODELS.get(name).__module__.startswith("nmt.models.")}
    assert flows.ARCHITECTURES.keys() == architectures & flows.ARCHITECTURES.keys()
    assert set(re.findall(r"\(flows/architecture_(\w+)\.svg\)", ARCHITECTURES)) == flows.ARCHITECTURES.keys()


def test_the_pictures_are_those_of_the_script(flows: ModuleType) -> None:
    folder = REPOSITORY / "docs/flows"
    drawn = flows.pictures()
    assert {path.name for path in folder.iterdir()} == drawn.keys()
    for name, text in drawn.items():
        assert (folder / name).read_text(encoding="utf-8") == text, f"{name}: run scripts/draw_flows.py"
        root = ElementTree.fromstring(text)
        width = float(root.get("width", "0"))
        assert all(0 <= float(box.get("x", "0")) <= width for box in root.iter() if box.tag.endswith("rect"))


def test_the_table_of_costs_is_that_of_the_script() -> None:
    costs = script("unit_costs")
    assert costs.table() in UNITS
    found = costs.costs("gru", 8)
    assert (found.parameters, found.at_once, found.in_turn, found.state) == (6 * 64 + 24, 3 * 64, 3 * 64, 8)
    assert set(costs.SHIPPED) == {*PARTS, "rnn"}
