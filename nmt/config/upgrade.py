"""Reading configurations that older versions have saved: one rule for each change of what a key means."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from nmt.errors import ConfigError, say_once

logger = logging.getLogger(__name__)

KEY: Final = "format"
"""Where a configuration says in which format it is."""
FORMAT: Final = 2
"""That of the configurations this version writes. It grows with each change of what a key means; a new key needs none
if its default is how things were without it."""
UNMARKED: Final = 1
"""That of saved configurations that say nothing: version 0.1.0 wrote no format."""

Rule = Callable[[dict[str, Any]], str | None]
"""Changes a configuration in place, whatever it holds; returns a line that says so, None if there was nothing to do."""


def upgrade(raw: dict[str, Any], *, unmarked: int, origin: str) -> dict[str, Any]:
    """`raw` in the present format and without its mark; what is read as something else is said, once in a process.

    `unmarked` is the format of a configuration that names none. Raises ConfigError for a format that is not known.
    """
    raw = dict(raw)
    written = raw.pop(KEY, unmarked)
    if type(written) is not int or written < 1:
        raise ConfigError(f"{origin}: {KEY}: {written!r} is no format of a configuration. Allowed: 1 to {FORMAT}.")
    if is_newer({KEY: written}):
        raise ConfigError(f"{origin}: {KEY}: {written} is that of a newer version of nmt. Allowed: 1 to {FORMAT}.")
    for number in range(written + 1, FORMAT + 1):
        for rule in RULES[number]:
            line = rule(raw)
            if line is not None:
                say_once(logger, line)
    return raw


def is_newer(raw: Mapping[str, Any]) -> bool:
    """Whether a later version of nmt has written this configuration."""
    written = raw.get(KEY)
    return type(written) is int and written > FORMAT


def _coupled_input(raw: dict[str, Any]) -> str | None:
    """ATR's `gates: coupled` was f = 1 - i, which is now called `coupled_input`."""
    model = raw.get("model")
    if not isinstance(model, dict):
        return None
    found = False
    for side in ("", "encoder_", "decoder_"):
        options = model.get(f"{side}cell_options")
        unit = model.get(f"{side}cell") or model.get("cell")
        if unit == "atr" and isinstance(options, dict) and options.get("gates") == "coupled":
            options["gates"] = "coupled_input"
            found = True
    if not found:
        return None
    return "model.cell_options.gates: 'coupled' in an older saved configuration is read as 'coupled_input' (f = 1 - i)"


def _repeated_metrics(raw: dict[str, Any]) -> str | None:
    """A metric that was there twice was computed twice; now each is there once, with its options."""
    evaluation = raw.get("evaluation")
    metrics = evaluation.get("metrics") if isinstance(evaluation, dict) else None
    if not isinstance(metrics, list) or not all(isinstance(name, str) for name in metrics):
        return None
    once = list(dict.fromkeys(metrics))
    if len(once) == len(metrics):
        return None
    raw["evaluation"] = {**raw["evaluation"], "metrics": once}
    return "evaluation.metrics: a metric that is there twice in an older saved configuration is read as once"


def _scales_of_one(raw: dict[str, Any]) -> None:
    """The scales of layer norms began at 1 where nothing was said of them, and nothing could be."""
    model = raw.get("model")
    if isinstance(model, dict):
        model.setdefault("layer_norm_scale", 1.0)


RULES: Final[Mapping[int, Sequence[Rule]]] = MappingProxyType({2: (_coupled_input, _repeated_metrics, _scales_of_one)})
"""The rules that make a configuration of the format before into one of each format, in the order they apply."""
