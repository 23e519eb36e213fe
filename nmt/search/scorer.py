"""How probable a model, or an ensemble, finds given translations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from nmt.data import EOS, UNK, Tokenizer, batch_lines, pad, restore_order
from nmt.data.text import is_empty
from nmt.data.windows import windows
from nmt.models.base import Seq2Seq
from nmt.search.ensemble import mean_nll
from nmt.search.ensemble_mean import EQUAL, EnsembleMean
from nmt.search.translator import WINDOW


@dataclass(frozen=True)
class PairScore:
    """A model's score of one sentence pair."""

    mean_nll: float
    """Mean negative log-probability of the target tokens in nats, the end symbol counted."""
    tokens: int
    """Target tokens, the end symbol counted."""
    unknown: int
    """Target tokens that are not in the vocabulary; they are scored as unknown words."""
    source_tokens: int
    """Source tokens, the end symbol not counted."""
    has_empty_side: bool
    """An empty side is the end symbol alone; the model has an opinion on it as on anything else."""


def score_pairs(
    model: Seq2Seq,
    tokenizer: Tokenizer,
    pairs: Iterable[tuple[str, str]],
    *,
    batch_tokens: int,
    others: Sequence[Seq2Seq] = (),
    mean: EnsembleMean = EQUAL,
    window: int = WINDOW,
    before_batch: Callable[[], object] | None = None,
) -> Iterator[PairScore]:
    """The score of each (source, target) pair, in order; memory does not grow with their number.

    If reading `pairs` raises DataError, the scores of the pairs before it are returned first.

    `model` must be in evaluation mode, and so must the `others`, models with the same vocabularies whose probabilities
    are averaged with its own by `mean`. A batch has at most `batch_tokens` source or target tokens, padding counted.
    `before_batch` is called before each batch; an exception ends the work.
    """
    for chunk in windows(pairs, size=window, length=lambda pair: len(pair[0]) + len(pair[1])):
        yield from _score_window(
            [model, *others], tokenizer, chunk, batch_tokens=batch_tokens, mean=mean, before_batch=before_batch
        )


def _score_window(
    models: Sequence[Seq2Seq],
    tokenizer: Tokenizer,
    pairs: Sequence[tuple[str, str]],
    *,
    batch_tokens: int,
    mean: EnsembleMean,
    before_batch: Callable[[], object] | None,
) -> list[PairScore]:
    sources = [[*ids, EOS] for ids in tokenizer.encode_source([source for source, _ in pairs])]
    targets = [[*ids, EOS] for ids in tokenizer.encode_target([target for _, target in pairs])]
    lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    batches = batch_lines(lengths, batch_tokens=batch_tokens)
    device = next(models[0].parameters()).device
    means = []
    for batch in batches:
        if before_batch is not None:
            before_batch()
        source, target = pad([sources[i] for i in batch]).to(device), pad([targets[i] for i in batch]).to(device)
        with torch.inference_mode():
            means.append(mean_nll(models, source, target, mean=mean).tolist())
    return [
        PairScore(
            nll,
            tokens=len(target),
            unknown=target.count(UNK),
            source_tokens=len(source) - 1,
            has_empty_side=is_empty(pair[0]) or is_empty(pair[1]),
        )
        for nll, source, target, pair in zip(restore_order(batches, means), sources, targets, pairs, strict=True)
    ]
