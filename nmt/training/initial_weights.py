"""Weights to start a training from: fine-tuning, and distillation from a model's own translations."""

from __future__ import annotations

from pathlib import Path

from nmt.config import load_saved
from nmt.data import Tokenizer, load_tokenizer
from nmt.errors import CheckpointError, ConfigError
from nmt.interop import run_layout
from nmt.interop.exported import check_trainable
from nmt.interop.finite import check_finite
from nmt.interop.model_dir import check_weights, config_file, find_model
from nmt.interop.weights_file import read_shapes, read_weights
from nmt.models.base import Seq2Seq

KEY = "training.init_from"


def find_initial_weights(path: str) -> Path:
    """The directory whose weights `training.init_from` means: of a run its best checkpoint. ConfigError for none."""
    try:
        directory = find_model(path)
        check_trainable(directory)
        return directory
    except CheckpointError as error:
        raise ConfigError(f"{KEY}: {error}") from error


def load_initial_weights(directory: Path, model: Seq2Seq, *, tokenizer: Tokenizer) -> None:
    """Give `model` the weights in `directory`.

    Raises ConfigError where that model has another tokenizer, so that its words are others, or other sizes, and
    CheckpointError where its files are damaged or hold NaN or infinite weights.
    """
    theirs = load_tokenizer(directory, load_saved(config_file(directory), ()))
    if theirs.fingerprint() != tokenizer.fingerprint():
        raise ConfigError(
            f"{KEY}: {directory} has another tokenizer than this run; "
            "name the files in its tokenizer directory in data.tokenizer_options"
        )
    file = directory / run_layout.WEIGHTS
    shapes = read_shapes(file)
    try:
        check_weights(model, shapes, file=file)  # before the rest is read, which can be much
    except CheckpointError as error:
        raise ConfigError(f"{KEY}: {error}") from error
    weights = read_weights(file)
    check_weights(model, weights, file=file)
    model.load_state_dict(weights)
    check_finite(model.state_dict(), file=file)
