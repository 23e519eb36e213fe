"""Muon: steps of orthogonal matrices for the layers, Adam for tables and vectors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from nmt.registry import OPTIMIZERS
from nmt.training.optimizers import AdamOptions, OwnOptimizer, gradients_of
from nmt.training.schedules import require

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
            require(0 <= self.momentum < 1, f"momentum: must be 0 or more and below 1, not {self.momentum}")
            require(self.ns_steps > 0, f"ns_steps: must be above 0, not {self.ns_steps}")
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
