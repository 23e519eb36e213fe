"""Models from hyper-parameters and variables of the original Zero system; values and gradients in its names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nmt.cells import Cell
from nmt.config.schema import ModelConfig
from nmt.errors import ConfigError, DataError, refused
from nmt.models import Seq2Seq, build_model
from nmt.models.decoder import AttentionRNN
from nmt.models.encoder import MakeCell, OneToOneRNN
from nmt.registry import CELLS
from nmt.zero.names import Variable, unit_name
from nmt.zero.names import variables as named_variables

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
