"""The labels that a tagger gives to sentences, in batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from nmt.data import batch_lines
from nmt.tagging.batches import sentences_of, tag_batch
from nmt.tagging.features import Features, TaggedCorpus
from nmt.tagging.model import FIRST_LABEL, Tagger
from nmt.training.distributed import World, interleave
from nmt.training.validation import in_all_processes

BATCH_TOKENS = 4096
"""Cells of a batch."""


def _nothing(sentences: int) -> None:
    """Nobody wants to know."""


@torch.inference_mode()
def predict(
    model: Tagger,
    features: Features,
    *,
    device: torch.device,
    rows: Sequence[int] | None = None,
    on_batch: Callable[[int], object] = _nothing,
) -> list[list[int]]:
    """Ids of the labels of each sentence of `rows` (default: all), in order; empty for a sentence without a token.

    `on_batch` is called before each batch with the number of its sentences, and may raise to end the work.
    """
    wanted = np.arange(len(features.lengths)) if rows is None else np.asarray(rows, np.int64)
    found: list[list[int]] = [[] for _ in wanted]
    lengths = features.lengths[wanted]
    for places in batch_lines(lengths.tolist(), batch_tokens=BATCH_TOKENS):
        on_batch(len(places))
        filled = [place for place in places if lengths[place]]
        if not filled:
            continue
        labels = model.best(sentences_of(features, wanted[filled]).to(device)).tolist()
        for place, own in zip(filled, labels, strict=True):
            found[place] = own[: lengths[place]]
    return found


class Measured(NamedTuple):
    """A model's results for a text with labels."""

    loss: float
    """In nats a token, of sentences whose labels the model knows; NaN where there are none."""
    labels: list[list[int]]
    """Predicted labels of each sentence."""


@torch.inference_mode()
def measure(
    model: Tagger, corpus: TaggedCorpus, *, device: torch.device, world: World, check: Callable[[], object]
) -> Measured:
    """Losses and labels; several processes share the sentences, and all get the same result.

    Raises InterruptedValidationError in all of them when `check` raises it in one.
    """
    lengths, known = corpus.source_lengths, _measurable(corpus)
    batches = batch_lines(lengths[known].tolist(), batch_tokens=BATCH_TOKENS)

    def mine() -> tuple[list[float], list[list[int]]]:
        losses = []
        for places in batches[world.rank :: world.size]:
            check()
            batch = tag_batch(corpus, known[places]).to(device)
            losses.append(float(model.losses(batch.source, batch.target).double().sum()))
        rows = range(world.rank, len(corpus), world.size)
        labels = predict(model, corpus.features, device=device, rows=rows, on_batch=lambda _: check())
        return losses, labels

    parts = in_all_processes(world, mine)
    total, tokens = sum(interleave([losses for losses, _ in parts])), int(lengths[known].sum())
    return Measured(total / tokens if tokens else float("nan"), interleave([labels for _, labels in parts]))


def _with_unknown_labels(corpus: TaggedCorpus) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which sentences have a label that the training text has not."""
    unknown = np.append(0, np.cumsum(corpus.labels.ids < FIRST_LABEL))
    ends = corpus.labels.offsets
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = unknown[ends[1:]] > unknown[ends[:-1]]
    return found


def _measurable(corpus: TaggedCorpus) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The sentences that have a loss."""
    return np.flatnonzero((corpus.source_lengths > 0) & ~_with_unknown_labels(corpus))


def has_loss(corpus: TaggedCorpus) -> bool:
    """Whether any sentence has one."""
    return len(_measurable(corpus)) > 0


def unknown_labels(corpus: TaggedCorpus) -> int:
    """How many sentences have a label that the training text has not."""
    return int(_with_unknown_labels(corpus).sum())
