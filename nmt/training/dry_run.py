"""What a run would do, without a run: data, parameters by part, batches of an epoch, memory; nothing stays on disk."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from nmt.config.schema import Config
from nmt.errors import DataError
from nmt.files.new import temporary_directory
from nmt.kernel_check import choose_kernels, use_verified_kernels
from nmt.models import parameters_by_part
from nmt.models.base import loss_weights
from nmt.training.distributed import World
from nmt.training.memory import keeps_average, optimizer_moments
from nmt.training.precision import choose_precision
from nmt.training.task import MemorySample, Task, task_of


def dry_run(config: Config, *, device: torch.device) -> None:
    """Print on stdout the data and the model with which training would start.

    Missing texts are named first; the parameters follow if the options determine the vocabulary sizes.

    Raises:
        ConfigError: `kernels` is not possible here.
        DataError: texts or the shortlist are missing or cannot be used.
    """
    choose_kernels(config.kernels, device=device)
    # A cache elsewhere would not be deleted, so it is not used.
    task = task_of(dataclasses.replace(config, data=dataclasses.replace(config.data, cache_dir=None)))
    if (missing := task.missing_files()) and (planned := task.planned_model()) is not None:
        for key, message in missing:
            print(f"nmt-train: {key}: {message}", file=sys.stderr, flush=True)
        print_parameters(task, planned)
        raise DataError("without these files only the parameters are known")
    with temporary_directory("nmt-dry-run") as folder:
        data = task.prepare(folder)
        task.build_validator(data, device=device, world=World(device))  # a file of the search may prevent it
        # No optimizer: making one has torch leave a directory of its own in the temporary folder.
        model = task.build_model(data.tokenizer, device=device)
        use_verified_kernels([model], device=device, purpose="training", check=False)
        precision = choose_precision(config.training.precision, device=device)
        print(f"device: {device}; {precision}")
        print_parameters(task, model)
        batches = task.build_batches(data)
        for line in task.data_lines(data, batches):
            print(line)
        print(task.describe_epoch(batches))
        for doubt in task.doubts(data, batches):
            print(f"warning: {doubt}")
        with precision.autocast():
            activations = activation_bytes(task, model, task.memory_sample(data, batches), device=device)
        moments = optimizer_moments(config.training)
        print_memory(model, activations=activations, moments=moments, ema=keeps_average(config.training))
        del data  # its files are mapped, and the folder is deleted now


def print_parameters(task: Task, model: nn.Module) -> None:
    """Trainable values by part and in all."""
    parts = parameters_by_part(model)
    print(task.describe_vocabularies(model))
    print("parameters:")
    for part, count in parts.items():
        print(f"  {part:<24} {count:>14,}")
    print(f"  {'total':<24} {sum(weight.numel() for weight in model.parameters()):>14,}")


def print_memory(model: nn.Module, *, activations: int, moments: int, ema: bool) -> None:
    """An estimate of what training needs."""
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    copies = 2 + moments + ema
    kept = {0: "", 1: ", one moment", 2: ", two moments"}.get(moments, f", {moments} moments")
    optimizer = f"weights, gradients{kept}" + (", moving average" if ema else "")
    total = copies * weights + activations
    print(
        f"memory, estimated: {mib(total)} = {mib(copies * weights)} ({optimizer}) "
        f"+ {mib(activations)} (activations of the largest batch); memory of PyTorch itself is not included"
    )


def mib(count: int) -> str:
    """Bytes for people."""
    return f"{count / 2**20:,.0f} MiB"


def activation_bytes(task: Task, model: nn.Module, sample: MemorySample, *, device: torch.device) -> int:
    """Bytes that autograd keeps between the forward and the backward pass of a batch.

    Measured on a sample and scaled to all rows of the batch, with whose number what is kept grows.
    """
    batch = sample.batch.to(device)
    weights = loss_weights(batch.target, normalization="token")
    with SavedBytes(model).counting() as saved:
        total = task.build_loss()(task.training_batch(model, batch, weights)).total
    del total
    return saved.total * sample.rows // len(batch.target)


@dataclass
class SavedBytes:
    """Counts what autograd saves, each storage once, weights not counted."""

    model: nn.Module
    total: int = 0
    _seen: set[int] = field(default_factory=set)

    def _pack(self, saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self.total += storage.nbytes()
        return saved

    @contextmanager
    def counting(self) -> Iterator[SavedBytes]:
        """Count while the block runs."""
        self._seen = {weight.untyped_storage().data_ptr() for weight in self.model.parameters()}
        with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda kept: kept):
            yield self
