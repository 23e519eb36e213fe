"""The operations of a model on a GPU that must be checked there, and what each must compute before `auto` runs it.

A key is an operation and, if its kernels are compiled for a design, the words of the design, as in `sequence lrn tanh`:
the argument of `nmt.ops.dispatch`. A pair of cells without matrices is one unit there, as in `sequence pair lrn`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from nmt.cells import Cell
from nmt.errors import ConfigError
from nmt.models.attention import AdditiveAttention, AttentionMemory, AttentionQuery
from nmt.models.base import PAD
from nmt.models.build import build_model
from nmt.models.decoder import AttendingRNN, AttentionRNN, DeepAttentionRNN
from nmt.models.encoder import Bidirectional, OneToOneRNN
from nmt.models.graphed import GraphedModel
from nmt.models.parts import Linear, OutputWords, initialize
from nmt.ops.dispatch import Selection, selected
from nmt.ops.dropout import Masks, dropout
from nmt.ops.linear_cross_entropy import linear_cross_entropy
from nmt.ops.matrices.best_words import BestWords, Choice
from nmt.ops.scan import pair_of
from nmt.registry import CELLS

Purpose = Literal["training", "scoring", "search"]
"""Training needs gradients and, for validation, what search needs; scoring needs no steps of a search."""

WITHOUT_TRITON: Final = frozenset({"decoding_step", "lstm_layer"})
"""Operations that run as CUDA graphs or by cuDNN."""
FORWARD: Final = " forward"
"""Ends the name of a check without gradients."""


class Design(NamedTuple):
    """Which cells an operation runs."""

    kind: type[Cell[Any]]
    options: Any = None
    layer_norm: bool = False

    @property
    def words(self) -> str | None:
        return kernel_words(self.cell(1, 1))

    def cell(self, input_size: int, hidden_size: int) -> Cell[Any]:
        return self.kind(input_size, hidden_size, layer_norm=self.layer_norm, options=self.options)


def needed(model: nn.Module, purpose: Purpose) -> list[str]:
    """The keys of all that `model` runs on a GPU."""
    found = dict.fromkeys(recurrences(model if purpose != "search" else getattr(model, "encoder", model)))
    if any(isinstance(module, AttentionQuery) for module in model.modules()):
        found["attention"] = None
    if purpose != "search":
        found["linear_cross_entropy"] = None
    if purpose != "scoring":
        found["decoding_step"] = None
    if purpose == "training" and any(
        isinstance(module, nn.Dropout) and module.p or isinstance(module, Cell) and module.recurrent_dropout
        for module in model.modules()
    ):
        found["dropout"] = None
    return list(found)


def recurrences(model: nn.Module) -> Iterator[str]:
    """Keys of the recurrent layers of a model; some may come more than once."""
    inside = set[nn.Module]()
    for module in model.modules():
        if isinstance(module, (AttendingRNN, OneToOneRNN)):
            inside.update(part for part in module.modules() if isinstance(part, Cell))
            operation = "conditional"
            if isinstance(module, OneToOneRNN):
                lower, higher = module.lower.unit(), module.higher.unit()
                operation = "sequence pair" if lower and higher and pair_of(lower, higher) else "one_to_one"
            if words := kernel_words(module.lower):
                yield f"{operation} {words}"
        elif isinstance(module, Bidirectional) and (words := kernel_words(module.forward_rnn)):
            yield f"bidirectional {words}"
        elif isinstance(module, Cell) and module not in inside and (words := kernel_words(module)):
            yield f"sequence {words}"
            if words.startswith("lstm") and not module.layer_norm:
                yield "lstm_layer"


def kernel_words(cell: Cell[Any]) -> str | None:
    """The words of a cell's design, if there is a kernel for GPUs."""
    unit = cell.unit()
    return None if unit is None or unit.triton is None or not unit.usual else unit.words


def plain(name: str) -> str:
    """The key of a check."""
    return name.removesuffix(FORWARD)


def parts(name: str) -> tuple[str, str]:
    """Operation and design of a check; the design may be none."""
    operation, _, words = plain(name).partition(" ")
    return ("one_to_one", words.removeprefix("pair ")) if words.startswith("pair ") else (operation, words)


