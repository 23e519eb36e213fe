"""What nmt-train would do: data, parameters, batches and memory; nothing is trained."""

from __future__ import annotations

import dataclasses
import sys

import torch
from torch import Tensor, nn

from nmt.config.schema import Config
from nmt.data.prepare import planned_sizes
from nmt.errors import DataError
from nmt.files import temporary_directory
from nmt.kernel_check import choose_kernels, use_verified_kernels
from nmt.models import build_model, freeze, parameters_by_part
from nmt.models.base import loss_weights
from nmt.registry import DRY_RUNS
from nmt.training.distributed import World
from nmt.training.preflight import kept_by_optimizer
from nmt.training.task import MemorySample, Task, task_of
from nmt.training.update import choose_precision


@DRY_RUNS.register("printed")
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
    if (absent := task.missing_files()) and (sizes := planned_sizes(config)) is not None:
        for key, message in absent:
            print(f"nmt-train: {key}: {message}", file=sys.stderr, flush=True)
        with torch.device("meta"):
            print_parameters(task, build_model(config.model, *sizes))
        raise DataError("without these files only the parameters are known")
    with temporary_directory("nmt-dry-run") as folder:
        data = task.prepare(folder)
        task.build_validator(data, device=device, world=World(device))  # a file of the search may prevent it
        # No optimizer: making one has torch leave a directory of its own in the temporary folder.
        model = task.build_model(data.tokenizer, device=device)
        freeze(model, config.training.freeze)
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
        moments, ema = kept_by_optimizer(config.training)
        print_memory(model, activations=activations, moments=moments, ema=ema)
        del data  # its files are mapped, and the folder is deleted now


def print_parameters(task: Task, model: nn.Module) -> None:
    """Values by part and in all."""
    print(task.describe_vocabularies(model))
    print("parameters:")
    for part, count in parameters_by_part(model).items():
        print(f"  {part:<24} {count:>14,}")
    print(f"  {'total':<24} {sum(weight.numel() for weight in model.parameters()):>14,}")


def print_memory(model: nn.Module, *, activations: int, moments: int, ema: bool) -> None:
    """An estimate of what training needs; frozen weights have neither gradients nor moments."""
    sizes_of = [(weight.numel() * weight.element_size(), weight.requires_grad) for weight in model.parameters()]
    of_weights = sum(size * (1 + ema + is_trained * (1 + moments)) for size, is_trained in sizes_of)
    more = {0: "", 1: ", one moment", 2: ", two moments"}.get(moments, f", {moments} moments")
    optimizer = f"weights, gradients{more}" + (", moving average" if ema else "")
    total, kept, batch = (f"{size / 2**20:,.0f} MiB" for size in (of_weights + activations, of_weights, activations))
    print(
        f"memory, estimated: {total} = {kept} ({optimizer}) "
        f"+ {batch} (activations of the largest batch); memory of PyTorch itself is not included"
    )


def activation_bytes(task: Task, model: nn.Module, sample: MemorySample, *, device: torch.device) -> int:
    """Bytes that autograd keeps between the forward and the backward pass of a batch.

    Each storage counts once, weights do not. Measured on a sample and scaled to all rows of the batch, with whose
    number what is kept grows.
    """
    batch = sample.batch.to(device)
    weights = loss_weights(batch.target, normalization="token")
    sizes: dict[int, int] = {}
    parameters = {weight.untyped_storage().data_ptr() for weight in model.parameters()}

    def count(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in parameters:
            sizes.setdefault(storage.data_ptr(), storage.nbytes())  # the first at an address counts
        return saved

    with torch.autograd.graph.saved_tensors_hooks(count, lambda kept: kept):
        total = task.build_loss()(task.training_batch(model, batch, weights)).total
    del total
    return sum(sizes.values()) * sample.rows // len(batch.target)
