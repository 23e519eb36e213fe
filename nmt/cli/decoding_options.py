"""Search options of every command that translates; they replace the settings saved with the model."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from nmt.cli.argument_types import ensemble_weights, number_of, whole_of
from nmt.errors import ConfigError, shown
from nmt.light.options import NONE, OPTIONS, Option, as_keys, command_option

if TYPE_CHECKING:
    from nmt.config import DecodingConfig

DECODING: Final = tuple(name for name, option in OPTIONS.items() if option.is_key)
"""Options of a command line that are keys of the section `decoding`."""
_WITH_OPTION: Final = tuple(name for name in DECODING if name != "n_best")
"""`n_best` has a place of its own among the options of each command."""
_ENSEMBLE: Final = ("ensemble_weights", "ensemble_mean")


def add_decoding(group: argparse._ActionsContainer, names: Sequence[str] = _WITH_OPTION) -> None:
    """Add options of the table to a command that translates; `overridden` reads them, and `n_best`."""
    for name in names:
        group.add_argument(command_option(name), dest=name, help=OPTIONS[name].help, **_reading(OPTIONS[name]))


def add_n_best(group: argparse._ActionsContainer, *, help: str | None = None, default: int | None = None) -> None:
    """Add --n-best."""
    option = OPTIONS["n_best"]
    help = help or f"{option.meaning}; a smaller beam is widened"
    read = whole_of(OPTIONS["beam_size"])  # which is widened to it
    group.add_argument("--n-best", metavar=option.metavar, type=read, default=default, help=help)


def _reading(option: Option) -> dict[str, Any]:
    """How argparse reads the value of an option."""
    readers = {"whole": whole_of, "number": number_of, "weights": lambda _: ensemble_weights}
    if option.kind == "flag":
        return {"action": argparse.BooleanOptionalAction}
    if option.kind == "choice":
        return {"choices": option.choices}
    if option.kind == "pairs":
        return {"metavar": option.metavar, "action": "append"}
    return {"metavar": option.metavar} | ({"type": readers[option.kind](option)} if option.kind in readers else {})


def add_ensemble(group: argparse._ActionsContainer) -> None:
    """Add the options of an ensemble, which scoring has, too."""
    add_decoding(group, _ENSEMBLE)


def check_ensemble(arguments: argparse.Namespace, *, models: int) -> None:
    """Raise ConfigError for ensemble options that do not fit the number of models."""
    weights = arguments.ensemble_weights
    if weights not in (None, NONE) and len(weights) != models:
        from nmt.search.ensemble import wrong_number

        raise ConfigError(f"--ensemble-weights: {wrong_number(len(weights), models=models)}")
    if arguments.ensemble_mean is not None and models == 1:
        raise ConfigError("--ensemble-mean: there is only 1 model; give several")


def with_ensemble(decoding: DecodingConfig, arguments: argparse.Namespace) -> DecodingConfig:
    """`decoding` changed by the options of `add_ensemble`."""
    given = {name: getattr(arguments, name) for name in _ENSEMBLE if getattr(arguments, name) is not None}
    return dataclasses.replace(decoding, **as_keys(given))


def overridden(
    decoding: DecodingConfig, arguments: argparse.Namespace, *, say: Callable[[str], object] | None = None
) -> DecodingConfig:
    """The decoding settings of a model, changed by a command line; `say` as in `changed_decoding`."""
    from nmt.config.changed import changed_decoding

    changes = {name: getattr(arguments, name) for name in DECODING if getattr(arguments, name) is not None}
    changes = as_keys(changes)
    if "search_options" in changes:
        given = search_options(changes.pop("search_options"))
        plain = changed_decoding(decoding, changes, option=command_option)
        # plain: without the saved search's options if another search is chosen
        changes["search_options"] = {**plain.search_options, **given}
    return changed_decoding(decoding, changes, option=command_option, say=say)


def search_options(given: Sequence[str]) -> dict[str, Any]:
    """Search options from KEY=VALUE; values are YAML, as for --set."""
    from nmt.config.yaml12 import read_yaml

    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--search-option {shown(text)[1:-1]}: must be KEY=VALUE, such as temperature=0.7")
        if key.strip() in found:
            raise ConfigError(f"--search-option {key.strip()}: given twice")
        try:
            found[key.strip()] = read_yaml(value, origin="value").value
        except ConfigError as error:
            message = str(error).removeprefix("value: ").removeprefix("line 1: ")
            raise ConfigError(f"--search-option {key.strip()}: {message}") from None
    return found
