"""One update of the weights: precision, losses of the batches, gradients, clipping, guard, optimizer, average."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from nmt.errors import CheckpointError, ConfigError, NmtError
from nmt.models.base import PAD, Normalization, Seq2Seq, loss_weights
from nmt.models.parts import DropoutWarmup, number_layers
from nmt.ops.dropout import masked_by
from nmt.ops.hardware import bf16_hardware, device_noun
from nmt.training.batches import Group
from nmt.training.distributed import World
from nmt.training.losses import Loss
from nmt.training.schedules import Schedule
from nmt.training.state import seed_everything

PrecisionName = Literal["auto", "fp32", "bf16", "fp16"]

FP16_CAPABILITY: Final = (7, 0)
"""Compute capability from which GPUs of NVIDIA have matrix units for fp16."""


@dataclass(frozen=True)
class Precision:
    """A chosen number format; `str()` gives the format and the reason in one line."""

    name: Literal["fp32", "bf16", "fp16"]
    reason: str
    device: torch.device

    @property
    def dtype(self) -> torch.dtype | None:
        """What autocast casts to; None for fp32."""
        return {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[self.name]

    def autocast(self) -> AbstractContextManager[object]:
        """Context for forward passes; does nothing for fp32."""
        if self.dtype is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    def grad_scaler(self) -> torch.amp.GradScaler:
        """Loss scaling for fp16; for other formats it is disabled."""
        return torch.amp.GradScaler(self.device.type, enabled=self.name == "fp16")

    def __str__(self) -> str:
        how = "fp32" if self.name == "fp32" else f"{self.name} autocast, fp32 weights"
        return f"precision: {how} ({self.reason})"


def choose_precision(requested: PrecisionName, *, device: torch.device) -> Precision:
    """Turn `training.precision` into what suits `device`.

    `auto` takes bf16 where it is faster than fp32, else fp32. Raises ConfigError for fp16 without CUDA.
    """
    if requested == "fp16" and device.type != "cuda":
        raise ConfigError(
            f"training.precision: 'fp16' needs a CUDA GPU, not {device.type}. Allowed here: auto, fp32, bf16."
        )
    if requested in ("fp32", "fp16"):
        return Precision(requested, "as configured", device)
    hardware = bf16_hardware(device)
    if requested == "auto":
        if hardware:
            return Precision("bf16", f"auto: {hardware}", device)
        fp16 = device.type == "cuda" and torch.cuda.get_device_capability(device) >= FP16_CAPABILITY
        hint = "; it has fp16, for which set training.precision: fp16" if fp16 else ""
        return Precision("fp32", f"auto: this {device_noun(device)} has no fast bf16 arithmetic{hint}", device)
    note = "" if hardware else f"; this {device_noun(device)} is slow in bf16, fp32 may be faster"
    return Precision("bf16", f"as configured{note}", device)


class EMA:
    """Averages of a model's parameters: after each update, average += (1 - d) * (weight - average).

    d = min(decay, (1 + n) / (10 + n)) in update n = 1, 2, ..., so that the random initial weights are soon
    forgotten (as TensorFlow's moving average does when told the number of updates).
    Kept in the precision of the parameters, which is fp32 under autocast.
    """

    def __init__(self, model: nn.Module, *, decay: float) -> None:
        """Start from the model's weights; 0 < decay < 1."""
        if not 0 < decay < 1:
            raise ValueError(f"ema_decay: must be above 0 and below 1, not {decay}")
        self.decay = decay
        self.updates = 0
        self._averages = {name: p.detach().clone() for name, p in model.named_parameters()}
        self._active = False

    def end_validation(self, score: float, *, higher_is_better: bool) -> None:
        """Take in the score of a validation, which does not matter here."""

    def forget_scores(self) -> None:
        """Say that later scores cannot be compared with earlier ones."""

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take in the weights of `model` after an update."""
        assert not self._active, "the model holds the averages now"
        self.updates += 1
        weights = [p.detach() for _, p in model.named_parameters()]
        torch._foreach_lerp_(list(self._averages.values()), weights, self._part())

    def _part(self) -> float:
        """How much of the average the weights of this update become."""
        return 1 - min(self.decay, (1 + self.updates) / (10 + self.updates))

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Within the block, the averages are the weights of `model`; nothing is copied.

        There `model.state_dict()` holds the averages, so save the trained weights outside of it.
        """
        assert not self._active, "the model holds the averages already"
        trained = {name: p.data for name, p in model.named_parameters()}
        self._active = True
        try:
            for name, p in model.named_parameters():
                p.data = self._averages[name]
            yield
        finally:
            for name, p in model.named_parameters():
                p.data = trained[name]
            self._active = False

    def state_dict(self) -> dict[str, Any]:
        """Averages by parameter name and the number of updates; loadable with `weights_only=True`."""
        return {"updates": self.updates, "averages": dict(self._averages)}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`; CheckpointError if it is of another model."""
        saved = state["averages"]
        if saved.keys() != self._averages.keys():
            different = ", ".join(sorted(saved.keys() ^ self._averages.keys()))
            raise CheckpointError(f"the averaged weights are of another model; not in both: {different}")
        for name, average in self._averages.items():
            if saved[name].shape != average.shape:
                shapes = f"{tuple(saved[name].shape)}, expected {tuple(average.shape)}"
                raise CheckpointError(f"the averaged weight {name} has shape {shapes}")
            average.copy_(saved[name])
        self.updates = state["updates"]


class PlateauAverage(EMA):
    """The mean of the weights after each update since validation stopped improving (NT-ASGD).

    It begins with the first validation whose score is not better than the best score before the last `patience`
    validations (Merity et al., ICLR 2018, "non-monotonically triggered"). Until then the weights are not averaged.
    """

    def __init__(self, model: nn.Module, *, patience: int) -> None:
        super().__init__(model, decay=0.5)
        self.patience = patience
        self.has_begun = False
        self._scores: list[float] = []

    def end_validation(self, score: float, *, higher_is_better: bool) -> None:
        """Take in the score of a validation, unless it is NaN, with which nothing can be compared."""
        if math.isnan(score):
            return
        before = self._scores[: max(0, len(self._scores) - self.patience)]
        best = max(before, default=None) if higher_is_better else min(before, default=None)
        if best is not None and not (score > best if higher_is_better else score < best):
            self.has_begun = True
        self._scores.append(score)

    def forget_scores(self) -> None:
        """Compare the next scores with each other alone; an average that has begun continues."""
        self._scores = []

    def update(self, model: nn.Module) -> None:
        """Take in the weights of `model` after an update, if the average has begun."""
        if self.has_begun:
            super().update(model)

    def _part(self) -> float:
        return 1 / self.updates

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """As of `EMA`; before there is an average, the model has its own weights."""
        with super().applied(model) if self.updates else nullcontext():
            yield

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "has_begun": self.has_begun, "scores": list(self._scores)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.has_begun, self._scores = state["has_begun"], list(state["scores"])


class DivergedError(NmtError):
    """Too many consecutive updates had a NaN or infinite loss or gradient, or a gradient that was too large."""


def word_weights(group: Group, target: Tensor, *, normalization: Normalization, sentences: int | None = None) -> Tensor:
    """The weight of each token loss of one batch in the loss of the update of `group`: [B, T], fp64, for ids [B, T].

    `token`: all token losses of all batches, divided by the number of all their tokens, whatever the sizes
    of the batches. `sentence`: the mean over all sentences of all batches of each sentence's mean. `batch` (Zero): the
    mean over batches of the mean over sentences of each sentence's mean.
    Back-propagating the weighted loss of each batch in turn adds up to the gradient of that loss.
    `sentences`: sentences of the whole batch, if `target` has only some of them; the parts add up to its share.
    """
    if normalization == "token":
        return (target != PAD).double() / group.target_tokens
    means = loss_weights(target, normalization=normalization) * len(target)
    if normalization == "sentence":
        return means / group.whole_sentences
    return means / (sentences or len(target)) / group.whole_batches


@torch.no_grad()
def clip_(parameters: Iterable[Tensor], max_norm: float) -> float:
    """Scale all gradients in place by max_norm / max(norm, max_norm), norm being their global L2 norm.

    Returns the norm before clipping. 0 switches clipping off; with a NaN or infinite norm nothing is changed.
    Unlike `torch.nn.utils.clip_grad_norm_` nothing is added to the norm, as in Zero.
    """
    grads = [weight.grad for weight in parameters if weight.grad is not None]
    if not grads:
        return 0.0
    device = grads[0].device
    norms = [norm.to(device) for norm in torch._foreach_norm(grads)]
    norm = float(torch.linalg.vector_norm(torch.stack(norms)))
    if max_norm > 0 and max_norm < norm < math.inf:
        torch._foreach_mul_(grads, max_norm / norm)
    return norm


@dataclass(kw_only=True)
class BadUpdateGuard:
    """Says which updates must be skipped, counts them, and ends training when there are too many in a row."""

    max_bad_updates: int
    """So many in a row are skipped; one more raises DivergedError."""
    skip_norm: float | None = None
    """The largest norm of a gradient that may be applied; by default every finite one may."""
    total: int = 0
    in_a_row: int = 0

    def usable(self, objective: float, norm: float, *, overflow: bool = False) -> bool:
        """Whether an update with this objective and gradient norm may be applied.

        `overflow`: the loss scale of fp16 can still be lowered, so an infinite or NaN *gradient* is nothing
        unusual: it is skipped without being counted.
        """
        finite = math.isfinite(objective) and math.isfinite(norm)
        if finite and not self.too_large(norm):
            self.in_a_row = 0
            return True
        if overflow and math.isfinite(objective) and not finite:
            return False
        self.total += 1
        self.in_a_row += 1
        if self.in_a_row > self.max_bad_updates:
            limit = f", training.skip_norm is {self.skip_norm}" if self.too_large(norm) else ""
            raise DivergedError(
                f"training has diverged: {self.in_a_row} consecutive updates with objective {objective} and gradient "
                f"norm {norm}, training.max_bad_updates is {self.max_bad_updates}{limit}; a lower training.lr or "
                "clip_norm may help"
            )
        return False

    def too_large(self, norm: float) -> bool:
        """Whether a finite norm is above the largest that may be applied; NaN and infinity are something else."""
        return self.skip_norm is not None and math.isfinite(norm) and norm > self.skip_norm

    def state_dict(self) -> dict[str, int]:
        """Both counters."""
        return {"total": self.total, "in_a_row": self.in_a_row}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue counting from a `state_dict`."""
        self.total, self.in_a_row = state["total"], state["in_a_row"]


START = 200
"""Updates in which a gradient that grows is a bad start."""
COMPARED = 10
"""Number of updates whose median norm is compared with the median of the same number of first updates."""
GROWTH = 10.0
EXPLODED = 10.0
"""The gradient has exploded if its norm is above this and above GROWTH times the norm of the first updates."""


class StartingGradient:
    """Watches the gradient's norm in the first updates of a run, or the first ones after it was resumed."""

    def __init__(self) -> None:
        self._norms: list[float] = []
        self._done = False

    def see(self, norm: float, *, step: int) -> str | None:
        """Take the norm, not clipped, of update `step`; a line the first time that it has exploded."""
        if self._done or step > START:
            return None
        self._norms.append(norm)
        if len(self._norms) < 2 * COMPARED:
            return None
        before, now = (statistics.median(part) for part in (self._norms[:COMPARED], self._norms[-COMPARED:]))
        if now <= max(EXPLODED, GROWTH * before):
            return None
        self._done = True
        return (
            f"the gradient explodes: its norm was {before:.3g} at the start and is {now:.3g} at update {step}; "
            f"possible remedies: a lower training.lr, training.schedule: inverse_sqrt, which increases the rate "
            f"slowly, model.layer_norm: true"
        )


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What is minimised, and how far one update may go."""

    loss: Loss
    batch: Callable[[Any, Any, Tensor], Any]
    """What the loss is given: of the model, a batch on its device, and the weights [B, T] of its target."""
    normalization: Normalization
    clip_norm: float


@dataclass(frozen=True)
class Update:
    """What one update did."""

    applied: bool
    """False when the guard skipped it because of a NaN, an infinite value or a gradient above its bound."""
    objective: float
    """The minimised value: the loss with smoothing and normalisation."""
    nll: float
    """Sum of the negative log-likelihoods of its target tokens, in nats."""
    grad_norm: float
    """Global norm of the gradient before clipping."""
    lr: float


@dataclass(eq=False, kw_only=True)
class Updater:
    """The weights and everything that changes them."""

    model: Seq2Seq
    """With the dropouts of its configuration."""
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    objective: Objective
    precision: Precision
    guard: BadUpdateGuard
    ema: EMA | None
    dropout_warmup_steps: int
    world: World
    """The processes that share the batches of each update."""

    def __post_init__(self) -> None:
        self.following: list[Schedule | EMA] = [self.schedule] if self.ema is None else [self.schedule, self.ema]
        """What is told the scores of regular validations."""
        self.scaler = self.precision.grad_scaler()
        self._options = dict(self.optimizer.defaults)  # torch adds to them later
        number_layers(self.model)
        self._dropouts = DropoutWarmup(self.model, steps=self.dropout_warmup_steps)
        self._parameters = [weight for weight in self.model.parameters() if weight.requires_grad]

    def update(self, group: Group, *, step: int) -> Update:
        """Do the update after `step` earlier ones with the batches of `group`.

        Raises DivergedError where too many updates in a row were not finite, or too large.
        """
        self.model.train()
        if group.seed is not None:
            seed_everything(group.seed)
        lr = self.schedule.at_step(step)
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = lr
        self._dropouts.at_step(step)
        self.optimizer.zero_grad(set_to_none=True)
        objective, nll = self.world.add_up(self._parameters, self._backward(group))
        self.scaler.unscale_(self.optimizer)
        norm = clip_(self._parameters, self.objective.clip_norm)
        scale = self.scaler.get_scale()  # 1 where there is none
        objective /= scale
        applied = self.guard.usable(objective, norm, overflow=scale > 1)
        if applied:
            self.scaler.step(self.optimizer)
            if self.ema is not None:
                self.ema.update(self.model)
        self.scaler.update()
        return Update(applied=applied, objective=objective, nll=nll, grad_norm=norm, lr=lr)

    def _backward(self, group: Group) -> Tensor:
        """Add up the gradients of this process's batches; return their part of the objective (scaled) and nll."""
        device, normalization = self.precision.device, self.objective.normalization
        sums = torch.zeros(2, device=device, dtype=torch.float64)
        self.scaler.scale(sums[0])  # the first call makes the scale, and this process may have no batch
        for batch, sentences, masks in zip(group.batches, group.sentences, group.masks, strict=True):
            moved = batch.to(device)
            shares = word_weights(group, moved.target, normalization=normalization, sentences=sentences)
            weights = self.scaler.scale(shares)
            with masked_by(masks):
                with self.precision.autocast():
                    loss = self.objective.loss(self.objective.batch(self.model, moved, weights))
                sums[0] += loss.total.detach()
                sums[1] += loss.nll.sum()
                loss.total.backward()
        return sums

    @contextmanager
    def inference_weights(self) -> Iterator[Seq2Seq]:
        """The model in evaluation mode with the weights to validate and save: the moving average where there is one."""
        self.model.eval()
        try:
            with nullcontext() if self.ema is None else self.ema.applied(self.model):
                yield self.model
        finally:
            self.model.train()

    def fingerprint(self) -> str:
        """A line that is the same as long as the weights are, bit for bit."""
        return " ".join(float(weight.detach().double().sum()).hex() for weight in self.model.parameters())

    def state_dict(self) -> dict[str, Any]:
        """All of this but the inference weights; with a moving average the trained weights as well."""
        state: dict[str, Any] = {
            "optimizer": {"options": dict(self._options), "state": self.optimizer.state_dict()},
            "schedule": {
                "kind": type(self.schedule).__name__,
                "lr": self.schedule.lr,
                "state": self.schedule.state_dict(),
            },
            "scaler": self.scaler.state_dict(),
            "guard": self.guard.state_dict(),
            "loss": self.objective.loss.state_dict(self.world),
        }
        if self.ema is not None:
            own = {name: value for name, value in self.ema.state_dict().items() if name != "averages"}
            state |= {"average": own, "trained_weights": dict(self.model.state_dict())}
        return state

    def load(self, weights: dict[str, Tensor], state: dict[str, Any]) -> list[str]:
        """Restore saved inference weights and a `state_dict`; return lines for people about what is reset.

        Switching an average on, or to another kind, starts it from the saved weights; switching it off continues from
        the trained ones.
        """
        if self.ema is not None:
            averages = {name: weights[name] for name, _ in self.model.named_parameters()}
            own = self.ema.state_dict()
            # Earlier versions saved only the number of updates.
            saved = state.get("average", {"updates": state.get("ema_updates", 0)})
            if {*saved, "averages"} != own.keys():  # of another kind of average
                saved = {}
            self.ema.load_state_dict({**own, **saved, "averages": averages})
        self.model.load_state_dict(state.get("trained_weights", weights))
        if state["scaler"] and self.scaler.is_enabled():
            self.scaler.load_state_dict(state["scaler"])
        self.guard.load_state_dict(state["guard"])
        self.objective.loss.load_state_dict(state.get("loss", {}))
        self.optimizer.load_state_dict(state["optimizer"]["state"])
        # load_state_dict brings the old options back; what the configuration changed since must hold.
        for name, value in self._options.items():
            if value != state["optimizer"]["options"].get(name):
                for group in self.optimizer.param_groups:
                    group[name] = value
        saved, kind = state["schedule"], type(self.schedule).__name__
        if saved["kind"] != kind:
            change = f"schedule: {saved['kind']} -> {kind}"
            return [f"{change}, which starts with this resume if it depends on earlier updates"]
        # Schedules that remember their rate follow a changed training.lr in proportion.
        changed = self.schedule.lr / saved["lr"]
        self.schedule.load_state_dict({**saved["state"], "rate": saved["state"]["rate"] * changed})
        return []
