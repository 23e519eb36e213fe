"""A sentence and its translation read by models in fp32, and what they computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from nmt.data import EOS, Tokenizer
from nmt.data.tokenizer import on_one_line
from nmt.errors import DataError
from nmt.inspection.record import UnitRecord, record
from nmt.inspection.values import Inspection, UnitTrace
from nmt.library.values import START
from nmt.models.base import Seq2Seq
from nmt.ops.matrices.best_words import log_probabilities
from nmt.registry import INSPECTORS
from nmt.search.ensemble import EQUAL, EnsembleMean, RunningMean
from nmt.search.reading import entropies_of, tokens_of
from nmt.search.values import Hypothesis


class Inspected(NamedTuple):
    """S source and T target tokens, end symbols counted."""

    log_probs: Tensor  # [T], of each target token given those before it
    entropies: Tensor  # [T], of the distributions that these are from, in nats
    attention: dict[str, Tensor]
    """[heads, T, S]: see `nmt.inspection.record.Record`; of an ensemble names begin with the number of the model"""
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


LONGEST: Final = 1000
"""Largest number of tokens of a sentence: memory and time grow with its square."""


def _encoded(name: str, ids: Sequence[int]) -> list[int]:
    if len(ids) > LONGEST:
        raise DataError(f"{name}: has {len(ids):,} tokens; at most {LONGEST:,} are allowed")
    return [*ids, EOS]


def _side(name: str) -> str:
    """Encoder or decoder, from the name of a part, which in an ensemble begins with a number."""
    return next(word for word in name.split(".") if not word.isdecimal())


def _trace(found: UnitRecord, tokens: tuple[str, ...]) -> UnitTrace:
    states = [array(part) for part in found.states]
    return UnitTrace(
        found.unit,
        found.reverse,
        tokens if len(tokens) == len(states[0]) else (),
        states[0],
        {name: array(gate) for name, gate in found.gates.items()},
        None if found.memory is None else array(found.memory),
        states[1] if len(states) > 1 else None,
    )


def array(tensor: Tensor) -> Any:
    """The tensor as a NumPy array in fp32."""
    return tensor.float().cpu().numpy()


@INSPECTORS.register("translation")
def inspection_of(
    models: Sequence[Seq2Seq],
    tokenizer: Tokenizer,
    pair: tuple[str, str | None],
    *,
    search: Callable[[list[int]], list[Hypothesis]],
    mean: EnsembleMean,
) -> Inspection:
    """What `inspect` of a translator gives for a source and its translation, by default the best of `search`."""
    source, target = pair
    ids = _encoded("source", tokenizer.read_sources([source])[0])
    if len(ids) == 1:
        raise DataError("source: is empty; give a sentence")
    if target is None:
        best = next((one for one in search(ids) if one.is_finite and math.isfinite(one.score)), None)
        if best is None:
            raise DataError("source: no translation of it has a finite probability; give a target")
        own = tokens_of(best)
        target = on_one_line(tokenizer.decode_target(own))
    else:
        own = _encoded("target", tokenizer.encode_target([target])[0])
    found = inspect_pair(models, ids, own, mean=mean)
    source_tokens, target_tokens = tuple(tokenizer.source_tokens(ids)), tuple(tokenizer.target_tokens(own))
    read = {"encoder": source_tokens, "decoder": (START, *target_tokens[:-1])}
    return Inspection(
        source,
        target,
        source_tokens,
        target_tokens,
        array(found.log_probs),
        array(found.entropies),
        {name: array(weights) for name, weights in found.attention.items()},
        {name: _trace(unit, read.get(_side(name), ())) for name, unit in found.units.items()},
    )
