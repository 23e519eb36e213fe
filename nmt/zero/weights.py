"""Zero's variables: their names, and models, values and gradients of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, singledispatch
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nmt.cells import ATR, GRU, LRN, LSTM, OLRN, SRU, Cell
from nmt.config.schema import ModelConfig
from nmt.errors import ConfigError, DataError, refused
from nmt.models import DeepNMT, RNNSearch, RNNSearchDeepAtt, Seq2Seq, build_model
from nmt.models.attention import AdditiveAttention, AttentionQuery
from nmt.models.decoder import (
    AttendingLayer,
    AttentionRNN,
    ConcatenatingLayer,
    ContextLayer,
    DeepAttentionRNN,
    DeepDecoder,
)
from nmt.models.encoder import (
    Alternating,
    Bidirectional,
    ContextAware,
    DeepEncoder,
    Forward,
    MakeCell,
    OneToOneRNN,
    ResidualLayer,
)
from nmt.models.parts import Embeddings, LayerNorm, Linear, Readout, TanhReadout
from nmt.registry import CELLS


class Variable(NamedTuple):
    """A variable of Zero."""

    name: str
    """with its scope, without "var/" unless the scope has it"""
    parameter: nn.Parameter
    """where it lives here"""
    view: Callable[[Tensor], Tensor]
    """from the parameter, or its gradient, to the part that is the variable, in its shape; a view"""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.view(self.parameter.detach()).shape)


class _Block(NamedTuple):
    """A product that is a variable of its own in Zero: rows first * H to last * H of the parameters `prefix`_*."""

    name: str
    prefix: str
    first: int
    last: int


class _Layout(NamedTuple):
    """A unit in Zero."""

    unit: str
    input: tuple[_Block, ...]
    recurrent: tuple[_Block, ...] = ()
    peepholes: tuple[tuple[str, str], ...] = ()
    """names there and here"""


_LAYOUTS: dict[type[Cell[Any]], _Layout] = {
    GRU: _Layout(
        "gru",
        (_Block("gate_x", "input", 0, 2), _Block("hide_x", "input", 2, 3)),
        (_Block("gate_h", "recurrent", 0, 2), _Block("hide_h", "candidate", 0, 1)),
    ),
    LSTM: _Layout(
        "lstm",
        (_Block("gate_x", "input", 0, 3), _Block("hide_x", "input", 3, 4)),
        (_Block("gate_h", "recurrent", 0, 3), _Block("hide_h", "recurrent", 3, 4)),
    ),
    ATR: _Layout("atr", (_Block("hide_x", "input", 0, 1),), (_Block("hide_h", "recurrent", 0, 1),)),
    SRU: _Layout(
        "sru",
        (_Block("hide_x", "input", 0, 4),),
        peepholes=(("v_f", "peephole_forget"), ("v_r", "peephole_reset")),
    ),
    LRN: _Layout("lrn", (_Block("hide_x", "input", 0, 3),)),
    OLRN: _Layout("olrn", (_Block("hide_x", "input", 0, 4),)),
}


@singledispatch
def named_variables(module: nn.Module, scope: str) -> Iterator[Variable]:
    """The variables of `module`, below `scope`."""
    raise TypeError(f"{type(module).__name__} has no counterpart in Zero")


@named_variables.register
def cell_variables(module: Cell, scope: str, *, role: str = "") -> Iterator[Variable]:  # type: ignore[type-arg]
    """A cell; `role` is "_lower", "_higher" or "_higher_0" and so on in a network of several cells a step."""
    layout = _layout(module)
    for block in layout.input:
        yield from _block_variables(module, f"{scope}/fetch_state_{layout.unit}{role}", block)
    for block in layout.recurrent:
        yield from _block_variables(module, f"{scope}/cell_{layout.unit}{role}", block)
    for name, ours in layout.peepholes:
        yield Variable(f"{scope}/cell_{layout.unit}{role}/{name}", module.get_parameter(ours), _as_row)


def unit_name(cell: Cell[Any]) -> str:
    """What Zero calls the unit of a cell; TypeError for a unit that it does not have."""
    return _layout(cell).unit


STARTS = ("recurrent_init", "forget_bias")
"""Options of units that say only how their weights start."""


def other_designs(options: Mapping[str, Any], default: Mapping[str, Any]) -> list[str]:
    """The options that make a unit compute something else than with those by default, which Zero's units have."""
    return [name for name, value in options.items() if name not in STARTS and value != default[name]]


