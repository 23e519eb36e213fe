"""How many weights a model has."""

from __future__ import annotations

from typing import cast

import torch

from nmt.config.schema import Config, ModelConfig
from nmt.models import build_model, parameters_by_part


def count_parameters(config: Config | ModelConfig, source_vocab_size: int, target_vocab_size: int) -> int:
    """Trainable values of the model that `config`, or its section `model`, describes; no memory is allocated."""
    section = cast("ModelConfig", getattr(config, "model", config))
    with torch.device("meta"):
        model = build_model(section, source_vocab_size, target_vocab_size)
    return sum(parameters_by_part(model).values())
