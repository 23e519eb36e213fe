"""What each operation must compute on a GPU before `auto` runs it there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from nmt.kernel_check import decoding
from nmt.kernel_check.comparison import DifferenceError, check, random, with_gradients
from nmt.models.attention import AdditiveAttention, AttentionMemory
from nmt.models.conditional import AttentionRNN, OneToOneRNN
from nmt.models.encoder import Bidirectional
from nmt.models.initialize import initialize
from nmt.models.linear import Linear
from nmt.ops.dispatch import Selection, selected
from nmt.ops.dropout import Masks, dropout
from nmt.ops.linear_cross_entropy import linear_cross_entropy
from nmt.registry import CELLS


class Sizes(NamedTuple):
    """Of networks and their batch."""

    sentences: int = 3
    target: int = 11
    source: int = 7
    inputs: int = 24
    hidden: int = 40
    words: int = 50


SMALL: Final = Sizes()
LARGE: Final = Sizes(sentences=260, target=12, source=20, inputs=256, hidden=512, words=6000)
"""As models are: other launches than the small ones, ATR's persistent kernel among them."""

FORMS: Final = (
    (SMALL, torch.float32),
    (SMALL, torch.float16),
    (LARGE, torch.float32),
    (LARGE, torch.bfloat16),
)
"""Sizes and types of products."""

DESIGNS: Final[Mapping[str, Sequence[dict[str, Any]]]] = MappingProxyType(
    {
        "atr": (
            {"options": {"activation": "output"}},
            {"options": {"activation": "state", "gates": "coupled_input"}},
            {"options": {"activation": "candidate", "gates": "coupled"}},
            {"layer_norm": True},
        ),
        "gru": ({"layer_norm": True},),
        "lrn": ({"options": {"tanh": True}},),
        "lstm": ({"layer_norm": True},),
        "olrn": ({"options": {"tanh": True}},),
        "sru": (),
    }
)
"""Other designs of the units than the usual one, which kernels are compiled for apart."""

Check = Callable[[torch.device, Sizes, torch.dtype, Selection], None]
"""Raises DifferenceError unless an operation on the device, with these sizes and this type of products, is right."""


def make_cells(unit: str, sizes: Sizes, design: dict[str, Any]) -> Any:
    """A function from input width to a new cell."""
    kind = CELLS.get(unit)
    options = kind.Options(**design.get("options", {}))
    return partial(kind, hidden_size=sizes.hidden, layer_norm=design.get("layer_norm", False), options=options)


def started(network: nn.Module, device: torch.device) -> tuple[nn.Module, nn.Module]:
    """The network with weights drawn from one seed, and the same in fp64."""
    torch.manual_seed(3)
    initialize(network, 0.08)
    for parameter in network.parameters():
        if parameter.dim() == 1:
            nn.init.uniform_(parameter, -0.5, 0.5)
    network = network.to(device)
    return network, copy.deepcopy(network).double()


