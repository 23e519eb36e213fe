"""Initial weights of a new model; importing this file registers the distributions in INITIALIZERS."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final

from torch import Tensor, nn

from nmt.registry import INITIALIZERS, NoOptions

INIT_RANGE: Final = 0.08


class Initializer(float):
    """The distribution of initial weights; biases always start at 0, layer-norm scales at 1 and offsets at 0.

    `reset_parameters(init_range)` of every part of a model is called with one. As a number it equals
    `model.init_range`, so that parts that expect a plain range, for example in a plugin, still work.
    """

    Options: ClassVar[type] = NoOptions
    reads_range: ClassVar[bool] = False
    """Whether `model.init_range` has an effect on it."""

    def __new__(cls, init_range: float = INIT_RANGE, options: Any = None) -> Initializer:
        return super().__new__(cls, init_range)

    def __init__(self, init_range: float = INIT_RANGE, options: Any = None) -> None:
        self.options = self.Options() if options is None else options

    def weight_(self, weight: Tensor, *, fan_in: int, fan_out: int) -> None:
        """Fill `weight`, which holds one whole matrix from width `fan_in` to width `fan_out` in any layout."""
        raise NotImplementedError

    def matrix_(self, weight: Tensor) -> None:
        """Fill weight [out, in]."""
        self.weight_(weight, fan_in=weight.size(1), fan_out=weight.size(0))


def as_initializer(init_range: float) -> Initializer:
    """`init_range` itself if it is an initializer; for a plain number, `uniform` with this range."""
    return init_range if isinstance(init_range, Initializer) else Uniform(init_range)


@INITIALIZERS.register("uniform")
class Uniform(Initializer):
    """Uniform in [-init_range, init_range]."""

    reads_range = True

    def weight_(self, weight: Tensor, *, fan_in: int, fan_out: int) -> None:
        nn.init.uniform_(weight, -float(self), float(self))


@INITIALIZERS.register("glorot")
class Glorot(Initializer):
    """Uniform in +-sqrt(6 / (fan_in + fan_out)), also called Xavier uniform (Glorot and Bengio, AISTATS 2010)."""

    def weight_(self, weight: Tensor, *, fan_in: int, fan_out: int) -> None:
        bound = math.sqrt(6 / (fan_in + fan_out))
        nn.init.uniform_(weight, -bound, bound)
