"""Models and their cells from a configuration; how many parameters there are."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.utils._python_dispatch import TorchDispatchMode

from nmt.cells import Cell
from nmt.errors import ConfigError, refused
from nmt.models.encoder import MakeCell
from nmt.models.parts import LayerNorm
from nmt.registry import CELLS, INITIALIZERS, MODELS

if TYPE_CHECKING:
    from nmt.cells import Initializer
    from nmt.config.schema import ModelConfig, Side
    from nmt.models.base import Seq2Seq


def within(name: str, value: int | None, least: int, most: int) -> None:
    """Raise ValueError for an option `name` that is neither from `least` to `most` nor None."""
    if value is not None and not least <= value <= most:
        raise ValueError(f"{name}: must be {least} to {most}, not {value}")


def check_dropouts(options: Any) -> None:
    """Raise ValueError for the first option of a dataclass whose name ends with `dropout` and that is no such share."""
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name.endswith("dropout") and value is not None and not 0 <= value < 1:
            raise ValueError(f"{field.name}: must be at least 0 and less than 1, not {value:g}")


def cell_maker(
    config: ModelConfig, side: Side, *, width: int | None = None, layer_norm: bool | None = None
) -> MakeCell:
    """A function from input width to a new cell of the unit and width configured for encoder or decoder.

    `width` and `layer_norm` stand in for those of the section. The options have been checked against the unit's Options
    when the configuration was loaded.
    """
    chosen = config.unit_of(side)
    unit = CELLS.get(chosen.name)
    hidden_size = width or (side == "encoder" and config.encoder_hidden_size) or config.hidden_size
    normalize = config.layer_norm if layer_norm is None else layer_norm
    options = unit.Options(**chosen.options)

    def make(input_size: int) -> Cell[Any]:
        cell: Cell[Any] = unit(input_size, hidden_size=hidden_size, layer_norm=normalize, options=options)
        cell.recurrent_dropout = config.recurrent_dropout
        return cell

    return make


def check_recurrent_dropout(config: ModelConfig) -> list[tuple[str, str]]:
    """A problem, as (key, message), for each unit without recurrent dropout that should have it."""
    return units_without_dropout(config, {config.unit_of("encoder").name, config.unit_of("decoder").name})


def units_without_dropout(config: ModelConfig, names: Collection[str]) -> list[tuple[str, str]]:
    """The same of the units with these names, known or not."""
    if not config.recurrent_dropout:
        return []
    problems = []
    for name in [name for name in CELLS.names() if name in names]:
        unit = CELLS.get(name)  # that of a plugin need not be a `Cell`
        if getattr(unit, "dropped_step", Cell.dropped_step) is Cell.dropped_step:
            reason = getattr(unit, "without_dropout", Cell.without_dropout)
            problems.append(("recurrent_dropout", f"the unit '{name}' has none: {reason}"))
    return problems


def initializer(config: ModelConfig) -> Initializer:
    """The configured distribution of initial weights; as a number it is `init_range`."""
    chosen = INITIALIZERS.get(config.initializer)
    built: Initializer = chosen(config.init_range, options=chosen.Options(**config.initializer_options))
    return built


def build_model(config: ModelConfig, source_vocab_size: int, target_vocab_size: int, *further_sizes: int) -> Seq2Seq:
    """The model that the section `model` of a configuration describes, freshly initialised.

    `further_sizes`: sizes of the tokenizer's other vocabularies.

    The same torch seed gives the same model. Raises ConfigError for an unknown architecture or unit, for sharing all
    tables between vocabularies of different sizes, and for a plugin's parameters without initial values.
    """
    architecture = MODELS.get(config.architecture)
    sizes = source_vocab_size, target_vocab_size, *further_sizes
    if architecture.__module__.partition(".")[0] == "nmt":
        model: Seq2Seq = architecture.from_config(config, *sizes)
    else:  # a plugin's model may leave a parameter without a value
        with Unfilled():
            model = architecture.from_config(config, *sizes)
        check_started(model)
    for module in model.modules():
        if isinstance(module, (LayerNorm, Cell)):
            for name, parameter in module.named_parameters(recurse=False):
                if name.rpartition("_")[2] == "scale":
                    nn.init.constant_(parameter, config.layer_norm_scale)
    return model


def parameters_by_part(model: nn.Module) -> dict[str, int]:
    """Values of each part of `model` that has any; a shared table is counted once."""
    counts = {name: sum(map(Tensor.numel, part.parameters())) for name, part in model.named_children()}
    return {name: count for name, count in counts.items() if count}


def freeze(model: nn.Module, names: Collection[str]) -> None:
    """Leave the weights of these parts of `model` out of training; ConfigError for names of no parts, or of all."""
    parts = list(parameters_by_part(model))
    for name in names:
        if name not in parts:
            raise ConfigError(refused("training.freeze", name, parts, problem="is no part of this model"))
        model.get_submodule(name).requires_grad_(False)
    if names and not any(weight.requires_grad for weight in model.parameters()):
        raise ConfigError(f"training.freeze: {', '.join(names)} are all parts of this model; leave one out")


_SHOWN = 3
"""Parameters named in a message."""


class Unfilled(TorchDispatchMode):
    """In its block memory that has not been written yet holds NaN, so that `check_started` finds it.

    Of this thread alone, and of floating-point tensors.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.overloadpacket in _EMPTY and isinstance(made, Tensor) and made.is_floating_point():
            made.fill_(torch.nan)
        return made


_EMPTY = frozenset(
    (torch.ops.aten.empty, torch.ops.aten.empty_like, torch.ops.aten.empty_strided, torch.ops.aten.new_empty)
)


def check_started(model: nn.Module) -> None:
    """Raise ConfigError, which names them, if parameters of a model that was made in `Unfilled` have no value yet."""
    names = []
    for name, parameter in model.named_parameters():
        is_lazy = isinstance(parameter, UninitializedParameter)  # its size is not known
        # one pass, which makes nothing
        if is_lazy or (not parameter.is_meta and bool(parameter.detach().sum().isnan())):
            names.append(name)
    if names:
        rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise ConfigError(
            f"model.architecture: parameters without a value to start from: {', '.join(names[:_SHOWN])}{rest}; give "
            "each one where it is made, or in reset_parameters of the module that has it"
        )
