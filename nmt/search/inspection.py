"""A sentence pair read by a model, or an ensemble, with all the inner values that can be shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.models.base import Seq2Seq
from nmt.models.record import UnitRecord, record
from nmt.ops.matrices.top import log_probabilities
from nmt.search.ensemble_mean import EQUAL, EnsembleMean, RunningMean
from nmt.search.reading import entropies_of


class Inspected(NamedTuple):
    """S source and T target tokens, end symbols counted."""

    log_probs: Tensor
    """[T], of each target token given those before it"""
    entropies: Tensor
    """[T], of the distributions that these are from, in nats"""
    attention: dict[str, Tensor]
    """[heads, T, S]: see `nmt.models.record.Record`; of an ensemble each name begins with the number of the model"""
    units: dict[str, UnitRecord]
    """Likewise."""


@torch.inference_mode()
def inspect_pair(
    models: Sequence[Seq2Seq], source: Sequence[int], target: Sequence[int], *, mean: EnsembleMean = EQUAL
) -> Inspected:
    """Read one sentence pair in ids, end symbols included, by models in evaluation mode, in the type of their weights.

    Probabilities of several models are averaged by `mean`; the names of their parts then begin with `0.`, `1.`, ..., in
    the order of the models.
    """
    device = next(models[0].parameters()).device
    ids = [torch.tensor(side, dtype=torch.long, device=device) for side in (source, target)]
    total, attention, units = RunningMean(mean), dict[str, Tensor](), dict[str, UnitRecord]()
    for number, model in enumerate(models):
        found, prefix = record(model, *ids), f"{number}." if len(models) > 1 else ""
        total.add(log_probabilities(found.logits))
        attention |= {prefix + name: weights for name, weights in found.attention.items()}
        units |= {prefix + name: unit for name, unit in found.units.items()}
    log_probs = total.result()  # [T, V]
    own = log_probs.gather(1, ids[1].unsqueeze(1)).squeeze(1)
    return Inspected(own, entropies_of(log_probs), attention, units)