def groups(names: Iterable[str]) -> list[list[str]]:
    """The checks in lists of those that share most of their kernels, the longest first: what attends, then recurrences
    by design, and the rest."""
    attend, others, attention = dict[str, list[str]](), dict[str, list[str]](), list[str]()
    for name in names:
        operation, words = parts(name)
        if operation in ("attention", "decoding_step"):
            attention.append(name)
        elif operation == "conditional":
            attend[words] = [name]
        else:
            others.setdefault(words or operation, []).append(name)
    first, *more = attend.values() or [[]]
    return [group for group in ([*first, *attention], *more, *others.values()) if group]


def designs_of(words: str) -> list[Design]:
    """Those of all cells whose unit has these words; ConfigError if there is none."""
    known = _all_designs()
    if words not in known:
        of_its_unit = [other for other in known if other.split()[0] == words.split()[0]]
        allowed = of_its_unit or sorted({other.split()[0] for other in known})
        raise ConfigError(f"no unit has the design '{words}'. Known: {', '.join(allowed)}.")
    return known[words]


@functools.cache
def _all_designs() -> Mapping[str, list[Design]]:
    """By words; with and without layer norm, with all options that are words or truth values."""
    found = dict[str, list[Design]]()
    for name in CELLS.names():
        kind: type[Cell[Any]] = CELLS.get(name)
        for options, layer_norm in itertools.product(_options(kind), (False, True)):
            design = Design(kind, options, layer_norm)
            known = found.setdefault(design.words, []) if design.words else []
            if layer_norm not in [other.layer_norm for other in known]:
                known.append(design)
    return found


def _options(kind: type[Cell[Any]]) -> Iterator[Any]:
    """All options of a cell except numbers."""
    choices, hints = dict[str, Sequence[Any]](), get_type_hints(kind.Options)
    for field in fields(kind.Options):
        if hints[field.name] is bool or get_origin(hints[field.name]) is Literal:
            choices[field.name] = get_args(hints[field.name]) or (False, True)
    for values in itertools.product(*choices.values()):
        with contextlib.suppress(ConfigError):  # what does not go together
            yield kind.Options(**dict(zip(choices, values, strict=True)))


def all_keys() -> list[str]:
    """Those of all units, alone, in pairs and with layer norm, and with each of their options alone."""
    found = dict.fromkeys(["attention", "decoding_step", "dropout", "linear_cross_entropy"])
    for name in CELLS.names():
        kind: type[Cell[Any]] = CELLS.get(name)
        usual = kind.Options()
        for layer_norm in (False, True):
            make = partial(Design(kind, usual, layer_norm).cell, hidden_size=1)
            for network in (Bidirectional(make, 1), AttentionRNN(make, 1, 1), OneToOneRNN(make, 1, 1)):
                found |= dict.fromkeys(recurrences(network))
        for options in _options(kind):
            differing = [field for field in fields(usual) if getattr(options, field.name) != getattr(usual, field.name)]
            words = Design(kind, options).words
            if words and len(differing) == 1:
                found[f"sequence {words}"] = None
    return list(found)


def plugin_files(names: Iterable[str]) -> list[Path]:
    """The user's files in which the cells of these checks are defined."""
    words = {parts(name)[1] for name in names} - {""}
    kinds = {design.kind for known in words for design in designs_of(known)}
    files = {Path(inspect.getfile(kind)).resolve() for kind in kinds if not kind.__module__.startswith("nmt.")}
    return sorted(files)


TOLERANCES: Final = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
"""By type of the products: the largest norm of an error, relative to the norm of the exact result. An error twice as
large as the reference's in the same type is allowed as well. The tests of kernels use the same limits."""

TIMES: Final = 4
"""Number of runs of a check: graphs are recorded in the second run and replayed from then on."""


