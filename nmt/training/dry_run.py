"""What a run would do, without a run: data, parameters by part, batches of an epoch, memory; nothing stays on disk."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nmt.config.schema import Config
from nmt.data import BatchSampler, collate, planned_sizes
from nmt.data.batching import Pairs
from nmt.data.prepare import prepare
from nmt.data.sampling import Rows
from nmt.errors import DataError, counted
from nmt.kernel_check import choose_kernels, use_verified_kernels
from nmt.models import build_model, parameters_by_part
from nmt.models.base import Seq2Seq
from nmt.search.shortlist import load_shortlist
from nmt.training.doubts import about_the_data
from nmt.training.losses import Loss, TrainingBatch
from nmt.training.memory import optimizer_moments
from nmt.training.precision import choose_precision
from nmt.training.setup import build_batches, build_network, build_sampler, build_training_loss, describe_sampling

SAMPLE_SENTENCES = 2
"""Sentences of the largest batch on which the memory of a whole one is measured."""
LOOKED_AT = 2000
"""Batches among which the largest is looked for."""


def dry_run(config: Config, *, device: torch.device) -> None:
    """Print on stdout what training would start with.

    With the texts missing, parameters are still printed if the options tell the vocabulary sizes.

    Raises:
        ConfigError: `kernels` cannot be had.
        DataError: texts or the shortlist are missing or cannot be used.
    """
    choose_kernels(config.kernels, device=device)
    # A cache elsewhere would stay behind, so it is not used either.
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, cache_dir=None))
    with tempfile.TemporaryDirectory(prefix="nmt-dry-run-") as folder:
        try:
            data = prepare(config, Path(folder))
        except DataError:
            sizes = planned_sizes(config)
            if sizes is not None:
                with torch.device("meta"):
                    print_parameters(build_model(config.model, *sizes))
            raise
        if config.decoding.shortlist is not None:
            load_shortlist(config.decoding.shortlist, data.tokenizer)  # the validations of a training read it
        # No optimizer: making one has torch leave a directory of its own in the temporary folder.
        model = build_network(config, data.tokenizer, device=device)
        use_verified_kernels([model], device=device, purpose="training", check=False)
        precision = choose_precision(config.training.precision, device=device)
        print(f"device: {device}; {precision}")
        print_parameters(model)
        stream = build_batches(config, data.train, sides=data.sides)
        sampler = build_sampler(config, data.train, sides=data.sides)
        for line in [*data.report_lines(), *describe_sampling(config, data.train), *stream.describe_anew()]:
            print(line)
        print(
            f"batches an epoch: {sampler.estimate} for {counted(stream.updates_per_epoch(), 'update')}, "
            f"{stream.padding_share():.1%} padding"
        )
        sizes = data.tokenizer.source_size, data.tokenizer.target_size
        per_epoch = stream.updates_per_epoch()
        for doubt in about_the_data(config, data.train, sizes=sizes, updates_per_epoch=per_epoch):
            print(f"warning: {doubt}")
        pairs, largest = largest_batch(data.train, sampler)
        with precision.autocast():
            loss = build_training_loss(config.training)
            activations = activation_bytes(model, loss, pairs, largest, device=device)
        moments = optimizer_moments(config.training)
        print_memory(model, activations=activations, moments=moments, ema=config.training.ema_decay > 0)
        del data  # its files are mapped, and the folder goes now


def print_parameters(model: Seq2Seq) -> None:
    """Trainable values by part and in all."""
    parts = parameters_by_part(model)
    print(f"vocabularies: source {model.source_vocab_size:,}, target {model.target_vocab_size:,}")
    print("parameters:")
    for part, count in parts.items():
        print(f"  {part:<24} {count:>14,}")
    print(f"  {'total':<24} {sum(weight.numel() for weight in model.parameters()):>14,}")


def print_memory(model: Seq2Seq, *, activations: int, moments: int, ema: bool) -> None:
    """An estimate of what training needs."""
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    copies = 2 + moments + ema
    kept = {0: "", 1: ", one moment", 2: ", two moments"}.get(moments, f", {moments} moments")
    optimizer = f"weights, gradients{kept}" + (", moving average" if ema else "")
    total = copies * weights + activations
    print(
        f"memory, estimated: {mib(total)} = {mib(copies * weights)} ({optimizer}) "
        f"+ {mib(activations)} (activations of the largest batch); PyTorch itself comes on top"
    )


def mib(count: int) -> str:
    """Bytes for people."""
    return f"{count / 2**20:,.0f} MiB"


def largest_batch(corpus: Pairs, sampler: BatchSampler) -> tuple[Pairs, Rows]:
    """The batch whose attention, sentences x source x target length, is the largest of the first LOOKED_AT.

    With it the pairs that it is of, which are those of the corpus unless they are split anew.
    """

    def cost(batch: tuple[Pairs, Rows]) -> int:
        pairs, rows = batch
        source, target = pairs.lengths(rows)
        return len(rows) * int(source.max()) * int(target.max())

    pools = (sampler.pool(0, number) for number in range(sampler.pools))
    batches = ((pool.drawn or corpus, rows) for pool in pools for rows in pool.batches)
    return max(islice(batches, LOOKED_AT), key=cost)


def activation_bytes(model: Seq2Seq, loss: Loss, pairs: Pairs, rows: Rows, *, device: torch.device) -> int:
    """Bytes that autograd keeps between the forward and the backward pass of a batch.

    Measured on its longest sentences and scaled to all of them: what is kept is in proportion to
    the number of sentences, but not to their length, because attention keeps source x target.
    """
    cost = np.maximum(*pairs.lengths(rows))
    chosen = rows[np.argsort(-cost, kind="stable")[:SAMPLE_SENTENCES]]
    batch = collate(pairs, chosen)
    with SavedBytes(model).counting() as saved:
        total = loss(TrainingBatch.of(model, batch.source.to(device), batch.target.to(device))).total
    del total
    return saved.total * len(rows) // len(chosen)


@dataclass
class SavedBytes:
    """Counts what autograd saves, each storage once, weights not counted."""

    model: Seq2Seq
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
