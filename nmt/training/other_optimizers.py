"""Optimizers besides Adam, all of PyTorch: SGD, AdaDelta, RMSProp, Adagrad and Adafactor."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.registry import OPTIMIZERS
from nmt.training.schedules import require


def _check_share(name: str, value: float) -> None:
    require(0 <= value < 1, f"{name}: must be 0 or more and below 1, not {value}")


def _check_amount(name: str, value: float) -> None:
    require(0 <= value < math.inf, f"{name}: must be 0 or more, not {value}")


@dataclass(frozen=True, kw_only=True)
class DecayOptions:
    """Options of all these optimizers."""

    weight_decay: float = 0.0
    """This times the weight is added to its gradient (L2)."""

    def __post_init__(self) -> None:
        _check_amount("weight_decay", self.weight_decay)


@OPTIMIZERS.register("sgd")
class SGD(torch.optim.SGD):
    """Stochastic gradient descent: w -= lr * b, b = momentum * b + (1 - dampening) * g, by default the gradient g."""

    @dataclass(frozen=True, kw_only=True)
    class Options(DecayOptions):
        """Options of `sgd`."""

        momentum: float = 0.0
        """Decay of the sum of the gradients that is followed; 0 follows the gradient itself."""
        dampening: float = 0.0
        """Share of a gradient that is not added to that sum; the first is added whole."""
        nesterov: bool = False
        """Follow g + momentum * b instead (Sutskever et al., ICML 2013); needs momentum, and no dampening."""

        def __post_init__(self) -> None:
            super().__post_init__()
            _check_share("momentum", self.momentum)
            require(0 <= self.dampening <= 1, f"dampening: must be from 0 to 1, not {self.dampening}")
            possible = self.momentum > 0 and self.dampening == 0
            require(possible or not self.nesterov, "nesterov: needs a momentum above 0 and a dampening of 0")

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, options: Options) -> None:
        super().__init__(
            parameters,
            lr=lr,
            momentum=options.momentum,
            dampening=options.dampening,
            weight_decay=options.weight_decay,
            nesterov=options.nesterov,
        )

    @staticmethod
    def moments(options: Options) -> int:
        """Numbers kept for each weight."""
        return int(options.momentum > 0)


@OPTIMIZERS.register("adadelta")
class AdaDelta(torch.optim.Adadelta):
    """AdaDelta (Zeiler, 2012): w -= lr * d, d = sqrt(D + epsilon) / sqrt(G + epsilon) * g; `training.lr` is mostly 1.0.

    G and D are decaying means of g^2 and of d^2.
    """

    @dataclass(frozen=True, kw_only=True)
    class Options(DecayOptions):
        """Options of `adadelta`."""

        rho: float = 0.9
        """Decay of both means; 0.95 in the paper."""
        epsilon: float = 1e-6
        """Added to both means below the roots; it decides how large the first steps are."""

        def __post_init__(self) -> None:
            super().__post_init__()
            _check_share("rho", self.rho)
            require(0 < self.epsilon < math.inf, f"epsilon: must be above 0, not {self.epsilon}")

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, options: Options) -> None:
        super().__init__(parameters, lr=lr, rho=options.rho, eps=options.epsilon, weight_decay=options.weight_decay)

    @staticmethod
    def moments(options: Options) -> int:
        """Numbers kept for each weight."""
        return 2


@OPTIMIZERS.register("rmsprop")
class RMSProp(torch.optim.RMSprop):
    """RMSProp (Tieleman and Hinton, 2012): w -= lr * g / (sqrt(G) + epsilon), G the decaying mean of g^2."""

    @dataclass(frozen=True, kw_only=True)
    class Options(DecayOptions):
        """Options of `rmsprop`."""

        alpha: float = 0.99
        """Decay of the mean of the squared gradients."""
        epsilon: float = 1e-8
        """Added to its root."""
        momentum: float = 0.0
        """Decay of the running sum of steps; 0: each step is used alone."""
        centered: bool = False
        """Divide by the deviation from the mean gradient, sqrt(G - mean(g)^2) (Graves, 2013)."""

        def __post_init__(self) -> None:
            super().__post_init__()
            _check_share("alpha", self.alpha)
            _check_share("momentum", self.momentum)
            _check_amount("epsilon", self.epsilon)

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, options: Options) -> None:
        super().__init__(
            parameters,
            lr=lr,
            alpha=options.alpha,
            eps=options.epsilon,
            weight_decay=options.weight_decay,
            momentum=options.momentum,
            centered=options.centered,
        )

    @staticmethod
    def moments(options: Options) -> int:
        """Numbers kept for each weight."""
        return 1 + int(options.momentum > 0) + int(options.centered)


@OPTIMIZERS.register("adagrad")
class Adagrad(torch.optim.Adagrad):
    """Adagrad (Duchi et al., JMLR 2011): w -= lr * g / (sqrt(G) + epsilon), G the sum of all g^2 so far."""

    @dataclass(frozen=True, kw_only=True)
    class Options(DecayOptions):
        """Options of `adagrad`."""

        lr_decay: float = 0.0
        """The rate of update t, from 1, is divided by 1 + (t - 1) * lr_decay."""
        initial_accumulator: float = 0.0
        """What the sums start with when a run begins."""
        epsilon: float = 1e-10
        """Added to the root of the sum."""

        def __post_init__(self) -> None:
            super().__post_init__()
            for name in ("lr_decay", "initial_accumulator", "epsilon"):
                _check_amount(name, getattr(self, name))

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, options: Options) -> None:
        super().__init__(
            parameters,
            lr=lr,
            lr_decay=options.lr_decay,
            weight_decay=options.weight_decay,
            initial_accumulator_value=options.initial_accumulator,
            eps=options.epsilon,
        )

    @staticmethod
    def moments(options: Options) -> int:
        """Numbers kept for each weight."""
        return 1


@OPTIMIZERS.register("adafactor")
class Adafactor(torch.optim.Adafactor):
    """Adafactor (Shazeer and Stern, ICML 2018): the squares of a matrix's gradients as a row times a column.

    Steps are relative to the weights: at update t they are min(training.lr, 1 / sqrt(t)) * max(epsilon2, RMS(w)).
    Memory for a matrix of m x n weights is m + n numbers, where Adam needs 2 m n.
    """

    @dataclass(frozen=True, kw_only=True)
    class Options(DecayOptions):
        """Options of `adafactor`."""

        weight_decay: float = 0.0
        """Share of every weight, times the rate, that each update takes away."""
        beta2_decay: float = -0.8
        """The decay of the mean of the squares at update t is 1 - t ** beta2_decay."""
        epsilon1: float | None = None
        """Smallest root of a mean square; by default the smallest number that changes 1 when added to it."""
        epsilon2: float = 1e-3
        """Smallest size of the weights to which a step is relative."""
        clip_threshold: float = 1.0
        """Largest root mean square of a parameter's step, before it is scaled by rate and weights."""

        def __post_init__(self) -> None:
            super().__post_init__()
            decay, smallest = self.beta2_decay, self.epsilon1
            require(-math.inf < decay <= 0, f"beta2_decay: must be 0 or less, not {decay}")
            if smallest is not None:
                _check_amount("epsilon1", smallest)
            _check_amount("epsilon2", self.epsilon2)
            clipped = 1 <= self.clip_threshold < math.inf
            require(clipped, f"clip_threshold: must be 1 or more, not {self.clip_threshold}")

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, options: Options) -> None:
        super().__init__(
            parameters,
            lr=lr,
            beta2_decay=options.beta2_decay,
            eps=(options.epsilon1, options.epsilon2),
            d=options.clip_threshold,
            weight_decay=options.weight_decay,
        )

    @staticmethod
    def moments(options: Options) -> int:
        """Numbers kept for each weight, except for a row and a column of each matrix."""
        return 0