def _layout(cell: Cell[Any]) -> _Layout:
    layout = _LAYOUTS.get(type(cell))
    if layout is None:
        raise TypeError(f"unit {type(cell).__name__} has no counterpart in Zero")
    options, default = (dataclasses.asdict(chosen) for chosen in (cell.options, cell.Options()))
    if changed := other_designs(options, default):
        described = ", ".join(f"{name}: {options[name]}" for name in changed)
        raise TypeError(f"unit {type(cell).__name__} with {described} has no counterpart in Zero")
    return layout


def _block_variables(module: Cell[Any], scope: str, block: _Block) -> Iterator[Variable]:
    rows = slice(block.first * module.hidden_size, block.last * module.hidden_size)
    parameters = dict(module.named_parameters(recurse=False))
    for kind, name, view in (
        ("weight", "W_0_0", _transposed_rows),
        ("bias", "b_0", _rows),
        ("scale", "ln_0_0/scale", _rows),
        ("offset", "ln_0_0/offset", _rows),
    ):
        parameter = parameters.get(f"{block.prefix}_{kind}")
        if parameter is not None:
            yield Variable(f"{scope}/{block.name}/{name}", parameter, partial(view, rows=rows))


@named_variables.register
def _(module: Linear, scope: str) -> Iterator[Variable]:
    for j, weight in enumerate(module.weights):
        yield Variable(f"{scope}/W_0_{j}", weight, _transposed_rows)
    for j, norm in enumerate(module.norms):
        yield from named_variables(norm, f"{scope}/ln_0_{j}")
    if module.bias is not None:
        yield Variable(f"{scope}/b_0", module.bias, _rows)


@named_variables.register
def _(module: LayerNorm, scope: str) -> Iterator[Variable]:
    yield Variable(f"{scope}/scale", module.scale, _rows)
    yield Variable(f"{scope}/offset", module.offset, _rows)


@named_variables.register
def _(module: OneToOneRNN, scope: str) -> Iterator[Variable]:
    yield from cell_variables(module.lower, scope, role="_lower")
    yield from cell_variables(module.higher, scope, role="_higher")


@named_variables.register
def _(module: AttentionRNN, scope: str) -> Iterator[Variable]:
    yield from cell_variables(module.lower, scope, role="_lower")
    yield from cell_variables(module.higher, scope, role="_higher")
    yield from named_variables(module.attention, scope)


@named_variables.register
def _(module: DeepAttentionRNN, scope: str) -> Iterator[Variable]:
    yield from cell_variables(module.lower, scope, role="_lower")
    yield from named_variables(cast("AdditiveAttention", module.attentions[0]).memory, f"{scope}/context_att")
    for level, (attention, higher) in enumerate(module.levels):
        yield from _query_variables(attention, f"{scope}/deep_attention_{level}")
        yield from cell_variables(higher, scope, role=f"_higher_{level}")


@named_variables.register
def _(module: AdditiveAttention, scope: str) -> Iterator[Variable]:
    yield from named_variables(module.memory, f"{scope}/context_att")
    yield from _query_variables(module, f"{scope}/attention")


def _query_variables(module: AttentionQuery, scope: str) -> Iterator[Variable]:
    yield from named_variables(module.query, f"{scope}/feed_query")
    yield Variable(f"{scope}/feed_logits/W_0_0", module.score_weight, _as_column)
    yield Variable(f"{scope}/feed_logits/b_0", module.score_bias, _rows)


