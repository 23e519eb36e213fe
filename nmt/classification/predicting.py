"""The labels that a classifier gives to texts, in batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from nmt.classification.batches import text_batch
from nmt.classification.corpus import ClassifiedCorpus
from nmt.classification.model import FIRST_LABEL, Classifier
from nmt.data import batch_lines
from nmt.training.distributed import World, interleave
from nmt.training.validation import in_all_processes

BATCH_TOKENS = 4096
"""Cells of a batch, both texts counted as long as the longer one."""


def _nothing(texts: int) -> None:
    """Nobody wants to know."""


@torch.inference_mode()
def predict(
    model: Classifier,
    corpus: ClassifiedCorpus,
    *,
    device: torch.device,
    rows: Sequence[int] | None = None,
    batch_tokens: int = BATCH_TOKENS,
    on_batch: Callable[[int], object] = _nothing,
) -> NDArray[np.float64]:
    """Log-probabilities [N, K] of the labels of `rows`, by default of all, in order.

    `on_batch` is called before each batch with the number of its texts, and may raise to end the work.
    """
    wanted = np.arange(len(corpus)) if rows is None else np.asarray(rows, np.int64)
    lengths = np.maximum(corpus.source_lengths, corpus.target_lengths)[wanted]
    found = np.zeros((len(wanted), model.output.weights[0].size(0)))
    for places in batch_lines(lengths.tolist(), batch_tokens=batch_tokens):
        on_batch(len(places))
        scores = model.scores(text_batch(corpus, wanted[places]).source.to(device))
        found[places] = scores.double().log_softmax(1).cpu().numpy()
    return found


class Measured(NamedTuple):
    """A model's results for a text with labels."""

    loss: float
    """In nats a label."""
    labels: list[int]
    """Those predicted, counted from 0."""


def measure(
    model: Classifier, corpus: ClassifiedCorpus, *, device: torch.device, world: World, check: Callable[[], object]
) -> Measured:
    """Loss and labels; several processes share the texts, and all get the same result.

    Raises InterruptedValidationError in all of them when `check` raises it in one.
    """
    rows = range(world.rank, len(corpus), world.size)

    def mine() -> tuple[list[float], list[int]]:
        log_p = predict(model, corpus, device=device, rows=rows, on_batch=lambda _: check())
        right = log_p[np.arange(len(rows)), corpus.labels[rows.start :: world.size] - FIRST_LABEL]
        return (-right).tolist(), log_p.argmax(1).tolist()

    parts = in_all_processes(world, mine)
    losses = interleave([losses for losses, _ in parts])
    return Measured(float(np.mean(losses)), interleave([labels for _, labels in parts]))
