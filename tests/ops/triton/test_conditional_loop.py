"""The loops of two cells with kernels for each step, against the loops written out: values and all gradients."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt.models.decoder import AttentionRNN, DeepAttentionRNN
from nmt.models.encoder import OneToOneRNN
from nmt.ops import dispatch, graphs, product
from nmt.ops import sequence as conditional
from nmt.ops.product import Product
from nmt.ops.recurrence import Projection
from tests.models.two_cells import Sizes, check, given, maker, run_attention, run_one_to_one, started
from tests.ops.triton.comparison import make_mask
from tests.ops.units import by_triton

triton_rows = pytest.importorskip("nmt.ops.triton_rows", reason="Triton is not installed")

SIZES = Sizes(sentences=3, target=3, source=3, inputs=3, hidden=5, memory=6)
BATCH, LENGTH = SIZES[:2]
multiplied = product.multiplied
FORMS = ((False, "none"), (False, "holes"), (True, "padding"))
FULL = () if torch.cuda.is_available() else pytest.mark.slow
"""For combinations that take the interpreter long: on a GPU all run, on a CPU not every unit with every form."""
UNITS = ("atr", "gru", "lrn", "lstm", "min_lstm", "olrn", "sru", "ssru")
"""All but `min_gru`, which has, to a loop, the form of `min_lstm`."""


def spread(heads: Sequence[int] = ()) -> list[Any]:
    """Each unit with each form, of which a CPU has one for each unit; with numbers of heads, if given."""
    return [
        pytest.param(unit, *form, *heads[number : number + 1], marks=() if (place + number) % 3 == 0 else FULL)
        for place, unit in enumerate(UNITS)
        for number, form in enumerate(FORMS)
    ]


DESIGNS = [
    ("atr", {"activation": "output"}),
    ("atr", {"activation": "state", "gates": "coupled_input"}),
    ("atr", {"activation": "candidate", "gates": "coupled"}),
    ("lrn", {"tanh": True}),
    ("olrn", {"tanh": True}),
]


@pytest.fixture(autouse=True)
def _memory_is_not_multiplied(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """But where a test is about it; what is compared with is not computed by kernels."""
    monkeypatch.setattr(product, "multiplied", lambda values, context: None)
    with dispatch.selected("reference"):
        yield


def network(kind: type[nn.Module], unit: str, device: torch.device, **options: Any) -> Any:
    layer_norm = options.pop("layer_norm", False)
    attends = kind is not OneToOneRNN
    attention = {"heads": options.pop("heads", 1), "layer_norm": layer_norm} if attends else {}
    attention |= {"levels": 2} if kind is DeepAttentionRNN else {}
    make = maker(unit, hidden=SIZES.hidden, layer_norm=layer_norm, **options)
    return started(kind(make, SIZES.inputs, SIZES.memory, **attention)).to(device)


def compare(
    model: Any, mask: Tensor | None, monkeypatch: pytest.MonkeyPatch, *, autocast: bool = False, **direction: bool
) -> None:
    """Values and gradients of the loop with kernels, within what rounding allows.

    With autocast that is no more than 2 % further from the exact values than the loop written out is, times two.
    """
    attends = not isinstance(model, OneToOneRNN)
    inputs = given("memory" if attends else "aligned", parts=len(model.lower.State._fields), sizes=SIZES)
    device = next(model.parameters()).device
    tensors = {name: value.to(device) for name, value in inputs.items()}

    def run(model: Any, dtype: torch.dtype) -> dict[str, Tensor]:
        if attends:
            return run_attention(model, tensors, mask, dtype)
        return run_one_to_one(model, tensors, mask, dtype=dtype, **direction)

    wanted = run(copy.deepcopy(model).double(), torch.float64)
    rounded = None
    if autocast:
        with torch.autocast(device.type, torch.bfloat16):
            rounded = run(copy.deepcopy(model), torch.float32)
    with by_triton(monkeypatch) as used, torch.autocast(device.type, torch.bfloat16, enabled=autocast):
        monkeypatch.setattr(model.lower, "step", None)
        found = run(model, torch.float32)
    pair = "one_to_one" if model.lower.unit().matrices else "sequence pair"
    assert used == [f"{'conditional' if attends else pair} {model.lower.unit().words}"]
    check(found, wanted, tolerance=2e-2 if autocast else 2e-5, rounded=rounded)


@pytest.mark.parametrize(("unit", "layer_norm", "mask", "heads"), spread((2, 1, 2)))
def test_attention_loop(
    unit: str, layer_norm: bool, mask: str, heads: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network(AttentionRNN, unit, device, layer_norm=layer_norm, heads=heads)
    compare(model, make_mask(mask, BATCH, LENGTH, device), monkeypatch)


@pytest.mark.parametrize(("unit", "layer_norm", "heads"), [("gru", False, 2), ("lrn", True, 1)])
def test_deep_attention(
    unit: str, layer_norm: bool, heads: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network(DeepAttentionRNN, unit, device, layer_norm=layer_norm, heads=heads)
    compare(model, make_mask("padding", BATCH, LENGTH, device), monkeypatch)


@pytest.fixture
def _memory_multiplied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "MOVED_MEANWHILE", 2**30)
    monkeypatch.setattr(product, "multiplied", multiplied)


@pytest.mark.usefixtures("_memory_multiplied_once")
@pytest.mark.parametrize(("unit", "layer_norm", "mask"), spread())
def test_attention_loop_over_a_multiplied_memory(
    unit: str, layer_norm: bool, mask: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network(AttentionRNN, unit, device, layer_norm=layer_norm)
    compare(model, make_mask(mask, BATCH, LENGTH, device), monkeypatch)


@pytest.mark.usefixtures("_memory_multiplied_once")
@pytest.mark.parametrize(("unit", "layer_norm"), [("lrn", False), ("gru", True), ("lstm", False)])
def test_autocast_over_a_multiplied_memory(
    unit: str, layer_norm: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network(AttentionRNN, unit, device, layer_norm=layer_norm)
    compare(model, make_mask("padding", BATCH, LENGTH, device), monkeypatch, autocast=True)


@pytest.mark.parametrize("once", [False, True])
def test_a_multiplied_memory_takes_the_product_out_of_the_loop(
    once: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is one of as many rows as there are sentences, with a matrix as wide as the memory."""
    if once:
        monkeypatch.setattr(product, "multiplied", multiplied)
    shape, calls, original = (3 * SIZES.hidden, SIZES.memory), [], Product.forward

    def forward(own: Product, *rest: Any, **named: Any) -> None:
        calls.append((own.outputs, own.inputs))
        original(own, *rest, **named)

    monkeypatch.setattr(Product, "forward", forward)
    compare(network(AttentionRNN, "lrn", device), None, monkeypatch)
    assert calls.count(shape) == (0 if once else LENGTH)