@named_variables.register
def _(module: Forward, scope: str) -> Iterator[Variable]:
    yield from named_variables(module.cell, f"{scope}/forward")


@named_variables.register(Bidirectional)
@named_variables.register(ContextAware)
def _(module: Bidirectional | ContextAware, scope: str) -> Iterator[Variable]:
    yield from named_variables(module.forward_rnn, f"{scope}/forward")
    yield from named_variables(module.backward_rnn, f"{scope}/backward")


@named_variables.register
def _(module: Alternating, scope: str) -> Iterator[Variable]:
    yield from named_variables(module.first.cell, f"{scope}/layer_0")
    for index, layer in enumerate(module.above, start=1):
        yield from named_variables(layer, f"{scope}/layer_{index}")


@named_variables.register(AttendingLayer)
@named_variables.register(ContextLayer)
def _(module: AttendingLayer | ContextLayer, scope: str) -> Iterator[Variable]:
    yield from named_variables(module.rnn, scope)


@named_variables.register
def _(module: ConcatenatingLayer, scope: str) -> Iterator[Variable]:
    yield from named_variables(module.cell, scope)


@named_variables.register(DeepEncoder)
@named_variables.register(DeepDecoder)
def _(module: DeepEncoder | DeepDecoder, scope: str) -> Iterator[Variable]:
    for index, (layer, residual) in enumerate(zip(module.layers, module.residuals, strict=True)):
        yield from named_variables(layer, f"{scope}/layer_{index}")
        yield from named_variables(residual, f"{scope}/layer_{index}")


@named_variables.register
def _(module: ResidualLayer, scope: str) -> Iterator[Variable]:
    yield from named_variables(module.branch, f"{scope}/ff")
    if module.norm is not None:
        yield from named_variables(module.norm, f"{scope}/ln")


@named_variables.register
def _(module: Embeddings, scope: str) -> Iterator[Variable]:
    yield Variable(f"{scope}/bias", module.bias, _rows)
    if module.target is None:
        yield Variable(f"{scope}/embedding", module.source, _rows)
        return
    yield Variable(f"{scope}/src_embedding", module.source, _rows)
    yield Variable(f"{scope}/tgt_embedding", module.target, _rows)
    if module.softmax is not None:
        yield Variable(f"{scope}/softmax_embedding", module.softmax, _rows)


@named_variables.register
def _(module: Readout, scope: str) -> Iterator[Variable]:
    yield from ()


@named_variables.register
def _(module: TanhReadout, scope: str) -> Iterator[Variable]:
    yield from named_variables(module.linear, scope)


@named_variables.register
def _(module: DeepNMT, scope: str) -> Iterator[Variable]:
    yield from named_variables(module.embeddings, scope)
    encoder = module.encoder
    yield from named_variables(encoder, f"{scope}/encoder")
    if encoder.widen is not None and encoder.widen_norm is not None:
        yield from named_variables(encoder.widen, f"{scope}/x_map")
        yield from named_variables(encoder.widen_norm, f"{scope}/layer_norm")
    for index, linear in enumerate(module.initial_states.maps):
        yield from named_variables(linear, f"{scope}/layer_{index}_init")
    yield from named_variables(module.decoder, f"{scope}/decoder")
    yield from named_variables(module.readout, f"{scope}/ff")


@named_variables.register
def _(module: RNNSearch, scope: str) -> Iterator[Variable]:
    yield from named_variables(module.embeddings, scope)
    yield from named_variables(module.encoder, f"{scope}/encoder")
    unit = _layout(module.decoder.layer.rnn.lower).unit
    yield from named_variables(module.initial_states.maps[0], f"{scope}/decoder_initializer/{unit}_init")
    yield from named_variables(module.decoder.layer, f"{scope}/decoder")
    yield from named_variables(module.readout, f"{scope}/pre_logits")


