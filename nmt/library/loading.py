"""`nmt.load`: its arguments are checked, and the settings made that must come before torch."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from nmt.errors import CheckpointError, ConfigError, missing, refused, say_once, shown
from nmt.interop.engine.opened import are_engine_files
from nmt.library.translator import Translator, is_there
from nmt.light.options import OPTIONS
from nmt.light.pretrained import or_named
from nmt.system import (
    CACHES,
    SEARCH_CACHE,
    available_cores,
    expanded,
    is_prepared,
    keep_large_blocks,
    keep_more_kernels,
    prepare_environment,
    usable_cores,
)


def several(value: Any) -> list[object]:
    """One path, or a list of paths, as a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


def path_of(value: object, name: str) -> str:
    """A path as text, with the home directory in place of `~`; `name` is the argument's."""
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} must be a path or a list of paths, not {type(value).__name__} {shown(value)}")
    try:
        return expanded(os.fsdecode(value))
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None


SPINNING = (
    "torch was imported before nmt.load, so its threads spin while they wait: a sentence takes at least 2.6 times as "
    "long next to a busy process, but 33 instead of 65 ms on an idle machine (docs/benchmarks/translation.md). Call "
    "nmt.load first, or set GOMP_SPINCOUNT=1000 OMP_WAIT_POLICY=PASSIVE for the program"
)


def before_torch() -> None:
    """Set environment variables and import torch; if torch is already imported, change nothing."""
    if "torch" in sys.modules:
        return
    prepare_environment()
    keep_more_kernels()
    keep_large_blocks()
    import torch  # noqa: F401


def prepare_search(device: str) -> None:
    """The settings for a model on `device`; if torch was imported without them, those that it still takes.

    These are the sizes of the kernel caches, the allocator, and the threads where a container limits CPU time. How
    threads wait is read once, at the import; a line says so, once.
    """
    before_torch()
    if is_prepared():
        return
    import torch

    if device.startswith("cuda") or (device == "auto" and torch.cuda.is_available()):
        return
    for name in CACHES:
        os.environ.setdefault(name, SEARCH_CACHE)
    keep_large_blocks()
    cores = usable_cores()
    if "OMP_NUM_THREADS" not in os.environ and cores < min(available_cores(), torch.get_num_threads()):
        torch.set_num_threads(cores)
    say_once(__name__, SPINNING)


_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")


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
            without torch. `en-de` and `de-en` are such files, which come with nmt (docs/pretrained.md); a path of
            such a name comes first.
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
    if not several(path):
        raise ConfigError("path: no model is given")
    paths = [path_of(item, "path") for item in several(path)]
    if not _DEVICE.fullmatch(str(device)):
        raise ConfigError(refused("device", device, "auto, cpu, cuda, or cuda:N"))
    if precision not in OPTIONS["precision"].choices:
        raise ConfigError(refused("precision", precision, ", ".join(OPTIONS["precision"].choices)))
    arguments: dict[str, Any] = {"device": device, "precision": precision, "checkpoint": checkpoint}
    arguments["plugins"] = [path_of(plugin, "plugins") for plugin in several(plugins)]
    if worker is not None:
        say_once(__name__, "worker: has no effect any more, because every model computes in the process that loads it")
    if are_engine_files(paths):
        from nmt.library.light import EngineFiles

        return EngineFiles(paths, **arguments)
    if not is_there(f"{__package__}.engine"):  # in nmt-light
        problem = "is no file for the engine (.nmt), and others need the package nmt-recurrent"
        raise CheckpointError(f"{paths[0]}: {problem}" if os.path.exists(paths[0]) else missing(paths[0]) + or_named())
    prepare_search(device)
    from nmt.library.engine import Engine

    return Engine(paths, **arguments)
