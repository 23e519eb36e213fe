"""Adam as TensorFlow defines it, Muon, and PyTorch's optimizers besides Adam."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import torch
from torch import Tensor

from nmt.registry import OPTIMIZERS
from nmt.training.optimizers import Adam, in_torch
from nmt.training.schedules import Above0, Amount, Count, Share, allowed, require

if TYPE_CHECKING:
    from nmt.models.base import Seq2Seq


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


@OPTIMIZERS.register("adam_tf")
class AdamTF(torch.optim.Optimizer):
    """Adam with TensorFlow's epsilon, which bias correction does not scale; what Zero trains with.

        lr_t = lr * sqrt(1 - beta2**t) / (1 - beta1**t)
        w   -= lr_t * m / (sqrt(v) + epsilon)

    t counts the updates of the whole group, as TensorFlow's beta powers do.
    """

    @dataclass(frozen=True, kw_only=True)
    class Options(Adam.Options):
        epsilon: Amount = 1e-9
        """Added to the root of the second mean, before bias correction. Zero: `epsilon`."""

    def __init__(self, parameters: Iterable[Any], *, lr: float, options: Any) -> None:
        """`parameters`: tensors, or groups of them."""
        super().__init__(parameters, {**in_torch(options, lr=lr), "updates": 0})

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
        beta1, beta2 = group["betas"]
        rate = group["lr"] * math.sqrt(1 - beta2 ** group["updates"]) / (1 - beta1 ** group["updates"])
        grads = [weight.grad for weight in weights if weight.grad is not None]
        means, squares = self._kept(weights, "exp_avg"), self._kept(weights, "exp_avg_sq")
        torch._foreach_lerp_(means, grads, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, grads, grads, 1 - beta2)
        denominators = torch._foreach_sqrt(squares)
        torch._foreach_add_(denominators, group["eps"])
        torch._foreach_addcdiv_(weights, means, denominators, -rate)

    def _kept(self, weights: list[Tensor], name: str) -> list[Tensor]:
        """What is kept of each weight under a name, at first zeros."""
        for weight in weights:
            if name not in self.state[weight]:
                self.state[weight][name] = torch.zeros_like(weight, memory_format=torch.preserve_format)
        return [self.state[weight][name] for weight in weights]


@OPTIMIZERS.register("muon")
class Muon(AdamTF):
    """Muon (Jordan et al., 2024) for matrices, Adam for tables of embeddings, vectors and numbers.

        m  = momentum * m + (1 - momentum) * g,  W -= lr * scale * sqrt(max(rows, columns)) * orthogonal(n)

    with n = (1 - momentum) * g + momentum * m. With a `scale` of 0.2 the steps are as long as Adam's usually are, so
    that both can have the same lr (Liu et al., 2025). Larger batches than with Adam pay: an update costs more.
    """

    @dataclass(frozen=True, kw_only=True)
    class Options(Adam.Options):
        momentum: Share = 0.95
        """Decay of the mean of the gradients of matrices."""
        ns_steps: Count = 5
        """Iterations of Newton and Schulz; fewer are faster and less exact."""
        scale: Above0 = 0.2
        """Root mean square of a step of a matrix, relative to lr."""

    @staticmethod
    def groups(model: Seq2Seq) -> list[dict[str, Any]]:
        """The parameters of a model: the tables, whose rows are words' own, and the others."""
        known = {id(table) for table in model.tables}
        others = [weight for weight in model.parameters() if id(weight) not in known]
        return [{"params": model.tables, "tables": True}, {"params": others, "tables": False}]

    def _update(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        alike: dict[tuple[int, ...], list[Tensor]] = {}
        others = []
        for weight in weights:
            if weight.ndim == 2 and min(weight.shape) > 1 and not group.get("tables"):
                alike.setdefault(tuple(weight.shape), []).append(weight)
            else:
                others.append(weight)
        for shape, matrices in alike.items():
            grads = [matrix.grad for matrix in matrices if matrix.grad is not None]
            means = self._kept(matrices, "exp_avg")
            torch._foreach_lerp_(means, grads, 1 - group["momentum"])
            directions = torch.stack(torch._foreach_lerp(grads, means, group["momentum"]))
            found = orthogonalized(directions, steps=group["ns_steps"])
            length = group["scale"] * math.sqrt(max(shape))
            torch._foreach_add_(matrices, found.unbind(), alpha=-group["lr"] * length)
        if others:
            # As PyTorch adds it, after bias correction.
            corrected = group["eps"] * math.sqrt(1 - group["betas"][1] ** group["updates"])
            super()._update({**group, "eps": corrected}, others)


class _Renamed(torch.optim.Optimizer):
    """An optimizer of PyTorch that is used as it is."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of all these optimizers."""

        weight_decay: Amount = 0.0
        """This times the weight is added to its gradient (L2)."""

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, options: Any) -> None:
        super().__init__(parameters, **in_torch(options, lr=lr))