@named_variables.register
def _(module: RNNSearchDeepAtt, scope: str) -> Iterator[Variable]:
    yield from named_variables(module.embeddings, scope)
    yield from named_variables(module.encoder, f"{scope}/encoder")
    yield from named_variables(module.initial_states.maps[0], f"{scope}/decoder_initializer/dec_init_state_init")
    yield from named_variables(module.decoder.layer, f"{scope}/decoder")
    yield from named_variables(module.readout, f"{scope}/ff")


def _rows(tensor: Tensor, *, rows: slice = slice(None)) -> Tensor:
    return tensor[rows]


def _transposed_rows(tensor: Tensor, *, rows: slice = slice(None)) -> Tensor:
    return tensor[rows].t()


def _as_row(tensor: Tensor) -> Tensor:
    return tensor.unsqueeze(0)


def _as_column(tensor: Tensor) -> Tensor:
    return tensor.unsqueeze(1)


Arrays = Mapping[str, NDArray[Any]]

PREFIX = "var/"
"""What the reference files put before the names of variables."""
_SHOWN = 5
"""Variables of a kind that a message names."""


def from_arrays(config: Mapping[str, Any], variables: Arrays, dtype: torch.dtype = torch.float64) -> Seq2Seq:
    """The model of Zero's hyper-parameters `config` with the values of `variables`, in eval mode.

    `variables` has Zero's own names, with or without a leading "var/". Read from `config`: model_name,
    cell, hidden_size, embed_size, which must be there, and caencoder, layer_norm, num_heads,
    use_deep_att, dl4mt_redict, num_encoder_layer, num_decoder_layer, shared_source_target_embedding,
    shared_target_softmax_embedding, src_vocab_size, tgt_vocab_size, scope_name, which are read off the
    variables where absent, and dropout (0 if absent).

    Raises ConfigError for hyper-parameters that are missing or of which there is no model here, and
    DataError naming the variables that are missing, unknown or of another shape.
    """
    section = model_config(config, variables)
    sizes = [config.get(f"{side}_vocab_size") or _table_rows(variables, side) for side in ("src", "tgt")]
    model = build_model(section, *sizes).to(dtype).eval()
    model.variable_scope = _scope(config, variables, default=model.variable_scope)
    assign(named_variables(model, model.variable_scope), variables)
    return model


def cell_from_arrays(
    config: Mapping[str, Any], variables: Arrays, dtype: torch.dtype = torch.float64, *, scope: str = "test"
) -> Cell[Any]:
    """A single unit from `config` (cell, layer_norm, D input width, H state width) and its variables below `scope`."""
    cell = _cell_maker(config)(config["D"]).to(dtype)
    assign(named_variables(cell, scope), variables)
    return cell


def conditional_from_arrays(
    config: Mapping[str, Any], variables: Arrays, dtype: torch.dtype = torch.float64, *, scope: str = "test"
) -> AttentionRNN | OneToOneRNN:
    """A two-step network; `config` as for a cell, and M memory width, one2one, num_heads."""
    make_cell, normalize = _cell_maker(config), bool(config["layer_norm"])
    network: AttentionRNN | OneToOneRNN
    if config["one2one"]:
        network = OneToOneRNN(make_cell, config["D"], config["M"])
    else:
        heads = config["num_heads"]
        network = AttentionRNN(make_cell, config["D"], config["M"], heads=heads, layer_norm=normalize)
    network.to(dtype)
    assign(named_variables(network, scope), variables)
    return network


def named_gradients(model: nn.Module, *, scope: str | None = None) -> dict[str, NDArray[Any]]:
    """Gradients after a backward pass, in the names and shapes of the variables; zeros where there is none.

    `model` is a Seq2Seq, or a cell or conditional network if its `scope` is given. Raises ConfigError for a Seq2Seq
    with different units in encoder and decoder.
    """

    def gradient(parameter: nn.Parameter) -> Tensor:
        return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad

    return _arrays(model, scope, gradient)


