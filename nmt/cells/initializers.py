"""Initial weights of a new model; importing this file registers the distributions in INITIALIZERS."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from torch import Tensor, nn

from nmt.registry import INITIALIZERS, NoOptions

INIT_RANGE: Final = 0.08

TRUNCATED_DEVIATION: Final = 0.87962566103423978
"""Standard deviation of the normal distribution N(0, 1) cut at -2 and 2."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Options of the distributions that depend on the size of a matrix."""

    gain: float = 1.0
    """Factor g of the variance. Zero: `initializer_gain`, whose default is 0.08."""

    def __post_init__(self) -> None:
        if not 0 < self.gain < math.inf:
            raise ValueError(f"gain: must be greater than 0, not {self.gain}")


@dataclass(frozen=True, kw_only=True)
class Deviation(Gain):
    """Options of `normal`."""

    gain: float = INIT_RANGE
    """Standard deviation. Zero: `initializer_gain`."""


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


@INITIALIZERS.register("normal")
class Normal(Initializer):
    """Normal with mean 0 and standard deviation `gain`."""

    Options = Deviation
    options: Deviation

    def weight_(self, weight: Tensor, *, fan_in: int, fan_out: int) -> None:
        nn.init.normal_(weight, std=self.options.gain)


@INITIALIZERS.register("normal_unit_scaling")
class NormalUnitScaling(Initializer):
    """Normal, cut at two deviations, with variance g / n for n = (fan_in + fan_out) / 2.

    In early versions of TensorFlow 1 the variance was g / n before the cut and therefore 0.77 g / n after it. Here it
    is g / n after the cut, as in TensorFlow 1.13, the last version that Zero runs with, and in all later versions.
    """

    Options = Gain
    options: Gain

    def weight_(self, weight: Tensor, *, fan_in: int, fan_out: int) -> None:
        deviation = math.sqrt(self.options.gain * 2 / (fan_in + fan_out)) / TRUNCATED_DEVIATION
        nn.init.trunc_normal_(weight, std=deviation, a=-2 * deviation, b=2 * deviation)


@INITIALIZERS.register("uniform_unit_scaling")
class UniformUnitScaling(Initializer):
    """Uniform with variance g / n for n = (fan_in + fan_out) / 2, that is, in +-sqrt(3 g / n)."""

    Options = Gain
    options: Gain

    def weight_(self, weight: Tensor, *, fan_in: int, fan_out: int) -> None:
        bound = math.sqrt(self.options.gain * 6 / (fan_in + fan_out))
        nn.init.uniform_(weight, -bound, bound)


@INITIALIZERS.register("glorot")
class Glorot(Initializer):
    """Uniform in +-sqrt(6 / (fan_in + fan_out)), also called Xavier uniform (Glorot and Bengio, AISTATS 2010)."""

    def weight_(self, weight: Tensor, *, fan_in: int, fan_out: int) -> None:
        bound = math.sqrt(6 / (fan_in + fan_out))
        nn.init.uniform_(weight, -bound, bound)
