"""`nmt.load`: its arguments are checked, and the settings made that must come before torch."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from nmt.errors import ConfigError, refused
from nmt.interop.engine.opened import are_engine_files
from nmt.library.environment import prepare_search, warn_once
from nmt.library.paths import path_of, several
from nmt.library.translator import Translator

_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
PRECISIONS = ("auto", "fp32", "bf16", "int8")


def load(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    device: str = "auto",
    precision: str = "auto",
    checkpoint: str | int = "best",
    plugins: Sequence[str | os.PathLike[str]] = (),
    worker: bool | None = None,
) -> Translator:
    """Load a model, or several as an ensemble whose probabilities are averaged.

    Args:
        path: a run directory, a checkpoint in it, or output of nmt-average, nmt-convert or nmt-export; a list of them
            is an ensemble. With a file for the engine (`model.nmt`), or a list of such files, the engine translates
            without torch. `en-de` is such a file, which comes with nmt (docs/pretrained.md); a path of that name comes
            first.
        device: `cpu`, `cuda`, `cuda:1`, ..., or `auto`, which takes a GPU if there is one.
        precision: number format of the search, `fp32`, `bf16`, `int8`, or `auto`: the value in the model's
            configuration, by default bf16 if the hardware computes in it, else fp32.
        checkpoint: the checkpoint to use of each run: `best`, `last`, or a step.
        plugins: Python files that register components the models need.
        worker: has no effect; before version 0.4.0 it chose whether a separate process computes.

    Raises:
        ConfigError: an argument, or a saved configuration, cannot be used.
        CheckpointError: a model cannot be loaded, or does not fit the first one of the ensemble.
    """
    arguments: dict[str, Any] = {
        "paths": _paths(path),
        "device": _one_of("device", device, _DEVICE.fullmatch(str(device)), "auto, cpu, cuda, or cuda:N"),
        "precision": _one_of("precision", precision, precision in PRECISIONS, ", ".join(PRECISIONS)),
        "checkpoint": checkpoint,
        "plugins": [path_of(plugin, "plugins") for plugin in several(plugins)],
    }
    if worker is not None:
        warn_once("worker: has no effect any more, because every model computes in the process that loads it")
    if are_engine_files(arguments["paths"]):
        from nmt.library.light import EngineFiles

        return Translator(EngineFiles(**arguments))
    prepare_search(device)
    from nmt.library.engine import Engine

    return Translator(Engine(**arguments))


def _paths(path: object) -> list[str]:
    if not several(path):
        raise ConfigError("path: no model is given")
    return [path_of(item, "path") for item in several(path)]


def _one_of(name: str, value: str, is_known: object, allowed: str) -> str:
    if not is_known:
        raise ConfigError(refused(name, value, allowed))
    return value
