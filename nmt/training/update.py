"""One update of the weights: losses of the batches, gradients, clipping, guard, optimizer, moving average."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nmt.models.base import Normalization, Seq2Seq
from nmt.models.parts import DropoutWarmup, number_layers
from nmt.ops.dropout import masked_by
from nmt.training.batches import Group
from nmt.training.distributed import World
from nmt.training.ema import EMA
from nmt.training.gradients import Accumulation, BadUpdateGuard, clip_
from nmt.training.losses import Loss
from nmt.training.precision import Precision
from nmt.training.random_state import seed_everything
from nmt.training.schedules import Schedule


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


class Updater:
    """The weights and everything that changes them."""

    def __init__(
        self,
        model: Seq2Seq,
        optimizer: torch.optim.Optimizer,
        *,
        schedule: Schedule,
        objective: Objective,
        precision: Precision,
        guard: BadUpdateGuard,
        ema: EMA | None = None,
        dropout_warmup_steps: int = 0,
        world: World | None = None,
    ) -> None:
        """Of a model with the dropouts of its configuration.

        `world`: the processes that share the batches of each update; by default only this one.
        """
        self.model = model
        self.optimizer = optimizer
        self.schedule = schedule
        self.objective = objective
        self.precision = precision
        self.guard = guard
        self.ema = ema
        self.world = World(precision.device) if world is None else world
        self.scaler = precision.grad_scaler()
        self._options = dict(optimizer.defaults)  # torch adds to them later
        number_layers(model)
        self._dropouts = DropoutWarmup(model, steps=dropout_warmup_steps)
        self._parameters = [weight for weight in model.parameters() if weight.requires_grad]

    def update(self, group: Group, *, step: int) -> Update:
        """Do the update after `step` earlier ones with the batches of `group`.

        Raises:
            DivergedError: too many updates in a row were not finite, or too large.
        """
        self.model.train()
        if group.seed is not None:
            seed_everything(group.seed)
        lr = self._set_rate(step)
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

    def _set_rate(self, step: int) -> float:
        lr = self.schedule.at_step(step)
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = lr
        return lr

    def _backward(self, group: Group) -> Tensor:
        """Add up the gradients of this process's batches; return their part of the objective (scaled) and nll."""
        share = Accumulation.of_size(
            batches=group.whole_batches,
            sentences=group.whole_sentences,
            tokens=group.target_tokens,
            normalization=self.objective.normalization,
        )
        device = self.precision.device
        sums = torch.zeros(2, device=device, dtype=torch.float64)
        self.scaler.scale(sums[0])  # the first call makes the scale, and this process may have no batch
        for batch, sentences, masks in zip(group.batches, group.sentences, group.masks, strict=True):
            moved = batch.to(device)
            weights = self.scaler.scale(share.weights(moved.target, sentences=sentences))
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
            if self.ema is None:
                yield self.model
            else:
                with self.ema.applied(self.model):
                    yield self.model
        finally:
            self.model.train()

    def end_validation(self, score: float, *, higher_is_better: bool) -> None:
        """Let the schedule and the average see the score of a regular validation."""
        self.schedule.end_validation(score, higher_is_better=higher_is_better)
        if self.ema is not None:
            self.ema.end_validation(score, higher_is_better=higher_is_better)

    def forget_scores(self) -> None:
        """Tell the schedule and the average that later scores cannot be compared with earlier ones."""
        self.schedule.forget_scores()
        if self.ema is not None:
            self.ema.forget_scores()

    def fingerprint(self) -> str:
        """A line that is the same as long as the weights are, bit for bit."""
        return " ".join(float(weight.detach().double().sum()).hex() for weight in self.model.parameters())

    def state_dict(self) -> dict[str, Any]:
        """All of this but the inference weights; with a moving average the trained weights as well."""
        state: dict[str, Any] = {
            "optimizer": {
                "options": dict(self._options),
                "state": self.optimizer.state_dict(),
            },
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
        self._load_optimizer(state["optimizer"])
        return self._load_schedule(state["schedule"])

    def _load_optimizer(self, saved: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(saved["state"])
        # load_state_dict brings the old options back; what the configuration changed since must hold.
        for name, value in self._options.items():
            if value != saved["options"].get(name):
                for group in self.optimizer.param_groups:
                    group[name] = value

    def _load_schedule(self, saved: dict[str, Any]) -> list[str]:
        kind = type(self.schedule).__name__
        if saved["kind"] != kind:
            return [
                f"schedule: {saved['kind']} -> {kind}, which starts with this resume if it depends on earlier updates"
            ]
        # Schedules that remember their rate follow a changed training.lr in proportion.
        changed = self.schedule.lr / saved["lr"]
        self.schedule.load_state_dict({**saved["state"], "rate": saved["state"]["rate"] * changed})
        return []