def masks(sentences: int, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Padding at the right, and any pattern, with a row that is all padding."""
    lengths = length - torch.arange(sentences) % length
    padding = torch.arange(length) < lengths[:, None]
    holes = torch.rand(sentences, length, generator=torch.Generator().manual_seed(6)) < 0.6
    holes[0] = False
    return padding.to(device), holes.to(device)


def leaf(*shape: int, seed: int, like: Tensor, dtype: torch.dtype) -> Tensor:
    """A random input that gets a gradient."""
    return random(*shape, seed=seed, like=like).to(dtype).requires_grad_()


def recurrence(
    unit: str, device: torch.device, sizes: Sizes, storage: torch.dtype, by: Selection, *, layer: bool = False
) -> None:
    """A unit over sequences, in both directions; as a `layer` with the products of its input."""
    for design in ({}, *(DESIGNS[unit] if sizes == SMALL and not layer else ())):
        network, exact = started(make_cells(unit, sizes, design)(sizes.inputs), device)
        padding, holes = masks(sizes.sentences, sizes.target, device)

        def run(cell: Any, dtype: torch.dtype, some: Tensor = holes, usual: Tensor = padding) -> list[Tensor]:
            like = cell.input_weight
            x = leaf(sizes.sentences, sizes.target, sizes.inputs, seed=1, like=like, dtype=dtype)
            packed = leaf(sizes.sentences, cell.state_size, seed=2, like=like, dtype=dtype)
            given = x if layer else cell.project(x)
            over = cell.layer if layer else cell.sequence
            ahead, last = over(given, cell.unpack_state(packed), some)
            back, first = over(given, None, usual, reverse=True)
            plain, _ = over(given)
            return with_gradients([ahead, *last, back, *first, plain], [x, packed, *cell.parameters()])

        check(network, run, exact=exact, storage=storage, by=by)


def both_directions(device: torch.device, sizes: Sizes, storage: torch.dtype, by: Selection) -> None:
    """A bidirectional layer of each unit that has a kernel for it."""
    for unit in ("atr", "lrn", "olrn", "sru"):
        network, exact = started(Bidirectional(make_cells(unit, sizes, {}), sizes.inputs), device)
        padding, _ = masks(sizes.sentences, sizes.source, device)

        def run(encoder: Any, dtype: torch.dtype, words: Tensor = padding) -> list[Tensor]:
            like = encoder.forward_rnn.input_weight
            x = leaf(sizes.sentences, sizes.source, sizes.inputs, seed=1, like=like, dtype=dtype)
            return with_gradients(encoder(x, words), [x, *encoder.parameters()])

        check(network, run, exact=exact, storage=storage, by=by)


def attention(device: torch.device, sizes: Sizes, storage: torch.dtype, by: Selection) -> None:
    """Several queries of each sentence, two heads."""
    network, exact = started(AdditiveAttention(sizes.hidden, sizes.inputs, heads=2), device)
    padding, _ = masks(sizes.sentences, sizes.source, device)

    def run(module: Any, dtype: torch.dtype) -> list[Tensor]:
        like = module.score_weight
        values = leaf(sizes.sentences, sizes.source, sizes.inputs, seed=1, like=like, dtype=dtype)
        query = leaf(sizes.sentences, 3, sizes.hidden, seed=2, like=like, dtype=dtype)
        memory = module.prepare(values, padding)
        context, weights = module.attend(query, AttentionMemory(*memory[:3]))
        parameters = [p for name, p in module.named_parameters() if name != "score_bias"]
        return with_gradients([context, weights], [values, query, *parameters])

    check(network, run, exact=exact, storage=storage, by=by)


def conditional(device: torch.device, sizes: Sizes, storage: torch.dtype, by: Selection) -> None:
    """The decoder's loop over two cells and attention, of all units."""
    for unit, normalized, heads in _networks(sizes):
        make = make_cells(unit, sizes, {"layer_norm": normalized})
        rnn = AttentionRNN(make, sizes.inputs, sizes.inputs, heads=heads, layer_norm=normalized)
        network, exact = started(rnn, device)
        words, _ = masks(sizes.sentences, sizes.target, device)
        source, _ = masks(sizes.sentences, sizes.source, device)

        def run(rnn: Any, dtype: torch.dtype, words: Tensor = words, source: Tensor = source) -> list[Tensor]:
            like = rnn.lower.input_weight
            x = leaf(sizes.sentences, sizes.target, sizes.inputs, seed=1, like=like, dtype=dtype)
            values = leaf(sizes.sentences, sizes.source, sizes.inputs, seed=2, like=like, dtype=dtype)
            packed = leaf(sizes.sentences, rnn.lower.state_size, seed=3, like=like, dtype=dtype)
            memory = rnn.attention.prepare(values, source)
            found = rnn.sequence(x, memory, rnn.lower.unpack_state(packed), words)
            parameters = [p for name, p in rnn.named_parameters() if name != "attention.score_bias"]
            return with_gradients([found.outputs, found.contexts, *found.last], [x, values, packed, *parameters])

        check(network, run, exact=exact, storage=storage, by=by)


def one_to_one(device: torch.device, sizes: Sizes, storage: torch.dtype, by: Selection) -> None:
    """The context-aware encoder's loop over two cells, of all units."""
    for unit, normalized, _ in _networks(sizes):
        make = make_cells(unit, sizes, {"layer_norm": normalized})
        network, exact = started(OneToOneRNN(make, sizes.inputs, sizes.inputs), device)
        words, _ = masks(sizes.sentences, sizes.target, device)

        def run(rnn: Any, dtype: torch.dtype, words: Tensor = words) -> list[Tensor]:
            like = rnn.lower.input_weight
            x, aligned = (
                leaf(sizes.sentences, sizes.target, sizes.inputs, seed=seed, like=like, dtype=dtype) for seed in (1, 2)
            )
            outputs, last = rnn.sequence(x, aligned, None, words, reverse=True)
            return with_gradients([outputs, *last], [x, aligned, *rnn.parameters()])

        check(network, run, exact=exact, storage=storage, by=by)


def _networks(sizes: Sizes) -> Iterator[tuple[str, bool, int]]:
    """Unit, whether with layer norm, heads."""
    for unit in DESIGNS:
        yield unit, False, 1
        if sizes == SMALL:
            yield unit, True, 2


def loss(device: torch.device, sizes: Sizes, storage: torch.dtype, by: Selection) -> None:
    """Output layer and label-smoothed cross entropy."""
    rows = sizes.sentences * sizes.target
    network, exact = started(Linear([sizes.hidden], sizes.words, bias=False), device)
    targets = torch.randint(sizes.words, (rows,), generator=torch.Generator().manual_seed(1)).to(device)

    def run(layer: Any, dtype: torch.dtype) -> list[Tensor]:
        table = layer.weights[0]
        features = leaf(rows, sizes.hidden, seed=2, like=table, dtype=dtype)
        weights = random(rows, seed=3, like=table).abs().to(dtype)
        total, losses = linear_cross_entropy(features, table, targets=targets, weights=weights, label_smoothing=0.1)
        return [*with_gradients([total], [features, table]), losses]

    check(network, run, exact=exact, storage=storage, by=by)


def masked(device: torch.device, sizes: Sizes, storage: torch.dtype, by: Selection) -> None:
    """Dropout of words and of states: the same places, and the same values at the others."""
    for shape in ((sizes.sentences, sizes.target, sizes.inputs), (sizes.sentences, sizes.hidden)):
        x = leaf(*shape, seed=1, like=torch.empty(0, device=device), dtype=storage)
        draw = Masks(2**62 + 12345, first=5).draw(x, layer=2**31 + 3)
        found = []
        for selection in (Selection("reference"), by):
            with selected(selection.choice, verified=selection.verified):
                found.append(with_gradients([dropout(x, 0.3, draw=draw)], [x]))
        for index, (right, ours) in enumerate(zip(*found, strict=True)):
            if not torch.equal(ours, right):
                raise DifferenceError(f"result {index} is not the reference's")


CHECKS: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "atr": partial(recurrence, "atr"),
        "attention": attention,
        "both_directions": both_directions,
        "conditional": conditional,
        "decoding_step": lambda device, sizes, storage, by: decoding.check_steps(
            device, words=sizes.words, hidden=sizes.hidden, storage=storage, by=by
        ),
        "dropout": masked,
        "gru": partial(recurrence, "gru"),
        "linear_cross_entropy": loss,
        "lrn": partial(recurrence, "lrn"),
        "lstm": partial(recurrence, "lstm"),
        "lstm_layer": partial(recurrence, "lstm", layer=True),
        "olrn": partial(recurrence, "olrn"),
        "one_to_one": one_to_one,
        "sru": partial(recurrence, "sru"),
    }
)
"""What is checked of each operation that `auto` may run on a GPU."""
