"""Optimizers and schedules from hyper-parameters of the original Zero system, with which ours are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from nmt.config import component_options
from nmt.errors import ConfigError, refused
from nmt.optimization.optimizers import AdamTF
from nmt.registry import SCHEDULES
from nmt.training.schedules import Schedule

_SCHEDULES = {
    "noam": ("noam", {"warmup_steps": "warmup_steps"}),
    "gnmt+": (
        "gnmt+",
        {
            "warmup_steps": "warmup_steps",
            "nstable": "replicas",
            "lrdecay_start": "decay_start",
            "lrdecay_end": "decay_end",
        },
    ),
    "epoch": ("epoch", {"lrate_decay": "decay"}),
    "score": ("score", {"lrate_decay": "decay", "lrate_patience": "patience"}),
    "cosine": (
        "cosine",
        {
            "warmup_steps": "warmup_steps",
            "lrate_decay": "decay",
            "cosine_period": "period",
            "cosine_factor": "period_factor",
        },
    ),
    "vanilla": ("constant", {}),
}
"""Zero's `lrate_strategy`: the schedule's name here, and its options by Zero's name for each."""

_RANGE_DEFAULTS = {"min_lrate": 0.0, "max_lrate": 1.0}
_RANGE = {"min_lrate": "min_lr", "max_lrate": "max_lr"}
_ADAM = {"beta1": "beta1", "beta2": "beta2", "epsilon": "epsilon"}


def schedule_from_zero(config: Mapping[str, Any]) -> Schedule:
    """The schedule that Zero's hyper-parameters describe (`lrate_strategy`, `lrate`, `min_lrate`, ...).

    Those that `config` leaves out keep their defaults. Raises ConfigError naming what is wrong.
    """
    strategy = config.get("lrate_strategy")
    if strategy not in _SCHEDULES:
        raise ConfigError(refused("lrate_strategy", strategy, sorted(_SCHEDULES), problem="is not known"))
    name, names = _SCHEDULES[strategy]
    values = _renamed(_RANGE_DEFAULTS | dict(config), names | _RANGE)
    options = component_options(SCHEDULES.get(name), values, key="schedule_options")
    hidden_size = int(_required(config, "hidden_size")) if name == "noam" else 1
    lr = float(_required(config, "lrate"))
    made: Schedule = SCHEDULES.get(name)(lr=lr, hidden_size=hidden_size, options=options)
    return made


def optimizer_from_zero(config: Mapping[str, Any], parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """Zero's optimizer, TensorFlow's Adam, with its `lrate`, `beta1`, `beta2` and `epsilon`."""
    options = component_options(AdamTF, _renamed(config, _ADAM), key="optimizer_options")
    return AdamTF(parameters, lr=float(_required(config, "lrate")), options=options)


def _required(config: Mapping[str, Any], name: str) -> Any:
    if name not in config:
        raise ConfigError(f"{name}: missing in the hyper-parameters")
    return config[name]


def _renamed(config: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The values of `config` that `names` lists, under their names here."""
    return {ours: config[zeros] for zeros, ours in names.items() if zeros in config}