@OPTIMIZERS.register("sgd")
class SGD(_Renamed, torch.optim.SGD):
    """Stochastic gradient descent.

    w -= lr * b, b = momentum * b + (1 - dampening) * g, by default the gradient g.
    """

    moments = staticmethod(lambda options: int(options.momentum > 0))  # numbers kept for each weight

    @dataclass(frozen=True, kw_only=True)
    class Options(_Renamed.Options):
        momentum: Share = 0.0
        """Decay of the sum of the gradients that is followed."""
        dampening: Annotated[float, allowed("from 0 to 1", lambda value: 0 <= value <= 1)] = 0.0
        """Share of a gradient, except the first, that is not added to that sum."""
        nesterov: bool = False
        """Follow g + momentum * b instead; needs momentum, and no dampening."""

        def __post_init__(self) -> None:
            possible = self.momentum > 0 and self.dampening == 0
            require(possible or not self.nesterov, "nesterov: needs a momentum above 0 and a dampening of 0")


@OPTIMIZERS.register("adadelta")
class AdaDelta(_Renamed, torch.optim.Adadelta):
    """AdaDelta (Zeiler, 2012); `training.lr` is mostly 1.0.

    w -= lr * d, d = sqrt(D + epsilon) / sqrt(G + epsilon) * g.
    G and D are decaying means of g^2 and of d^2.
    """

    moments = staticmethod(lambda options: 2)

    @dataclass(frozen=True, kw_only=True)
    class Options(_Renamed.Options):
        rho: Share = 0.9
        """Decay of both means; 0.95 in the paper."""
        epsilon: Above0 = 1e-6
        """Added to both means below the roots."""


@OPTIMIZERS.register("rmsprop")
class RMSProp(_Renamed, torch.optim.RMSprop):
    """RMSProp (Tieleman and Hinton, 2012).

    w -= lr * g / (sqrt(G) + epsilon), G the decaying mean of g^2.
    """

    moments = staticmethod(lambda options: 1 + int(options.momentum > 0) + int(options.centered))

    @dataclass(frozen=True, kw_only=True)
    class Options(_Renamed.Options):
        alpha: Share = 0.99
        """Decay of the mean of the squared gradients."""
        epsilon: Amount = 1e-8
        """Added to its root."""
        momentum: Share = 0.0
        """Decay of the running sum of steps."""
        centered: bool = False
        """Divide by the deviation from the mean gradient, sqrt(G - mean(g)^2) (Graves, 2013)."""


@OPTIMIZERS.register("adagrad")
class Adagrad(_Renamed, torch.optim.Adagrad):
    """Adagrad (Duchi et al., JMLR 2011).

    w -= lr * g / (sqrt(G) + epsilon), G the sum of all g^2 so far.
    """

    moments = staticmethod(lambda options: 1)

    @dataclass(frozen=True, kw_only=True)
    class Options(_Renamed.Options):
        lr_decay: Amount = 0.0
        """The rate of update t, from 1, is divided by 1 + (t - 1) * lr_decay."""
        initial_accumulator: Amount = 0.0
        """What the sums start with when a run begins."""
        epsilon: Amount = 1e-10
        """Added to the root of the sum."""


@OPTIMIZERS.register("adafactor")
class Adafactor(_Renamed, torch.optim.Adafactor):
    """Adafactor (Shazeer and Stern, ICML 2018): the squares of a matrix's gradients as a row times a column.

    Steps are relative to the weights: at update t they are min(training.lr, 1 / sqrt(t)) * max(epsilon2, RMS(w)).
    Memory for a matrix of m x n weights is m + n numbers, where Adam needs 2 m n.
    """

    moments = staticmethod(lambda options: 0)  # except a row and a column of each matrix

    @dataclass(frozen=True, kw_only=True)
    class Options(_Renamed.Options):
        weight_decay: Amount = 0.0
        """Share of every weight, times the rate, that an update takes away."""
        beta2_decay: Annotated[float, allowed("0 or less", lambda value: -math.inf < value <= 0)] = -0.8
        """The decay of the squares at update t is 1 - t ** beta2_decay."""
        epsilon1: Amount | None = None
        """Smallest root of a mean square; default: the smallest number that changes 1."""
        epsilon2: Amount = 1e-3
        """Smallest size of the weights to which a step is relative."""
        clip_threshold: Annotated[float, allowed("1 or more", lambda value: 1 <= value < math.inf)] = 1.0
        """Largest root mean square of a parameter's step, before scaling."""
