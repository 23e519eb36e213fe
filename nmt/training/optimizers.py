"""Optimizers: Adam and AdamW of PyTorch, Adam as TensorFlow defines it, Muon, and PyTorch's others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import torch
from torch import Tensor

from nmt.registry import OPTIMIZERS
from nmt.training.schedules import check_amounts, check_counts, check_shares, require

if TYPE_CHECKING:
    from nmt.models.base import Seq2Seq


@dataclass(frozen=True, kw_only=True)
class AdamOptions:
    """Options of `adam`."""

    beta1: float = 0.9
    """Decay of the mean of the gradients."""
    beta2: float = 0.999
    """Decay of the mean of their squares."""
    epsilon: float = 1e-8
    """Added to the root of the second mean, after bias correction."""

    def __post_init__(self) -> None:
        check_shares(self, "beta1", "beta2")
        check_amounts(self, "epsilon")


@dataclass(frozen=True, kw_only=True)
class AdamWOptions(AdamOptions):
    """Options of `adamw`."""

    weight_decay: float = 0.01
    """Share of every weight, times the rate, that each update takes away."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_amounts(self, "weight_decay")


@dataclass(frozen=True, kw_only=True)
class AdamTFOptions(AdamOptions):
    """Options of `adam_tf`."""

    epsilon: float = 1e-9
    """Added to the root of the second mean, before bias correction. Zero: `epsilon`."""


def _can_fuse(parameters: list[Tensor]) -> bool:
    """Whether PyTorch's one-kernel Adam takes these parameters (since 2.4 on CPU as well)."""
    return all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in parameters)


class _OneKernel(torch.optim.Optimizer):
    """An optimizer of PyTorch with an implementation for each kind of device."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a `state_dict`, which may come from another kind of device, with the implementation for this
        one."""
        groups = [
            {**saved, "fused": own["fused"], "foreach": own["foreach"]}
            for saved, own in zip(state_dict["param_groups"], self.param_groups, strict=True)
        ]
        super().load_state_dict({**state_dict, "param_groups": groups})


@OPTIMIZERS.register("adam")
class Adam(_OneKernel, torch.optim.Adam):
    """Adam (Kingma and Ba, ICLR 2015): w -= lr * m^ / (sqrt(v^) + epsilon), m^ and v^ bias-corrected."""

    Options: ClassVar[type] = AdamOptions

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, options: AdamOptions) -> None:
        weights = list(parameters)
        betas = (options.beta1, options.beta2)
        super().__init__(weights, lr=lr, betas=betas, eps=options.epsilon, fused=_can_fuse(weights) or None)


@OPTIMIZERS.register("adamw")
class AdamW(_OneKernel, torch.optim.AdamW):
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019), of all parameters."""

    Options: ClassVar[type] = AdamWOptions

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, options: AdamWOptions) -> None:
        weights = list(parameters)
        super().__init__(
            weights,
            lr=lr,
            betas=(options.beta1, options.beta2),
            eps=options.epsilon,
            weight_decay=options.weight_decay,
            fused=_can_fuse(weights) or None,
        )


class OwnOptimizer(torch.optim.Optimizer):
    """Base of the optimizers whose equations stand here, for all weights of a group together."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Do one update with the present gradients; return the value of `closure`, if given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                group["updates"] += 1
                self._update(group, weights)
        return loss

    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        """Do update number `group["updates"]`, from 1, of those weights of a group that have gradients."""
        raise NotImplementedError

    def _adam(self, group: dict[str, Any], weights: list[Tensor], *, epsilon: float) -> None:
        """Adam with this epsilon, which is added to the root of the second mean before bias correction."""
        beta1, beta2 = group["betas"]
        rate = group["lr"] * math.sqrt(1 - beta2 ** group["updates"]) / (1 - beta1 ** group["updates"])
        grads = gradients_of(weights)
        means, squares = self._kept(weights, "exp_avg"), self._kept(weights, "exp_avg_sq")
        torch._foreach_lerp_(means, grads, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, grads, grads, 1 - beta2)
        denominators = torch._foreach_sqrt(squares)
        torch._foreach_add_(denominators, epsilon)
        torch._foreach_addcdiv_(weights, means, denominators, -rate)

    def _kept(self, weights: list[Tensor], name: str) -> list[Tensor]:
        """What is kept of each weight under a name, at first zeros."""
        for weight in weights:
            if name not in self.state[weight]:
                self.state[weight][name] = torch.zeros_like(weight, memory_format=torch.preserve_format)
        return [self.state[weight][name] for weight in weights]


def gradients_of(weights: list[Tensor]) -> list[Tensor]:
    """The gradients of weights that all have one."""
    return [weight.grad for weight in weights if weight.grad is not None]


@OPTIMIZERS.register("adam_tf")
class AdamTF(OwnOptimizer):
    """Adam with TensorFlow's epsilon, which bias correction does not scale; what Zero trains with.

        lr_t = lr * sqrt(1 - beta2**t) / (1 - beta1**t)
        w   -= lr_t * m / (sqrt(v) + epsilon)

    t counts the updates of the whole group, as TensorFlow's beta powers do.
    """

    Options: ClassVar[type] = AdamTFOptions

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, options: AdamTFOptions) -> None:
        defaults = {"lr": lr, "betas": (options.beta1, options.beta2), "eps": options.epsilon, "updates": 0}
        super().__init__(parameters, defaults)

    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        self._adam(group, weights, epsilon=group["eps"])


