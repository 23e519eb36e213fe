"""Averages the weights of several checkpoints of a run into a new model directory."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from nmt.data.saved_tokenizer import check_checksums, has_checksums, write_checksums
from nmt.errors import CheckpointError, counted, missing
from nmt.files import (
    LARGEST_CONFIG,
    LARGEST_RECORD,
    LARGEST_VOCABULARY,
    RefusedError,
    check_directory,
    check_readable,
    copy_folder,
    is_there,
    open_model_file,
    path_of,
    read_file,
    unreadable,
    write_new,
)
from nmt.interop import run_layout
from nmt.interop.export import check_output, whole_directory
from nmt.interop.run_layout import FACTS, find_facts
from nmt.interop.weights_file import check_finite, parsed, read_shapes, write_weights


def average_checkpoints(
    checkpoints: Sequence[Path], output: Path, *, run: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write the mean of the weights of `checkpoints` (directories of `run`) as model directory `output`.

    The directory holds everything that translation needs: model.safetensors, config.yaml and tokenizer/; it appears
    under its name only when it is complete. model.safetensors says in its metadata what it was made from, and
    `metadata`.

    Raises:
        CheckpointError: `output` exists and is not an empty directory, or a file is missing, damaged or of
            another model than the others.
    """
    check_output(output)
    weights = average_weights([path / run_layout.WEIGHTS for path in checkpoints])
    facts = {"format": "pt", "averaged": " ".join(path.name for path in checkpoints), **(metadata or {})}
    with whole_directory(output) as temporary:
        _copy_settings(checkpoints[-1], run, temporary)
        write_weights(temporary / run_layout.WEIGHTS, weights, metadata=facts)


def average_weights(files: Sequence[Path]) -> dict[str, Tensor]:
    """Mean of each tensor over safetensors files, summed in float64, in the type it is stored in.

    Tensors are read one by one, so that no more than the result is in memory. What is not floating point is
    taken from the last file. Raises CheckpointError for files that do not fit together and for NaN.
    """
    if not files:
        raise ValueError("nothing to average")
    for file in files:
        if not is_there(file):
            raise CheckpointError(missing(file))
        check_readable(file)
        read_shapes(file)  # which says what is wrong with a damaged one
    with contextlib.ExitStack() as stack:
        readers = [_opened(file, stack) for file in files]
        names = set(readers[0].keys())
        for file, reader in zip(files, readers, strict=True):
            if different := sorted(names.symmetric_difference(reader.keys())):
                shown = ", ".join(different[:5]) + (", ..." if len(different) > 5 else "")
                raise CheckpointError(f"{file}: another model than {files[0]}; not in both: {shown}")
        return {name: _mean(name, files, [reader.get_tensor(name) for reader in readers]) for name in sorted(names)}


def _opened(file: Path, stack: contextlib.ExitStack) -> Any:
    """A reader of a file of weights, closed by `stack`."""
    try:
        stream = stack.enter_context(open_model_file(file))
    except OSError as error:
        raise unreadable(file, error) from error
    return parsed(file, lambda: stack.enter_context(safe_open(path_of(stream), framework="pt")))


def chosen_checkpoints(run: Path, count: int, *, best: bool) -> list[Path]:
    """The newest `count` checkpoints of a run, or the best by validation, oldest first.

    Raises CheckpointError where there are fewer.
    """
    steps = run_layout.checkpoint_steps(run)
    if not steps:
        raise CheckpointError(f"{run}: not a run directory with checkpoints (checkpoints/step-N/{run_layout.WEIGHTS})")
    wanted = f"{run}: --{'best' if best else 'last'} {count}"
    if best:
        steps = run_layout.best_steps(run)
    if len(steps) < count:
        few = f"{len(steps)} validated checkpoints" if best else counted(len(steps), "checkpoint")
        there = f"; existing: {', '.join(f'step-{step}' for step in steps)}" if steps else ""
        key = "training.keep_best" if best else "training.keep_last"
        raise CheckpointError(f"{wanted}: only {few}; {key} sets how many are kept{there}")
    return [run_layout.step_dir(run, step) for step in sorted(steps[:count] if best else steps[-count:])]


def _mean(name: str, files: Sequence[Path], tensors: Sequence[Tensor]) -> Tensor:
    first = tensors[0]
    for file, tensor in zip(files, tensors, strict=True):
        if tensor.shape != first.shape or tensor.dtype != first.dtype:
            found = f"{name} is {tensor.dtype} {tuple(tensor.shape)}, in {files[0]} {first.dtype} {tuple(first.shape)}"
            raise CheckpointError(f"{file}: another model: {found}")
        check_finite({name: tensor}, file=file)
    if not first.is_floating_point():
        return tensors[-1]
    total = torch.zeros_like(first, dtype=torch.float64)
    for tensor in tensors:
        total += tensor
    return (total / len(tensors)).to(first.dtype)


def _copy_settings(checkpoint: Path, run: Path, target: Path) -> None:
    """Copy configuration, tokenizer and facts; the checkpoint's own configuration where it has one."""
    config = checkpoint / run_layout.CONFIG
    config = config if is_there(config) else run / run_layout.CONFIG
    tokenizer = run / run_layout.TOKENIZER
    for path in (config, tokenizer):
        if not is_there(path):
            raise CheckpointError(f"{path}: missing; without it the average could not translate")
    copy = target / run_layout.TOKENIZER
    facts = find_facts(checkpoint)
    try:
        write_new(target / run_layout.CONFIG, read_file(config, largest=LARGEST_CONFIG))
        if facts is not None:  # runs of older versions have none
            write_new(target / FACTS, read_file(facts, largest=LARGEST_RECORD))
        check_directory(tokenizer, within=run)
        check_checksums(tokenizer)
        copy_folder(tokenizer, copy, within=run, largest=LARGEST_VOCABULARY)
    except RefusedError as error:
        raise CheckpointError(f"{error.filename}: {error.strerror}") from error
    if not has_checksums(copy):
        write_checksums(copy)
