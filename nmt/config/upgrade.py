"""Reading configurations saved by older versions: one rule for each change of a key's meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from nmt.errors import ConfigError, say_once

KEY: Final = "format"
"""The key with the format of a configuration."""
FORMAT: Final = 3
"""The format written by this version. It increases with each change of a key's meaning; a new key needs no new format
if its default keeps the old behaviour."""
UNMARKED: Final = 1
"""The format of saved configurations that do not state it: version 0.1.0 wrote none."""

Rule = Callable[[dict[str, Any]], str | None]
"""Changes a configuration in place, whatever it holds; returns a line about the change, or None if there was none."""


def upgrade(raw: dict[str, Any], *, unmarked: int, origin: str) -> dict[str, Any]:
    """`raw` in the present format and without the format key; changes are reported once per process.

    `unmarked` is the format of a configuration that does not state it. Raises ConfigError for a format that is not
    known.
    """
    raw = dict(raw)
    written = raw.pop(KEY, unmarked)
    if type(written) is not int or written < 1:
        raise ConfigError(f"{origin}: {KEY}: {written!r} is not a format of a configuration. Allowed: 1 to {FORMAT}.")
    if is_newer({KEY: written}):
        raise ConfigError(f"{origin}: {KEY}: {written} was written by a newer version of nmt. Allowed: 1 to {FORMAT}.")
    for number in range(written + 1, FORMAT + 1):
        for rule in RULES[number]:
            line = rule(raw)
            if line is not None:
                say_once(__name__, line)
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
    """A metric that was listed twice was computed twice; now each is listed once, with its options."""
    evaluation = raw.get("evaluation")
    metrics = evaluation.get("metrics") if isinstance(evaluation, dict) else None
    if not isinstance(metrics, list) or not all(isinstance(name, str) for name in metrics):
        return None
    once = list(dict.fromkeys(metrics))
    if len(once) == len(metrics):
        return None
    raw["evaluation"] = {**raw["evaluation"], "metrics": once}
    return "evaluation.metrics: a metric that is listed twice in an older saved configuration is used once"


def _scales_of_one(raw: dict[str, Any]) -> None:
    """The scales of layer norms started from 1, and there was no key to change it."""
    model = raw.get("model")
    if isinstance(model, dict):
        model.setdefault("layer_norm_scale", 1.0)


def _batch_means(raw: dict[str, Any]) -> str | None:
    """`normalization: sentence` took the mean over the batches of an update, which is now called `batch`."""
    training = raw.get("training")
    if not isinstance(training, dict) or training.get("normalization") != "sentence":
        return None
    training["normalization"] = "batch"
    return "training.normalization: 'sentence' in an older saved configuration is read as 'batch'"


def _rewriting_rule(raw: dict[str, Any]) -> None:
    """SentencePiece's normalisation was `nmt_nfkc` where none was named."""
    data = raw.get("data")
    if isinstance(data, dict) and data.get("tokenizer", "sentencepiece") == "sentencepiece":
        options = data.setdefault("tokenizer_options", {})
        if isinstance(options, dict):
            options.setdefault("normalization", "nmt_nfkc")


RULES: Final[Mapping[int, Sequence[Rule]]] = MappingProxyType(
    {2: (_coupled_input, _repeated_metrics, _scales_of_one), 3: (_batch_means, _rewriting_rule)}
)
"""The rules that convert a configuration from the previous format to each format, in the order they apply."""
