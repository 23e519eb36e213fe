"""Options of a search by the engine; options that it does not have are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, get_type_hints

from nmt.errors import ConfigError, near_miss, shown
from nmt.library.options import NONE, OWN, Options, chosen_details
from nmt.light.translator import NOT_TOLD
from nmt.setting_error import SettingError

_SEARCHES: Final = ("auto", "beam", "greedy")
_OWN: Final = ("beam_size", "n_best", "length_penalty", "max_length_offset", "split_long", *OWN)
"""Options that the engine has under the same names."""
_WITHOUT_EFFECT: Final[Mapping[str, tuple[Any, ...]]] = {
    "search_options": ({},),
    "coverage_penalty": (0,),
    "min_length": (0,),
    "no_repeat_ngram": (0,),
    "ensemble_weights": (NONE,),
    "ensemble_mean": ("probabilities",),
    "replace_unknown": (False,),
    "placeholders": (False,),
    "glossary": (NONE,),
    "language_model": (NONE,),
    "language_model_weight": (),
    "shortlist": (NONE,),
}
"""Options that the engine does not have, with the values that request nothing; "none" switches off a shortlist."""
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
    """Convert `nmt.library.options.Options` to options of `nmt.light.Translator`; the engine checks the values.

    Args:
        beam_size: beam size of the file.
        file: its name in errors.
        named: gives the user's name of an option.
        say: called with one line if more translations than the beam size widen the beam.

    Raises ConfigError, naming the option, if it is unknown or the engine does not have it.
    """
    taken: dict[str, Any] = {}
    for name, value in given.items():
        if name == "details":
            taken[name] = chosen_details(given)
            for detail in taken[name]:
                if detail in NOT_TOLD:
                    raise ConfigError(_refused(f"{named(name)}: {detail}", file))
        elif name in _OWN:
            taken[name] = value
        elif name == "search":
            taken[name] = _search(value, file=file, named=named)
        elif name == "batch_tokens":
            _check_batch_tokens(value, named=named)
        elif name == "precision":
            raise SettingError((named(name), f"{file} has one number format, which nmt-export has chosen"))
        elif name not in _WITHOUT_EFFECT:
            known = [*get_type_hints(Options), *(() if named is str else ("precision",))]
            raise SettingError((named(name), f"is not an option.{near_miss(name, known)}"))
        elif type(value) is bool and value or value not in _WITHOUT_EFFECT[name]:
            raise SettingError((named(name), _lacking(name, file)))
        elif name == "shortlist":
            taken[name] = False
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


def _refused(name: str, file: str) -> str:
    return f"{name}: {_lacking(name, file)}"


def _lacking(name: str, file: str) -> str:
    if name == "shortlist":
        return (
            f"{file} is one file for the engine, whose shortlist is fixed by nmt-export. Allowed: {NONE}, which "
            f"switches it off."
        )
    return f"{file} is one file for the engine, which does not have this; {INSTEAD} it"


def _search(value: Any, *, file: str, named: Named) -> Any:
    if value not in _SEARCHES:
        allowed = f"Allowed: {', '.join(_SEARCHES)}; {INSTEAD} others."
        message = f"{shown(value)} is not a search of {file}, one file for the engine. {allowed}"
        raise SettingError((named("search"), message))
    return value


def _check_batch_tokens(value: Any, *, named: Named) -> None:
    """The engine needs no batch size: how much it computes together depends on the processor."""
    if value != "auto" and (type(value) is not int or value < 1):
        message = f"{shown(value)} is not allowed. Allowed: auto, or a number from 1."
        raise SettingError((named("batch_tokens"), message))