def to_arrays(model: nn.Module, *, scope: str | None = None) -> dict[str, NDArray[Any]]:
    """Values in the names and shapes of the variables, which `from_arrays` takes back; see `named_gradients`."""
    return _arrays(model, scope, lambda parameter: parameter.detach())


def assign(wanted: Iterable[Variable], arrays: Arrays) -> None:
    """Copy `arrays` into the parameters behind `wanted`, if each fits; else DataError naming what does not."""
    wanted = list(wanted)
    check_fit(wanted, arrays)
    given = {name.removeprefix(PREFIX): array for name, array in arrays.items()}
    with torch.no_grad():
        for variable in wanted:
            values = np.array(given[variable.name.removeprefix(PREFIX)])
            variable.view(variable.parameter).copy_(torch.from_numpy(values))


def check_fit(wanted: Iterable[Variable], arrays: Arrays) -> None:
    """DataError naming what is missing, unknown or of another shape in `arrays`; the parameters may be on `meta`."""
    known = {variable.name.removeprefix(PREFIX): variable for variable in wanted}
    given = {name.removeprefix(PREFIX): np.asarray(array) for name, array in arrays.items()}
    problems = {
        "missing": sorted(known.keys() - given.keys()),
        "unknown": sorted(given.keys() - known.keys()),
        "of the wrong shape": [
            f"{name} {given[name].shape} instead of {known[name].shape}"
            for name in sorted(known.keys() & given.keys())
            if given[name].shape != known[name].shape
        ],
    }
    found = [f"{kind}: {_some(names)}" for kind, names in problems.items() if names]
    if found:
        raise DataError(f"variables do not fit the hyper-parameters; {'; '.join(found)}")


def _some(names: Sequence[str]) -> str:
    """The first of `names`, and how many more there are; a wrong architecture misses all."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def check_one_unit(model: nn.Module) -> None:
    """Raise ConfigError for a model whose encoder has another unit than its decoder, of which Zero has none."""
    if not isinstance(model, Seq2Seq):
        return
    encoder, decoder = (
        next((unit_name(cell) for cell in part.modules() if isinstance(cell, Cell)), None)
        for part in (model.encoder, model.decoder)
    )
    if encoder != decoder:
        raise ConfigError(f"Zero has one `cell`; this model has encoder {encoder} and decoder {decoder}")


def _arrays(model: nn.Module, scope: str | None, of: Callable[[nn.Parameter], Tensor]) -> dict[str, NDArray[Any]]:
    check_one_unit(model)
    below = getattr(model, "variable_scope", "") if scope is None else scope
    return {
        variable.name: variable.view(of(variable.parameter)).cpu().numpy().copy()
        for variable in named_variables(model, below)
    }


def model_config(config: Mapping[str, Any], variables: Arrays) -> ModelConfig:
    """The section `model` that says the same as Zero's hyper-parameters."""
    missing = [key for key in ("model_name", "cell", "hidden_size", "embed_size") if key not in config]
    if missing:
        raise ConfigError(f"hyper-parameters are missing: {', '.join(missing)}")
    name = config["model_name"]
    if name not in _ARCHITECTURES:
        raise ConfigError(refused("model_name", name, tuple(_ARCHITECTURES), problem="has no counterpart here"))
    tie_all = _chosen(config, variables, "shared_source_target_embedding", r"/embedding$")
    tie_none = not config.get("shared_target_softmax_embedding", "/softmax_embedding" not in "".join(variables))
    return ModelConfig(
        architecture=name,
        cell=config["cell"],
        hidden_size=config["hidden_size"],
        embedding_size=config["embed_size"],
        layer_norm=_chosen(config, variables, "layer_norm", r"/ln_0_0/"),
        tie_embeddings="all" if tie_all else "none" if tie_none else "target_softmax",
        layer_norm_scale=1.0,
        dropout=float(config.get("dropout", 0.0)),
        **_ARCHITECTURES[name](config, variables),
    )