def build_optimizer(name: str, parameters: Iterable[Any], *, lr: float, options: Any = None) -> torch.optim.Optimizer:
    """Make the optimizer registered as `name` for these tensors, or groups of them.

    `options` is an instance of its `Options` (see `nmt.config.component_options`); None takes the defaults.
    Raises ConfigError for an unknown name.
    """
    member = OPTIMIZERS.get(name)
    optimizer: torch.optim.Optimizer = member(
        parameters, lr=lr, options=member.Options() if options is None else options
    )
    return optimizer


_QUINTIC: Final = (3.4445, -4.7750, 2.0315)
"""a, b, c of Jordan et al.: a s + b s**3 + c s**5 brings a singular value s from anywhere in (0, 1] near 1, soon."""


def orthogonalized(matrices: Tensor, *, steps: int) -> Tensor:
    """U V' of each matrix U S V' of `matrices` [N, rows, columns], roughly: singular values of 0.7 to 1.2.

    `steps` iterations of Newton and Schulz, products of matrices alone; the smaller S, the more it takes.
    """
    a, b, c = _QUINTIC
    tall = matrices.size(1) > matrices.size(2)
    found = matrices.mT.contiguous() if tall else matrices
    found = found / (torch.linalg.matrix_norm(found, keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = torch.bmm(found, found.mT)
        gram = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        found = torch.baddbmm(found, gram, found, beta=a)
    return found.mT if tall else found


@OPTIMIZERS.register("muon")
class Muon(OwnOptimizer):
    """Muon (Jordan et al., 2024) for matrices, Adam for tables of embeddings, vectors and numbers.

        m  = momentum * m + (1 - momentum) * g,  W -= lr * scale * sqrt(max(rows, columns)) * orthogonal(n)

    with n = (1 - momentum) * g + momentum * m. With a `scale` of 0.2 the steps are as long as Adam's usually are, so
    that both can have the same lr (Liu et al., 2025). Larger batches than with Adam pay: an update costs more.
    """

    @dataclass(frozen=True, kw_only=True)
    class Options(AdamOptions):
        """Options of `muon`; Adam's options are for weights that are not matrices."""

        momentum: float = 0.95
        """Decay of the mean of the gradients of matrices."""
        ns_steps: int = 5
        """Iterations of Newton and Schulz; fewer are faster and less exact."""
        scale: float = 0.2
        """Root mean square of a step of a matrix, relative to lr."""

        def __post_init__(self) -> None:
            super().__post_init__()
            check_shares(self, "momentum")
            check_counts(self, "ns_steps")
            require(0 < self.scale < math.inf, f"scale: must be above 0, not {self.scale}")

    def __init__(self, parameters: Iterable[Any], *, lr: float, options: Options) -> None:
        """`parameters`: tensors, or groups of them; a group with `tables: True` has no matrices."""
        defaults = {
            "lr": lr,
            "betas": (options.beta1, options.beta2),
            "eps": options.epsilon,
            "momentum": options.momentum,
            "ns_steps": options.ns_steps,
            "scale": options.scale,
            "tables": False,
            "updates": 0,
        }
        super().__init__(parameters, defaults)

    @staticmethod
    def groups(model: Seq2Seq) -> list[dict[str, Any]]:
        """The parameters of a model: the tables, whose rows are words' own, and the others."""
        tables = model.tables
        known = {id(table) for table in tables}
        others = [weight for weight in model.parameters() if id(weight) not in known]
        return [{"params": tables, "tables": True}, {"params": others}]

    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        alike: dict[tuple[int, ...], list[Tensor]] = {}
        others = []
        for weight in weights:
            if weight.ndim == 2 and min(weight.shape) > 1 and not group["tables"]:
                alike.setdefault(tuple(weight.shape), []).append(weight)
            else:
                others.append(weight)
        for matrices in alike.values():
            self._update_matrices(group, matrices)
        if others:
            corrected = math.sqrt(1 - group["betas"][1] ** group["updates"])
            self._adam(group, others, epsilon=group["eps"] * corrected)  # as PyTorch adds it, after bias correction

    def _update_matrices(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        """One update of matrices that all have the same shape."""
        momentum = group["momentum"]
        gradients, means = gradients_of(weights), self._kept(weights, "exp_avg")
        torch._foreach_lerp_(means, gradients, 1 - momentum)
        directions = torch.stack(torch._foreach_lerp(gradients, means, momentum))
        length = group["scale"] * math.sqrt(max(weights[0].shape))
        found = orthogonalized(directions, steps=group["ns_steps"])
        torch._foreach_add_(weights, found.unbind(), alpha=-group["lr"] * length)


@dataclass(frozen=True, kw_only=True)
class DecayOptions:
    """Options of all these optimizers."""

    weight_decay: float = 0.0
    """This times the weight is added to its gradient (L2)."""

    def __post_init__(self) -> None:
        check_amounts(self, "weight_decay")


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
            check_shares(self, "momentum")
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
            check_shares(self, "rho")
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
            check_shares(self, "alpha", "momentum")
            check_amounts(self, "epsilon")

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
            check_amounts(self, "lr_decay", "initial_accumulator", "epsilon")

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
            decay = self.beta2_decay
            require(-math.inf < decay <= 0, f"beta2_decay: must be 0 or less, not {decay}")
            if self.epsilon1 is not None:
                check_amounts(self, "epsilon1")
            check_amounts(self, "epsilon2")
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