def test_the_memory_is_multiplied_once_where_that_moves_less() -> None:
    def worth_it(batch: int, source: int, width: int, *, products: int, heads: int = 1) -> bool:
        values = torch.empty(batch, heads, source, width // heads, dtype=torch.bfloat16, device="meta")
        matrix = torch.empty(products * width, width, dtype=torch.bfloat16, device="meta")
        return multiplied(values, Projection(matrix)) is not None

    assert worth_it(64, 32, 512, products=3)
    assert worth_it(100, 100, 1024, products=1)  # ATR reads as much as it did
    assert not worth_it(100, 100, 1024, products=3)
    assert not worth_it(64, 32, 512, products=3, heads=4)


@pytest.mark.parametrize(("unit", "options"), DESIGNS)
def test_designs_of_the_cells(
    unit: str, options: dict[str, Any], device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(network(AttentionRNN, unit, device, **options), make_mask("padding", BATCH, LENGTH, device), monkeypatch)


@pytest.mark.parametrize(("unit", "layer_norm"), [("lrn", False), ("olrn", False), ("gru", True), ("lstm", False)])
def test_autocast(unit: str, layer_norm: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    model = network(AttentionRNN, unit, device, layer_norm=layer_norm)
    compare(model, make_mask("padding", BATCH, LENGTH, device), monkeypatch, autocast=True)


@pytest.mark.parametrize(("unit", "layer_norm"), [("sru", False), ("atr", True)])
def test_autocast_without_attention(
    unit: str, layer_norm: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network(OneToOneRNN, unit, device, layer_norm=layer_norm)
    compare(model, make_mask("padding", BATCH, LENGTH, device), monkeypatch, autocast=True, reverse=False)


@pytest.mark.parametrize("attends", [True, False])
@pytest.mark.parametrize(("unit", "layer_norm", "mask"), [("lrn", False, "none"), ("gru", True, "padding")])
def test_rows_that_are_added_for_graphs_change_nothing(
    unit: str, layer_norm: bool, mask: str, attends: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "filled_up", lambda batch: batch + 2)
    model = network(AttentionRNN if attends else OneToOneRNN, unit, device, layer_norm=layer_norm)
    direction = {} if attends else {"reverse": True}
    compare(model, make_mask(mask, BATCH, LENGTH, device), monkeypatch, **direction)


@pytest.mark.parametrize(("layer_norm", "mask", "reverse"), [(False, "holes", True), (True, "none", False)])
@pytest.mark.parametrize("unit", UNITS)
def test_one_to_one_loop(
    unit: str, layer_norm: bool, mask: str, reverse: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network(OneToOneRNN, unit, device, layer_norm=layer_norm)
    compare(model, make_mask(mask, BATCH, LENGTH, device), monkeypatch, reverse=reverse)


def test_sources_of_similar_lengths_have_one_graph(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of a graph is the shape of what it reads: of the source, that filled up."""
    seen, original = set(), graphs.run

    def run(work: Any, inputs: Any, **options: Any) -> Any:
        seen.add(tuple(None if x is None else tuple(x.shape) for x in inputs))
        return original(work, inputs, **options)

    monkeypatch.setattr(graphs, "run", run)
    model = network(AttentionRNN, "lrn", device)
    with by_triton(monkeypatch), torch.no_grad():
        for source in (2, 3, 16):
            tensors = given("memory", parts=1, sizes=SIZES._replace(source=source, target=2))
            live = torch.ones(BATCH, source, device=device)
            memory = model.attention.prepare(tensors["memory"].float().to(device), live)
            model.sequence(tensors["x"].float().to(device), memory)
    assert len(seen) == 1


@pytest.mark.parametrize("attends", [True, False])
def test_what_is_replayed_is_the_loop_itself(
    attends: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time it is computed, then recorded; without a GPU a recording computes again."""
    if device.type != "cuda":
        recorder = graphs.Recorder(lambda: lambda work: work, device=device)
        monkeypatch.setattr(graphs, "run", recorder.run)
    direction = {} if attends else {"reverse": False}
    for _ in range(3):
        model = network(AttentionRNN if attends else OneToOneRNN, "gru", device)
        compare(model, make_mask("holes", BATCH, LENGTH, device), monkeypatch, **direction)
    if device.type != "cuda":
        assert all(isinstance(one, graphs.Recording) for one in recorder._known.values())


def test_what_no_kernel_can_do_is_written_out(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    model = network(AttentionRNN, "gru", device)
    tensors = given("memory", parts=1, sizes=SIZES)
    x, memory = tensors["x"].float().to(device), tensors["memory"].float().to(device)
    attended = model.attention.prepare(memory, torch.ones(BATCH, 3, device=device))
    wanted = model.sequence(x, attended).outputs
    monkeypatch.setattr(triton_rows, "MOST_CHANNELS", 4)
    monkeypatch.setattr(conditional, "run_loop", None)
    with by_triton(monkeypatch) as used:
        assert torch.equal(model.sequence(x, attended).outputs, wanted)
    assert used == ["conditional gru before"]