def _chosen(config: Mapping[str, Any], variables: Arrays, key: str, pattern: str) -> bool:
    """A switch: as configured, else whether there are variables that it makes."""
    return bool(config.get(key, any(re.search(pattern, variable) for variable in variables)))


def _rnnsearch(config: Mapping[str, Any], variables: Arrays) -> dict[str, Any]:
    """The keys of `rnnsearch` alone; each of the following functions does this for an architecture."""
    return {"context_aware_encoder": _chosen(config, variables, "caencoder", r"/backward/fetch_state_\w+_lower/")}


def _rnnsearch_deepatt(config: Mapping[str, Any], variables: Arrays) -> dict[str, Any]:
    # Zero's encoder has a layer_0 besides those that it counts.
    return {
        "encoder_layers": _number(config, "num_encoder_layer", _last(variables, r"/encoder/layer_(\d+)/")),
        "decoder_layers": _number(config, "num_decoder_layer", _last(variables, r"/deep_attention_(\d+)/") + 1),
        "attention_heads": _heads(config, variables),
    }


def _deepnmt(config: Mapping[str, Any], variables: Arrays) -> dict[str, Any]:
    return _rnnsearch(config, variables) | {
        "encoder_layers": _number(config, "num_encoder_layer", _last(variables, r"/encoder/layer_(\d+)/") + 1),
        "decoder_layers": _number(config, "num_decoder_layer", _last(variables, r"/decoder/layer_(\d+)/") + 1),
        "deep_attention": _chosen(config, variables, "use_deep_att", r"/decoder/layer_[1-9]\d*/context_att/"),
        "deep_output": _chosen(config, variables, "dl4mt_redict", r"^(var/)?[^/]+/ff/"),
        "attention_heads": _heads(config, variables),
    }


_ARCHITECTURES: dict[str, Callable[[Mapping[str, Any], Arrays], dict[str, Any]]] = {
    "deepnmt": _deepnmt,
    "rnnsearch": _rnnsearch,
    "rnnsearch_deepatt": _rnnsearch_deepatt,
}


def _cell_maker(config: Mapping[str, Any]) -> MakeCell:
    unit, hidden_size, normalize = CELLS.get(config["cell"]), config["H"], bool(config["layer_norm"])
    return lambda input_size: unit(input_size, hidden_size, layer_norm=normalize)


def _scope(config: Mapping[str, Any], variables: Arrays, *, default: str) -> str:
    """Prefix of the variables: as configured, else what they all have in common, else Zero's default."""
    marked = bool(variables) and all(name.startswith(PREFIX) for name in variables)
    found = {name.removeprefix(PREFIX).partition("/")[0] for name in variables}
    scope = config.get("scope_name") or (found.pop() if len(found) == 1 else default)
    return f"{PREFIX if marked else ''}{scope}"


def _number(config: Mapping[str, Any], key: str, found: int) -> int:
    """How many there are: as configured, else as many as there are variables for, at least one."""
    return int(config.get(key) or max(found, 1))


def _last(variables: Arrays, pattern: str) -> int:
    """The largest number that the group of `pattern` finds in the names of variables."""
    return max((int(match[1]) for name in variables if (match := re.search(pattern, name))), default=0)


def _heads(config: Mapping[str, Any], variables: Arrays) -> int:
    """Attention heads: as configured, else from the width that one of them has."""
    widths = [np.shape(array)[0] for name, array in variables.items() if name.endswith("/feed_logits/W_0_0")]
    return int(config.get("num_heads") or (config["hidden_size"] // widths[0] if widths else 1))


def _table_rows(variables: Arrays, side: str) -> int:
    """Rows of the embedding table of one side."""
    for name, array in variables.items():
        if name.endswith((f"/{side}_embedding", "/embedding")):
            return int(np.shape(array)[0])
    raise ConfigError(f"hyper-parameters are missing: {side}_vocab_size")