class DifferenceError(Exception):
    """A kernel does not compute what the reference does."""


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
    """Type of the products, in which autocast computes; fp32 is without autocast"""
    by: Selection
    """What computes"""
    designs: Sequence[Design] = ()
    """Of the cells that have the words of the key: without layer norm, with it, or both"""

    def random(self, *shape: int, seed: int) -> Tensor:
        """The same normal values on each device, fp64."""
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(self.device)

    def masks(self, length: int) -> tuple[Tensor, Tensor]:
        """Padding at the right, and any pattern, with a row that is all padding."""
        lengths = length - torch.arange(self.sizes.sentences) % length
        padding = torch.arange(length) < lengths[:, None]
        holes = torch.rand(padding.shape, generator=torch.Generator().manual_seed(6)) < 0.6
        holes[0] = False
        return padding.to(self.device), holes.to(self.device)

    def autocast(self) -> torch.autocast:
        """Autocast to `storage`, none for fp32."""
        return torch.autocast(self.device.type, self.storage, enabled=self.storage != torch.float32)

    def check(
        self, network: nn.Module, shapes: Sequence[tuple[int, ...]], run: Callable[..., Sequence[Tensor]]
    ) -> None:
        """DifferenceError unless `run` finds in the network, with weights drawn from one seed, and in random inputs of
        these shapes what it does without kernels in fp64; if gradients are enabled, those of a weighted sum, too."""

        def results(network: nn.Module, dtype: torch.dtype) -> list[Tensor]:
            inputs = [self.random(*shape, seed=1 + i).to(dtype).requires_grad_() for i, shape in enumerate(shapes)]
            found = run(network, *inputs)
            if not torch.is_grad_enabled():
                return list(found)
            # The bias of scores does not change weights.
            weights = [weight for name, weight in network.named_parameters() if not name.endswith("score_bias")]
            summed = [result for result in found if result.requires_grad]
            factors = [self.random(*result.shape, seed=9).to(result.dtype) for result in summed]
            gradients = torch.autograd.grad(summed, [*inputs, *weights], factors, materialize_grads=True)
            return [result.detach() for result in (*found, *gradients)]

        torch.manual_seed(3)
        initialize(network, 0.08)
        for parameter in network.parameters():
            if parameter.dim() == 1:
                nn.init.uniform_(parameter, -0.5, 0.5)
        network = network.to(self.device)
        with selected("reference"):
            right = results(copy.deepcopy(network).double(), torch.float64)
            with self.autocast():
                plain = results(network, torch.float32)
        for _ in range(TIMES):
            with selected(self.by.choice, verified=self.by.verified), self.autocast():
                ours = results(network, torch.float32)
            for index, (found, wanted, other) in enumerate(zip(ours, right, plain, strict=True)):
                if found.shape != wanted.shape:
                    raise DifferenceError(f"result {index} has another shape than the reference's")
                allowed = TOLERANCES[self.storage] * wanted.norm().clamp_min(1e-3)
                allowed = allowed + 2 * (other.double() - wanted).norm()
                error = (found.double() - wanted).norm()
                if not error <= allowed:  # so written for NaN
                    off = f"by {error:.1e}, {allowed:.1e} allowed"
                    raise DifferenceError(f"result {index} differs from the reference's {off}")


PERSISTENT: Final = SMALL._replace(sentences=12, inputs=250, hidden=256)
"""What cuDNN's persistent LSTM takes, in fp16 alone; see `nmt.ops.lstm.fused`."""


def lstm_layer(case: Case) -> None:
    """An LSTM layer by cuDNN."""
    if case.storage == torch.float16:
        sequence(case._replace(sizes=PERSISTENT, designs=[Design(CELLS.get("lstm"))]), layer=True)


def sequence(case: Case, *, layer: bool = False) -> None:
    """A unit over sequences, in both directions; as a `layer` with the products of its input."""
    sentences, length, _, width, hidden, _ = case.sizes
    (padding, holes), made = case.masks(length), case.designs[0].cell(width, hidden)

    def run(cell: Any, x: Tensor, packed: Tensor) -> list[Tensor]:
        given, over = (x, cell.layer) if layer else (cell.project(x), cell.sequence)
        ahead, last = over(given, cell.unpack_state(packed), holes)
        back, first = over(given, None, padding, reverse=True)
        plain, _ = over(given)
        return [ahead, *last, back, *first, plain]

    case.check(made, [(sentences, length, width), (sentences, made.state_size)], run)


def bidirectional(case: Case) -> None:
    """The first layer of an encoder."""
    sentences, _, length, width, hidden, _ = case.sizes
    padding, _ = case.masks(length)
    encoder = Bidirectional(partial(case.designs[0].cell, hidden_size=hidden), width)
    case.check(encoder, [(sentences, length, width)], lambda encoder, x: encoder(x, padding))


