"""What each operation must compute on a GPU before `auto` runs it there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from nmt.kernel_check.comparison import DifferenceError, Run, check, random, with_gradients
from nmt.kernel_check.decoding import check_steps
from nmt.kernel_check.needs import Design, designs_of, parts
from nmt.models.attention import AdditiveAttention, AttentionMemory
from nmt.models.decoder import AttentionRNN, DeepAttentionRNN
from nmt.models.encoder import Bidirectional, OneToOneRNN
from nmt.models.parts import Linear, initialize
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


class Case(NamedTuple):
    """How an operation is tried."""

    device: torch.device
    sizes: Sizes
    storage: torch.dtype
    """Type of the products"""
    by: Selection
    """What computes"""
    designs: Sequence[Design] = ()
    """Of the cells that have the words of the key: without layer norm, with it, or both"""


Check = Callable[[Case], None]
"""Raises DifferenceError unless an operation is right in a case."""


def tried(network: nn.Module, run: Run, case: Case) -> None:
    """DifferenceError unless `run` finds in the network, with weights drawn from one seed, what it does in fp64."""
    torch.manual_seed(3)
    initialize(network, 0.08)
    for parameter in network.parameters():
        if parameter.dim() == 1:
            nn.init.uniform_(parameter, -0.5, 0.5)
    network = network.to(case.device)
    check(network, run, exact=copy.deepcopy(network).double(), storage=case.storage, by=case.by)


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


PERSISTENT: Final = SMALL._replace(sentences=12, inputs=250, hidden=256)
"""What cuDNN's persistent LSTM takes, in fp16 alone; see `nmt.ops.lstm.fused`."""


def lstm_layer(case: Case) -> None:
    """An LSTM layer by cuDNN."""
    if case.storage == torch.float16:
        sequence(case._replace(sizes=PERSISTENT), layer=True)


def sequence(case: Case, *, layer: bool = False) -> None:
    """A unit over sequences, in both directions; as a `layer` with the products of its input."""
    (sentences, length, _, width, hidden, _), design = case.sizes, case.designs[0]
    padding, holes = masks(sentences, length, case.device)

    def run(cell: Any, dtype: torch.dtype) -> list[Tensor]:
        like = next(cell.parameters())
        x = leaf(sentences, length, width, seed=1, like=like, dtype=dtype)
        packed = leaf(sentences, cell.state_size, seed=2, like=like, dtype=dtype)
        given, over = (x, cell.layer) if layer else (cell.project(x), cell.sequence)
        ahead, last = over(given, cell.unpack_state(packed), holes)
        back, first = over(given, None, padding, reverse=True)
        plain, _ = over(given)
        return with_gradients([ahead, *last, back, *first, plain], [x, packed, *cell.parameters()])

    tried(design.cell(width, hidden), run, case)


def bidirectional(case: Case) -> None:
    """The first layer of an encoder."""
    sentences, _, length, width, hidden, _ = case.sizes
    padding, _ = masks(sentences, length, case.device)

    def run(encoder: Any, dtype: torch.dtype) -> list[Tensor]:
        x = leaf(sentences, length, width, seed=1, like=next(encoder.parameters()), dtype=dtype)
        return with_gradients(encoder(x, padding), [x, *encoder.parameters()])

    tried(Bidirectional(partial(case.designs[0].cell, hidden_size=hidden), width), run, case)


def attention(case: Case) -> None:
    """Several queries of each sentence, two heads."""
    sentences, _, length, width, hidden, _ = case.sizes
    padding, _ = masks(sentences, length, case.device)

    def run(module: Any, dtype: torch.dtype) -> list[Tensor]:
        like = module.score_weight
        values = leaf(sentences, length, width, seed=1, like=like, dtype=dtype)
        query = leaf(sentences, 3, hidden, seed=2, like=like, dtype=dtype)
        memory = module.prepare(values, padding)
        context, weights = module.attend(query, AttentionMemory(*memory[:3]))
        parameters = [p for name, p in module.named_parameters() if name != "score_bias"]
        return with_gradients([context, weights], [values, query, *parameters])

    tried(AdditiveAttention(hidden, width, heads=2), run, case)


