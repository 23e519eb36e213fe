"""Whether a model fits into the memory of this machine, checked before anything is allocated."""

from __future__ import annotations

import dataclasses

import torch

from nmt.config import component_options
from nmt.config.schema import Config, TrainingConfig
from nmt.errors import ConfigError
from nmt.files.safe import memory
from nmt.models import build_model
from nmt.registry import MODELS, OPTIMIZERS

LAYERS = 10
"""Layers of each side that are counted; a model that is too large with so many is so with more."""
SMALL = 1 << 24
"""A model with fewer weights, roughly, fits anywhere and is not counted."""
BYTES = 4
"""Bytes of a weight, which is stored in fp32 whatever the computation uses."""


def keeps_average(training: TrainingConfig) -> bool:
    """Whether an average of the weights is kept in addition."""
    return training.ema_decay > 0 or training.average_after is not None


def optimizer_moments(training: TrainingConfig) -> int:
    """Numbers that the optimizer keeps for each weight; of a plugin's that does not say so, 2, as of Adam."""
    member = OPTIMIZERS.get(training.optimizer)
    counted = getattr(member, "moments", None)
    return 2 if counted is None else int(counted(component_options(member, training.optimizer_options)))


def too_large(config: Config, sizes: tuple[int, int], *, device: torch.device, training: bool = True) -> str | None:
    """The problem of a model that cannot fit, in words; None if it fits, or if a plugin builds it.

    `sizes` are the vocabulary sizes; `training` also counts gradients, the optimizer's state and the moving average.
    Activations are not counted, so nothing is refused that could run.
    """
    model = config.model
    outline = MODELS.get(model.architecture).outline(model)
    width = max(outline.width, model.encoder_hidden_size or 0, model.embedding_size)
    roughly = width * (width + sum(sizes)) * (outline.encoder_layers + outline.decoder_layers)
    if config.plugins or roughly < SMALL:
        return None
    layers = {name: min(getattr(model, name), LAYERS) for name in ("encoder_layers", "decoder_layers")}
    with torch.device("meta"):
        parameters = build_model(dataclasses.replace(model, **layers), *sizes).parameters()
    weights = sum(weight.numel() for weight in parameters)
    copies = 2 + optimizer_moments(config.training) + keeps_average(config.training) if training else 1
    there, needed = memory_of(device), BYTES * copies * weights
    if needed <= there:
        return None
    what = "weights, gradients and the optimizer's state" if training else "weights"
    where = "this GPU" if device.type == "cuda" else "this machine"
    more = " or more" if layers != {name: getattr(model, name) for name in layers} else ""
    return (
        f"{weights:,} parameters{more} need {needed / 1e9:,.0f} GB ({what}); {where} has {there / 1e9:,.0f} GB. "
        "Smaller: hidden_size, embedding_size, layers."
    )


def check_size(config: Config, sizes: tuple[int, int], *, device: torch.device) -> None:
    """Raise ConfigError for a model whose weights alone cannot fit."""
    message = too_large(config, sizes, device=device, training=False)
    if message is not None:
        raise ConfigError(f"model: {message}")


def memory_of(device: torch.device) -> int:
    """Bytes of the whole GPU, or of the whole machine."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return memory()