def attention(case: Case) -> None:
    """Several queries of each sentence, two heads."""
    sentences, _, length, width, hidden, _ = case.sizes
    padding, _ = case.masks(length)

    def run(module: Any, values: Tensor, query: Tensor) -> Sequence[Tensor]:
        memory = module.prepare(values, padding)
        attended: Sequence[Tensor] = module.attend(query, AttentionMemory(*memory[:3]))
        return attended

    shapes = (sentences, length, width), (sentences, 3, hidden)
    case.check(AdditiveAttention(hidden, width, heads=2), shapes, run)


def conditional(case: Case) -> None:
    """The decoder's loop over cells and attention: of two cells and, as deep attention, of three."""
    sentences, length, source, width, hidden, _ = case.sizes
    (target_mask, _), (source_mask, _) = case.masks(length), case.masks(source)

    def run(rnn: Any, x: Tensor, values: Tensor, packed: Tensor) -> list[Tensor]:
        found = rnn.sequence(x, rnn.prepare(values, source_mask), rnn.lower.unpack_state(packed), target_mask)
        return [found.outputs, found.contexts, *found.last]

    small = case.sizes == SMALL
    for design in case.designs if small else case.designs[:1]:
        make, norm = partial(design.cell, hidden_size=hidden), design.layer_norm
        rnns: list[AttendingRNN] = [AttentionRNN(make, width, width, heads=2 if small else 1, layer_norm=norm)]
        if small:
            rnns.append(DeepAttentionRNN(make, width, width, levels=2, layer_norm=norm))
        for rnn in rnns:
            shapes = (sentences, length, width), (sentences, source, width), (sentences, rnn.lower.state_size)
            case.check(rnn, shapes, run)


def one_to_one(case: Case) -> None:
    """The context-aware encoder's loop over two cells."""
    sentences, length, _, width, hidden, _ = case.sizes
    padding, _ = case.masks(length)

    def run(rnn: Any, x: Tensor, aligned: Tensor) -> list[Tensor]:
        outputs, last = rnn.sequence(x, aligned, None, padding, reverse=True)
        return [outputs, *last]

    rnn = OneToOneRNN(partial(case.designs[0].cell, hidden_size=hidden), width, width)
    case.check(rnn, [(sentences, length, width)] * 2, run)


def loss(case: Case) -> None:
    """Output layer and label-smoothed cross entropy."""
    rows, hidden, words = case.sizes.sentences * case.sizes.target, case.sizes.hidden, case.sizes.words
    targets = torch.randint(words, (rows,), generator=torch.Generator().manual_seed(1)).to(case.device)

    def run(layer: Any, features: Tensor) -> Sequence[Tensor]:
        weights = case.random(rows, seed=3).abs().to(features.dtype)
        return linear_cross_entropy(features, layer.weights[0], targets=targets, weights=weights, label_smoothing=0.1)

    case.check(Linear([hidden], words, bias=False), [(rows, hidden)], run)


def masked(case: Case) -> None:
    """Dropout of words and of states: the same places, and the same values and gradients at the others."""
    sentences, length, _, width, hidden, _ = case.sizes
    for shape in ((sentences, length, width), (sentences, hidden)):
        x = case.random(*shape, seed=1).to(case.storage).requires_grad_()
        draw, found = Masks(2**62 + 12345, first=5).draw(x, layer=2**31 + 3), []
        for selection in (Selection("reference"), case.by):
            with selected(selection.choice, verified=selection.verified):
                result = dropout(x, 0.3, draw=draw)
                factors = case.random(*shape, seed=9).to(case.storage)
                found.append([result, *(torch.autograd.grad(result, x, factors) if result.requires_grad else ())])
        for index, (right, ours) in enumerate(zip(*found, strict=True)):
            if not torch.equal(ours, right):
                raise DifferenceError(f"result {index} differs from the reference's")


SENTENCES: Final = 5

BEAM: Final = 3

STEPS: Final = 5
"""A step of new sizes is done, recorded, then replayed; when sentences leave the batch it begins again."""


