"""Initial weights as Zero has them: normal, or with a variance that follows from the widths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from torch import Tensor, nn

from nmt.cells.initializers import INIT_RANGE, Initializer
from nmt.registry import INITIALIZERS

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
    """Uniform in +-sqrt(3 g / n), which has variance g / n.

    n = (fan_in + fan_out) / 2.
    """

    Options = Gain
    options: Gain

    def weight_(self, weight: Tensor, *, fan_in: int, fan_out: int) -> None:
        bound = math.sqrt(self.options.gain * 6 / (fan_in + fan_out))
        nn.init.uniform_(weight, -bound, bound)