def conditional(case: Case) -> None:
    """The decoder's loop over cells and attention: of two cells and, as deep attention, of three."""
    sentences, length, source, width, hidden, _ = case.sizes
    target_mask, _ = masks(sentences, length, case.device)
    source_mask, _ = masks(sentences, source, case.device)

    def run(rnn: Any, dtype: torch.dtype) -> list[Tensor]:
        like = next(rnn.parameters())
        x = leaf(sentences, length, width, seed=1, like=like, dtype=dtype)
        values = leaf(sentences, source, width, seed=2, like=like, dtype=dtype)
        packed = leaf(sentences, rnn.lower.state_size, seed=3, like=like, dtype=dtype)
        found = rnn.sequence(x, rnn.prepare(values, source_mask), rnn.lower.unpack_state(packed), target_mask)
        parameters = [p for name, p in rnn.named_parameters() if not name.endswith("score_bias")]
        return with_gradients([found.outputs, found.contexts, *found.last], [x, values, packed, *parameters])

    for design in case.designs if case.sizes == SMALL else case.designs[:1]:
        make, norm, heads = partial(design.cell, hidden_size=hidden), design.layer_norm, 2 if case.sizes == SMALL else 1
        tried(AttentionRNN(make, width, width, heads=heads, layer_norm=norm), run, case)
        if case.sizes == SMALL:
            tried(DeepAttentionRNN(make, width, width, levels=2, layer_norm=norm), run, case)


def one_to_one(case: Case) -> None:
    """The context-aware encoder's loop over two cells."""
    sentences, length, _, width, hidden, _ = case.sizes
    padding, _ = masks(sentences, length, case.device)

    def run(rnn: Any, dtype: torch.dtype) -> list[Tensor]:
        like = next(rnn.parameters())
        x, aligned = (leaf(sentences, length, width, seed=seed, like=like, dtype=dtype) for seed in (1, 2))
        outputs, last = rnn.sequence(x, aligned, None, padding, reverse=True)
        return with_gradients([outputs, *last], [x, aligned, *rnn.parameters()])

    tried(OneToOneRNN(partial(case.designs[0].cell, hidden_size=hidden), width, width), run, case)


def loss(case: Case) -> None:
    """Output layer and label-smoothed cross entropy."""
    rows, (_, _, _, _, hidden, words) = case.sizes.sentences * case.sizes.target, case.sizes
    targets = torch.randint(words, (rows,), generator=torch.Generator().manual_seed(1)).to(case.device)

    def run(layer: Any, dtype: torch.dtype) -> list[Tensor]:
        table = layer.weights[0]
        features = leaf(rows, hidden, seed=2, like=table, dtype=dtype)
        weights = random(rows, seed=3, like=table).abs().to(dtype)
        total, losses, nll = linear_cross_entropy(
            features, table, targets=targets, weights=weights, label_smoothing=0.1
        )
        return [*with_gradients([total], [features, table]), losses, nll]

    tried(Linear([hidden], words, bias=False), run, case)


def masked(case: Case) -> None:
    """Dropout of words and of states: the same places, and the same values at the others."""
    sentences, length, _, width, hidden, _ = case.sizes
    for shape in ((sentences, length, width), (sentences, hidden)):
        x = leaf(*shape, seed=1, like=torch.empty(0, device=case.device), dtype=case.storage)
        draw = Masks(2**62 + 12345, first=5).draw(x, layer=2**31 + 3)
        found = []
        for selection in (Selection("reference"), case.by):
            with selected(selection.choice, verified=selection.verified):
                found.append(with_gradients([dropout(x, 0.3, draw=draw)], [x]))
        for index, (right, ours) in enumerate(zip(*found, strict=True)):
            if not torch.equal(ours, right):
                raise DifferenceError(f"result {index} differs from the reference's")


def decoding_step(case: Case) -> None:
    """Steps of a search as CUDA graphs."""
    sizes = case.sizes
    check_steps(case.device, words=sizes.words, hidden=sizes.hidden, storage=case.storage, by=case.by)


CHECKS: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "attention": attention,
        "bidirectional": bidirectional,
        "conditional": conditional,
        "decoding_step": decoding_step,
        "dropout": masked,
        "linear_cross_entropy": loss,
        "lstm_layer": lstm_layer,
        "one_to_one": one_to_one,
        "sequence": sequence,
    }
)
"""What is checked of each operation that `auto` may run on a GPU."""


def check_key(key: str, device: torch.device, sizes: Sizes, storage: torch.dtype) -> None:
    """Raise DifferenceError unless the operation `key` is right on the device; see `nmt.kernel_check.needs`."""
    operation, words = parts(key)
    designs = [Design(CELLS.get("lstm"))] if operation == "lstm_layer" else designs_of(words) if words else []
    CHECKS[operation](Case(device, sizes, storage, Selection("auto", frozenset({key})), designs))
