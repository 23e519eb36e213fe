"""Which layers, heads and units of a model a map shows, as a command line names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nmt.errors import ConfigError, counted, refused

Numbers = np.ndarray[Any, Any]
MEAN, ALL = "mean", "all"
_SELF = ".self"
"""What names of self-attention end with."""


def is_self(name: str) -> bool:
    """Whether a layer attends to its own side."""
    return name.endswith(_SELF)


def sharpest(attention: Mapping[str, Numbers]) -> str:
    """The layer attending to the source whose weights (the mean of its heads) have the least entropy."""
    to_source = {name: weights for name, weights in attention.items() if not is_self(name)}
    if not to_source:
        raise ConfigError("--layer: no layer of this model reports its attention to the source")
    return min(to_source, key=lambda name: _entropy(to_source[name].mean(0)))


def named(wanted: Sequence[str], known: Sequence[str], *, option: str) -> list[str]:
    """Those of `known` that are meant by names, or by beginnings of names such as `encoder` or `decoder.0`.

    A beginning means self-attention only where nothing else begins so. Raises ConfigError naming `option`.
    """
    found: dict[str, None] = {}
    for name in wanted:
        below = [other for other in known if other.startswith(f"{name}.")]
        others = [other for other in below if not is_self(other)] or below
        chosen = [name] if name in known else others
        if not chosen:
            allowed = known or "none, because this model reports no attention"
            raise ConfigError(refused(option, name, allowed, problem="is not known"))
        found |= dict.fromkeys(chosen)
    return list(found)


def of_heads(name: str, weights: Numbers, heads: str | tuple[int, ...]) -> tuple[list[str], list[Numbers]]:
    """Titles and maps of a layer's heads [heads, T, S]: their mean, all, or those of some numbers, from 1.

    Raises ConfigError for a number that the layer does not have.
    """
    count = len(weights)
    if heads == MEAN:
        return [name if count == 1 else f"{name}, mean of {count} heads"], [weights.mean(0)]
    numbers = range(1, count + 1) if isinstance(heads, str) else heads
    for number in numbers:
        if not 1 <= number <= count:
            raise ConfigError(f"--heads: {name} has {counted(count, 'head')}; {number} is not one of them")
    return [f"{name}, head {number}" for number in numbers], [weights[number - 1] for number in numbers]


def _entropy(weights: Numbers) -> float:
    """The mean over rows, in nats."""
    logarithms = np.log(np.where(weights > 0, weights, 1))
    return float(-(weights * logarithms).sum(-1).mean())
