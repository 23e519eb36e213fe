"""`Translator.inspect` in the process of the models: from texts to the models' inner values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from torch import Tensor

from nmt.data import EOS, Tokenizer
from nmt.data.text import on_one_line
from nmt.errors import DataError
from nmt.library.inspection import START, Inspection, UnitTrace
from nmt.models.base import Seq2Seq
from nmt.models.record import UnitRecord
from nmt.search import Translator
from nmt.search.ensemble_mean import EnsembleMean
from nmt.search.inspection import inspect_pair
from nmt.search.reading import tokens_of

LONGEST: Final = 1000
"""Largest number of tokens of a sentence: memory and time grow with its square."""


def inspected(
    models: Sequence[Seq2Seq],
    tokenizer: Tokenizer,
    translator: Translator,
    *,
    source: str,
    target: str | None,
    mean: EnsembleMean,
) -> Inspection:
    """The inner values of `models` for `source` (one line) and `target` (default: the translation by `translator`).

    Raises DataError for a source without tokens, for sentences of more than LONGEST tokens, and if no translation has a
    finite probability.
    """
    ids = _encoded("source", tokenizer.encode_source([source])[0])
    if len(ids) == 1:
        raise DataError("source: is empty; give a sentence")
    if target is None:
        own = _best(translator, ids)
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


def _encoded(name: str, ids: Sequence[int]) -> list[int]:
    if len(ids) > LONGEST:
        raise DataError(f"{name}: has {len(ids):,} tokens; at most {LONGEST:,} are allowed")
    return [*ids, EOS]


def _best(translator: Translator, ids: Sequence[int]) -> list[int]:
    """The ids of the best translation, with the end symbol if it was reached."""
    (found,) = translator.search([ids])
    usable = (one for one in found if one.is_finite and math.isfinite(one.score))
    best = next(usable, None)
    if best is None:
        raise DataError("source: no translation of it has a finite probability; give a target")
    return tokens_of(best)


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
