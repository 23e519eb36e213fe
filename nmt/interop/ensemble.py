"""Loading several models that are to translate or score together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from nmt.data import Tokenizer
from nmt.errors import CheckpointError
from nmt.interop.device import choose_device
from nmt.interop.model_dir import TRANSLATION, LoadedModel, choose_kernels_of, find_model, read_model
from nmt.kernel_check import Purpose


def load_models(
    paths: Sequence[str | Path],
    *,
    plugins: Sequence[str] = (),
    device: str | torch.device = "cpu",
    checkpoint: str | int = "best",
    purpose: Purpose = "search",
    task: str = TRANSLATION,
) -> list[LoadedModel]:
    """Load the model in each of `paths`, at least one; the same model may occur more than once.

    The arguments are those of `load_model`; `checkpoint` is chosen from each run. Kernels are chosen by the
    configuration of the first model.

    Raises:
        CheckpointError: a model cannot be loaded, or its vocabularies differ from the first model's.
        ConfigError: a saved configuration cannot be used.
    """
    for path in paths:  # before the first is loaded, which takes time
        find_model(path, checkpoint=checkpoint)
    place, models = choose_device(device), list[LoadedModel]()
    for path in paths:
        models.append(read_model(path, plugins=plugins, device=place, checkpoint=checkpoint, task=task))
        if difference := tokenizer_difference(models[0].tokenizer, models[-1].tokenizer):
            raise CheckpointError(f"{models[0].path} and {models[-1].path} cannot be one ensemble: {difference}")
    choose_kernels_of(models, device=place, purpose=purpose)
    return models


def tokenizer_difference(first: Tokenizer, second: Tokenizer) -> str | None:
    """What keeps models with these tokenizers from having the same inputs and outputs, in words; None if nothing."""
    if first.fingerprint() == second.fingerprint():
        return None
    sides = {
        "target": [tokenizer.target_tokens(range(tokenizer.target_size)) for tokenizer in (first, second)],
        "source": [tokenizer.source_tokens(range(tokenizer.source_size)) for tokenizer in (first, second)],
    }
    for side, (ours, theirs) in sides.items():
        if len(ours) != len(theirs):
            return f"their {side} vocabularies have {len(ours)} and {len(theirs)} entries"
        for token, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            if our != their:
                return f"their {side} vocabularies differ: id {token} is {our!r} and {their!r}"
    return "their vocabularies are equal, but they split text into tokens differently"


def names_of(models: Sequence[LoadedModel]) -> str:
    """The directories of their weights, for a message."""
    paths = ", ".join(str(model.path) for model in models)
    return paths if len(models) == 1 else f"an ensemble of {len(models)} models ({paths})"
