"""Options of a search by the engine; what the table of options does not give a file is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from nmt.errors import ConfigError, SettingError, near_miss, refused, shown
from nmt.library.options import chosen_details
from nmt.light.options import NONE, OPTIONS, Option, options_of

DOOR: Final = "file"
INSTEAD: Final = "use the run, or a folder that nmt-export makes of it, for"

Named = Callable[[str], str]
"""The user's name of an option."""


def light_options(
    given: Mapping[str, Any],
    *,
    beam_size: int,
    file: str,
    named: Named = str,
    say: Callable[[str], object],
) -> dict[str, Any]:
    """Convert `nmt.library.options.Options` to options of `nmt.light.Translator`, which checks most values.

    Args:
        beam_size: beam size of the file.
        file: its name in errors.
        named: gives the user's name of an option.
        say: called with one line if more translations than the beam size widen the beam.

    Raises ConfigError, naming the option, if it is unknown or files do not have it.
    """
    taken: dict[str, Any] = {}
    for name, value in given.items():
        option = OPTIONS.get(name)
        if option is None or "run" not in option.doors:
            known = [one.name for one in options_of("run") if one.name != "precision" or named is not str]
            raise SettingError((named(name), f"is not an option.{near_miss(name, known)}"))
        if DOOR not in option.doors:
            if not _asks_nothing(option, value):
                raise SettingError((named(name), _lacking(name, file)))
        elif name == "details":
            taken[name] = chosen_details(given)
            for detail in taken[name]:
                if detail not in option.only[DOOR]:
                    raise ConfigError(_refused(f"{named(name)}: {detail}", file))
        elif name == "batch_tokens":
            _check_batch_tokens(value, named=named)
        elif DOOR in option.only and value not in option.only[DOOR]:
            raise SettingError((named(name), _limited(option, value, file)))
        else:
            taken[name] = value
    is_greedy = taken.get("search") == "greedy"
    n_best, beam = taken.get("n_best", 1), taken.get("beam_size", 1 if is_greedy else beam_size)
    if type(n_best) is int and type(beam) is int and n_best > beam > 0:
        if is_greedy:
            raise ConfigError(f"{named('n_best')} {n_best}: search 'greedy' finds at most 1 per sentence")
        taken["beam_size"] = n_best
        say(f"{named('n_best')} {n_best} widens the beam from {beam} to {n_best}")
    return taken


def refused_wish(name: str, file: str) -> str:
    """Word the error for a wish for one sentence."""
    return _refused(name, file)


def _asks_nothing(option: Option, value: Any) -> bool:
    """Whether a value requests nothing; `True`, which is equal to 1, never does for a number."""
    return value in option.asks_nothing and type(value) in map(type, (*option.asks_nothing, 0))


def _refused(name: str, file: str) -> str:
    return f"{name}: {_lacking(name, file)}"


def _lacking(name: str, file: str) -> str:
    if name == "precision":
        return f"{file} has one number format, which nmt-export has chosen"
    return f"{file} is one file for the engine, which does not have this; {INSTEAD} it"


def _limited(option: Option, value: Any, file: str) -> str:
    if option.only[DOOR] == (NONE,):
        return (
            f"{file} is one file for the engine, whose {option.name} is fixed by nmt-export. Allowed: {NONE}, which "
            f"switches it off."
        )
    allowed = f"Allowed: {', '.join(option.only[DOOR])}; {INSTEAD} others."
    return f"{shown(value)} is not a {option.name} of {file}, one file for the engine. {allowed}"


def _check_batch_tokens(value: Any, *, named: Named) -> None:
    """The engine needs no batch size: how much it computes together depends on the processor."""
    if value != "auto" and (type(value) is not int or value < 1):
        raise SettingError((named("batch_tokens"), refused("", value, "auto, or a number from 1")))