def decoding_step(case: Case) -> None:
    """Steps of a beam search as CUDA graphs, with all words and with a shortlist: as launched kernel by kernel."""
    device, words, hidden = case.device, case.sizes.words, case.sizes.hidden
    config: Any = SimpleNamespace(
        architecture="deepnmt", unit_of=lambda side: SimpleNamespace(name="lrn", options={}), hidden_size=hidden,
        encoder_hidden_size=None, embedding_size=hidden, encoder_layers=1, decoder_layers=2,
        encoder_direction="both", context_aware_encoder=False, deep_attention=False,
        deep_output=True, attention_heads=1, layer_norm=False,
        tie_embeddings="target_softmax", dropout=0.0, recurrent_dropout=0.0, layer_norm_scale=1.0,
        initializer="uniform", initializer_options={}, init_range=0.08,
    )  # fmt: skip
    torch.manual_seed(3)
    model = build_model(config, words, words).eval().to(device)
    source = torch.randint(4, words, (SENTENCES, 9), generator=torch.Generator().manual_seed(1)).to(device)
    source[1, 5:] = PAD
    listed = torch.arange(0, words, 2, device=device)
    verified = case.by.verified.union(needed(model, "search"))  # so that there are kernels to record
    with torch.inference_mode(), selected(case.by.choice, verified=verified), case.autocast():
        for ids in (None, listed):
            _follow(model, GraphedModel(model), source, ids, tolerance=TOLERANCES[case.storage])


def _follow(model: Any, graphed: GraphedModel, source: Tensor, ids: Tensor | None, *, tolerance: float) -> None:
    """Run both searches in parallel; the plain model's choices decide how both continue."""
    forbidden = None if ids is None else torch.zeros(len(source), len(ids), dtype=torch.bool, device=ids.device)
    among: list[OutputWords | None] = [
        None if ids is None or forbidden is None else one.among(ids, forbidden) for one in (model, graphed)
    ]
    states: list[Any] = [one.start(source).expand(BEAM) for one in (model, graphed)]
    # Equal hypotheses would tie, and words of ties are not compared.
    totals = -torch.arange(BEAM, dtype=torch.float32, device=source.device).repeat(len(source), 1)
    tokens = None
    for step in range(2 * STEPS):
        choice = Choice(2 * BEAM, before=totals, banned=PAD)
        right, states[0] = model.best(tokens, states[0], choice, among[0])
        found, states[1] = graphed.best(tokens, states[1], choice, among[1])
        _compare(found, right, tolerance=tolerance)
        totals, beams, chosen = (part[:, :BEAM] for part in right)
        rows = torch.arange(len(beams), device=beams.device).unsqueeze(1) * BEAM + beams
        states, tokens = [state.reorder(rows.flatten()) for state in states], chosen.flatten()
        if step == STEPS and ids is None:  # the first sentence is finished; a shortlist is the whole batch's
            kept = torch.arange(1, len(source), device=source.device)
            states = [state.keep(kept) for state in states]
            tokens, totals = tokens[BEAM:], totals[1:]


def _compare(found: BestWords, right: BestWords, *, tolerance: float) -> None:
    """Values may differ by rounding, words only where values are as near."""
    allowed = 10 * tolerance * right.values.abs().clamp_min(1)
    if not bool(((found.values - right.values).abs() <= allowed).all()):
        raise DifferenceError("the values of the best words differ")
    gaps = (right.values[:, 1:] - right.values[:, :-1]).abs() <= allowed[:, 1:]
    near = torch.zeros_like(right.words, dtype=torch.bool)
    near[:, 1:] |= gaps
    near[:, :-1] |= gaps
    near[:, -1] = True  # the next one is not known
    same = (found.words == right.words) & (found.hypotheses == right.hypotheses)
    if not bool((same | near).all()):
        raise DifferenceError("the best words differ")


CHECKS: Final[Mapping[str, Callable[[Case], None]]] = {
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
"""What is checked of each operation that `auto` may run on a GPU; raises DifferenceError unless it is right."""


def check_key(key: str, device: torch.device, sizes: Sizes, storage: torch.dtype) -> None:
    """Raise DifferenceError unless the operation `key` is right on the device; see `nmt.kernel_check.cases`."""
    operation, words = parts(key)
    designs = designs_of(words) if words else []
    CHECKS[operation](Case(device, sizes, storage, Selection("auto", frozenset({key})), designs))
