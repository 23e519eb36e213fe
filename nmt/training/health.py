"""How a model starts: the gradient norm of each of its parts, and how much of each is saturated."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from nmt.models.attention import AdditiveAttention
from nmt.models.base import Seq2Seq
from nmt.ops.dispatch import selected

MOST_NORM = 100.0
"""The largest gradient norm of a healthy start; the loss is a mean over words or sentences."""
MOST_SATURATED = 0.05
"""The largest share of a part's tanh and sigmoid values that is saturated in a healthy start."""
WARN_SATURATED = 0.25
"""The share from which users are warned: the attention of Zero with layer norm starts at 0.06, and learns."""
SATURATED = 0.99
"""Beyond it a tanh, and beyond it or one minus it a sigmoid, is saturated."""
SENTENCES = 8
"""Sentences of the first batch in which saturation is measured."""

_CURES = (
    "model.layer_norm: true, with model.layer_norm_scale: 0.5 if necessary; a smaller model.init_range; fewer layers"
)
_TABLES = {
    "embeddings.source": "source table",
    "embeddings.bias": "source table",
    "embeddings.target": "target table",
    "embeddings.softmax": "softmax table",
}
_ENTRANCES = ("forward", "sequence", "attend")
"""Methods through which the work of a part is reached."""


@dataclass(frozen=True)
class Health:
    """What was measured of a model at its first batch."""

    grad_norm: float
    """Global norm of the gradient, not clipped."""
    norms: dict[str, float]
    """That of each part: tables, layers, attentions, initial states, readout."""
    saturated: dict[str, float]
    """Share of the saturated values of each part that has a tanh or sigmoid."""

    def problems(self) -> list[str]:
        """What may keep the model from learning, with the parts where it is and what helps."""
        found = []
        if not self.grad_norm <= MOST_NORM:
            largest = sorted(self.norms, key=lambda part: -_order(self.norms[part]))[:3]
            shown = ", ".join(f"{part} {self.norms[part]:.3g}" for part in largest)
            found.append(f"the gradient norm of the first batch is {self.grad_norm:.3g}, most of it in: {shown}")
        bad = {part: share for part, share in self.saturated.items() if share > WARN_SATURATED}
        if bad:
            shown = ", ".join(f"{part} {share:.0%}" for part, share in sorted(bad.items(), key=lambda row: -row[1]))
            found.append(f"saturated, so that hardly any gradient passes: {shown} of the tanh and sigmoid values")
        return [f"this model may not learn: {problem}; possible remedies: {_CURES}" for problem in found]

    def summary(self) -> str:
        """One line for people."""
        most = max(self.saturated, key=lambda part: self.saturated[part], default=None)
        share = "" if most is None else f", at most {self.saturated[most]:.1%} of a part saturated ({most})"
        return f"start: gradient norm {self.grad_norm:.3g}{share}"


def gradient_norms(model: Seq2Seq) -> dict[str, float]:
    """Norm of the gradient of each part of `model`, in fp64; see `Health`."""
    attentions = _attentions(model)
    squares: dict[str, float] = defaultdict(float)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            squares[_part(name, attentions)] += float(torch.linalg.vector_norm(parameter.grad.double())) ** 2
    return {part: math.sqrt(square) for part, square in squares.items()}


def saturation(model: Seq2Seq, source: Tensor, target: Tensor) -> dict[str, float]:
    """Share of the tanh and sigmoid values of each part beyond SATURATED, for source [B, S] and target [B, T].

    Computed by the plain PyTorch code in evaluation mode, so that nothing random happens.
    """
    watch = _Watch()
    was_training = model.training
    model.eval()
    try:
        with selected("reference"), torch.no_grad(), _watched(model, watch), watch:
            model.token_losses(source, target)
    finally:
        model.train(was_training)
    return watch.shares()


def inspect(model: Seq2Seq, source: Tensor, target: Tensor, *, grad_norm: float = math.inf) -> Health:
    """The health of a model that holds the gradients of its first batch, source [B, S], target [B, T].

    `grad_norm`: their norm before clipping; if it is infinite, they were not clipped.
    """
    norms = gradient_norms(model)
    total = math.sqrt(sum(norm * norm for norm in norms.values()))
    if math.isfinite(grad_norm) and total > 0:
        norms = {part: norm * grad_norm / total for part, norm in norms.items()}
        total = grad_norm
    device = next(model.parameters()).device
    return Health(total, norms, saturation(model, *(ids[:SENTENCES].to(device) for ids in (source, target))))


class _Watch(TorchDispatchMode):
    """Counts what tanh and sigmoid put out, by the part that is at work."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[tuple[str, bool]] = []
        """The parts being computed, the innermost last, and whether its sigmoid computes a tanh."""
        self._values: Counter[str] = Counter()
        self._saturated: Counter[str] = Counter()

    def shares(self) -> dict[str, float]:
        """Share of saturated values of each part that has any."""
        return {part: self._saturated[part] / self._values[part] for part in sorted(self._values)}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.rstrip("_") if isinstance(func, torch._ops.OpOverload) else ""
        if name in ("tanh", "sigmoid") and self.parts:
            part, is_tanh = self.parts[-1]
            low = -SATURATED if name == "tanh" else (1 - SATURATED) / (2 if is_tanh else 1)
            high = SATURATED if name == "tanh" else 1 - low
            self._values[part] += result.numel()
            self._saturated[part] += int(((result > high) | (result < low)).sum())
        return result


@contextmanager
def _watched(model: Seq2Seq, watch: _Watch) -> Iterator[None]:
    """Let the modules of each part notify `watch` when they compute."""
    attentions = _attentions(model)
    changed: list[tuple[nn.Module, str]] = []
    try:
        for name, module in model.named_modules():
            part = (_part(name, attentions), isinstance(module, AdditiveAttention))
            for entrance in _ENTRANCES:
                if name and entrance not in vars(module) and hasattr(module, entrance):
                    setattr(module, entrance, _telling(getattr(module, entrance), part, watch))
                    changed.append((module, entrance))
        yield
    finally:
        for module, entrance in changed:
            delattr(module, entrance)


def _telling(method: Callable[..., Any], part: tuple[str, bool], watch: _Watch) -> Callable[..., Any]:
    @wraps(method)
    def told(*args: Any, **kwargs: Any) -> Any:
        watch.parts.append(part)
        try:
            return method(*args, **kwargs)
        finally:
            watch.parts.pop()

    return told


def _attentions(model: Seq2Seq) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, AdditiveAttention)]


def _part(name: str, attentions: Collection[str]) -> str:
    """The part of a model to which a module or parameter belongs, in words."""
    if name in _TABLES:
        return _TABLES[name]
    layer = re.match(r"(encoder\.|decoder\.|)(?:layers|residuals)\.(\d+)", name)
    part = (
        f"{layer[1].replace('.', ' ')}layer {int(layer[2]) + 1}" if layer else name.partition(".")[0].replace("_", " ")
    )
    inside = any(name == path or name.startswith(f"{path}.") for path in attentions)
    return f"attention of {part}" if inside else part


def _order(norm: float) -> float:
    """For sorting: what is not a number comes with the largest."""
    return math.inf if math.isnan(norm) else norm
