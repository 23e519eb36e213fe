"""Users' own code during training: the contract of callbacks, and the code that calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from nmt.config import component_options
from nmt.config.schema import Choice, Config
from nmt.errors import NmtError
from nmt.models.base import Seq2Seq
from nmt.registry import CALLBACKS, NoOptions


class StopTraining(Exception):  # noqa: N818
    """Raised by a callback to end training; its text gives the reason. The last weights are validated and saved."""


class Start(NamedTuple):
    """The argument of `on_start`."""

    run: Path
    """The run directory."""
    config: Config
    model: Seq2Seq
    """As it is trained. It must be left in training mode."""
    step: int
    """Updates done so far; more than 0 in a run that is resumed."""
    rank: int
    """Which of the processes of the run this is, from 0."""


class UpdateResult(NamedTuple):
    """The argument of `on_update`, the same in all processes of a run."""

    step: int
    """Updates done, with this one."""
    epoch: float
    """Passes over the data."""
    loss: float
    """Cross entropy in nats for each target token, without smoothing."""
    objective: float
    """What was minimised."""
    grad_norm: float
    """Before clipping."""
    lr: float
    target_tokens: int
    """In the batches of the update."""
    applied: bool
    """False where the update was skipped: it is not counted in `step` then."""


class ValidationResult(NamedTuple):
    """The argument of `on_validation`, the same in all processes of a run."""

    step: int
    scores: Mapping[str, float]
    """`loss`, and one for each of `evaluation.metrics`."""
    new_best: bool
    samples: Sequence[Mapping[str, str]] = ()
    """`source`, `reference`, `translation`, of named sets `set`, of `evaluation.samples` sentences, always the same."""


class End(NamedTuple):
    """The argument of `on_end`."""

    step: int
    reason: str
    finished: bool
    """False if the same command resumes the run, for example after a signal."""


class Callback:
    """Called during training; a plugin derives its callback from this class and defines the hooks that it needs.

    An exception in a hook ends training with an error, except StopTraining.
    """

    Options: ClassVar[type] = NoOptions
    """Frozen dataclass of the callback's options, against which those in `training.callbacks` are checked."""
    every_rank: ClassVar[bool] = False
    """Whether each process of a run has one, as something that changes the model needs; else rank 0 alone."""

    def __init__(self, *, options: Any = None) -> None:
        self.options = self.Options() if options is None else options

    def on_start(self, start: Start) -> None:
        """Training begins or, after `load_state_dict`, resumes."""

    def on_update(self, update: UpdateResult) -> None:
        """An update has been done, or skipped."""

    def on_validation(self, validation: ValidationResult) -> None:
        """A validation has been done."""

    def on_checkpoint(self, path: Path) -> None:
        """A checkpoint has been written: the directory. It may be deleted later, see `training.keep_last`."""

    def on_end(self, end: End) -> None:
        """Training has ended without an error, and everything is saved."""

    def state_dict(self) -> dict[str, Any]:
        """What is kept in checkpoints: numbers, text, tensors, lists and mappings of these. That of rank 0."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a `state_dict`, before `on_start`."""


class CallbackError(NmtError):
    """A callback failed with an error, or its state cannot be saved."""


class Callbacks:
    """The callbacks of a run, in the order of the configuration, and the wish of one of them to stop."""

    def __init__(self, chosen: Sequence[Choice] = (), *, is_main: bool = True) -> None:
        """Create the callbacks (some on rank 0 only). Raises ConfigError like the registry."""
        self._chosen = {choice.name: dict(choice.options) for choice in chosen}
        self._members: dict[str, Callback] = {}
        self.stopped: dict[str, Any] | None = None
        """The wish of the first that has asked to stop training."""
        for name, options in self._chosen.items():
            kind = CALLBACKS.get(name)
            if is_main or kind.every_rank:
                self._members[name] = kind(options=component_options(kind, options, key=f"training.callbacks.{name}"))

    @property
    def stop_reason(self) -> str:
        """Why one has asked to stop, for people; other processes know it only of callbacks that they have."""
        return "a callback has asked to stop" if self.stopped is None else _worded(self.stopped)

    def call(self, hook: str, called: Callable[[Callback], object]) -> None:
        """Do `called`, which calls this hook, with all of them."""
        for name, member in self._members.items():
            try:
                called(member)
            except StopTraining as stop:
                if self.stopped is None:
                    self.stopped = {"name": name, "options": self._chosen[name], "reason": str(stop)}
            except NmtError as error:
                raise CallbackError(f"callback '{name}', {hook}: {error}") from error

    def state_dict(self) -> dict[str, Any]:
        """The states of all by name, and the wish to stop.

        Raises CallbackError where a state holds what no checkpoint can.
        """
        states = {name: member.state_dict() for name, member in self._members.items()}
        for name, state in states.items():
            if (wrong := _not_plain(state)) is not None:
                allowed = "numbers, text, tensors, lists and mappings of these"
                kind = type(wrong).__name__
                raise CallbackError(f"callback '{name}': its state_dict holds a {kind}. Allowed: {allowed}.")
        return {"states": states, "stopped": self.stopped}

    def load_state_dict(self, saved: Mapping[str, Any]) -> list[str]:
        """Restore the states of callbacks that still exist; return lines for people about the others.

        A request to stop holds as long as its callback exists with the same options.
        """
        states = saved.get("states", {})
        for name, member in self._members.items():
            if name in states:
                member.load_state_dict(states[name])
        if stop_of(saved, self._chosen) is not None:
            self.stopped = saved["stopped"]
        gone = [name for name in states if name not in self._chosen]
        new = [name for name in self._chosen if name not in states]
        return [
            *(f"callback '{name}' is no longer there; its state is dropped" for name in gone),
            *(f"callback '{name}' is new and starts now" for name in new),
        ]


def stop_of(saved: Mapping[str, Any], chosen: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The reason why a callback ended a saved run, if it is still among those chosen, with the options of then."""
    stopped = saved.get("stopped")
    if stopped is None or chosen.get(stopped["name"]) != stopped["options"]:
        return None
    return _worded(stopped)


def _worded(stopped: Mapping[str, Any]) -> str:
    why = f": {stopped['reason']}" if stopped["reason"] else ""
    return f"callback '{stopped['name']}' has asked to stop{why}"


def _not_plain(value: Any) -> Any:
    """What `torch.load` with `weights_only` would refuse of a value; None if it takes all of it."""
    if value is None or isinstance(value, Tensor) or type(value) in (bool, int, float, str):
        return None
    if type(value) in (list, tuple, dict):
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        return next((wrong for part in parts if (wrong := _not_plain(part)) is not None), None)
    return value
