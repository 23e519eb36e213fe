"""Options of a search by the engine: those that it has, and the rest refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, get_type_hints

from nmt.errors import ConfigError, near_miss, shown
from nmt.library.options import NONE, OWN, Options, chosen_details
from nmt.light.translator import NOT_TOLD

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
"""Options that the engine does not have, and values by which nothing is asked for; "none" takes away a shortlist."""
INSTEAD: Final = "the run, or a folder that nmt-export makes of it, has"

Named = Callable[[str], str]
"""What a user calls an option."""


def light_options(
    given: Mapping[str, Any],
    *,
    beam_size: int,
    file: str,
    named: Named = str,
    say: Callable[[str], object],
) -> dict[str, Any]:
    """Options of `nmt.light.Translator` from those of `nmt.library.options.Options`; values are left to the engine.

    Args:
        beam_size: of the file.
        file: what errors call it.
        named: what a user calls an option.
        say: is told in one line that more translations than the beam holds widen it.

    Raises ConfigError, naming the option, for one that there is not, or that the engine does not have.
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
            raise ConfigError(f"{named(name)}: {file} has one number format, in which nmt-export has written it")
        elif name not in _WITHOUT_EFFECT:
            known = [*get_type_hints(Options), *(() if named is str else ("precision",))]
            raise ConfigError(f"{named(name)}: there is no such option.{near_miss(name, known)}")
        elif type(value) is bool and value or value not in _WITHOUT_EFFECT[name]:
            raise ConfigError(_refused(named(name), file))
        elif name == "shortlist":
            taken[name] = False
    n_best, beam = taken.get("n_best", 1), taken.get("beam_size", beam_size)
    if type(n_best) is int and type(beam) is int and n_best > beam > 0:
        if taken.get("search") == "greedy":
            raise ConfigError(f"{named('n_best')} {n_best}: search 'greedy' finds at most 1 of a sentence")
        taken["beam_size"] = n_best
        say(f"{named('n_best')} {n_best} widens the beam from {beam} to {n_best}")
    return taken


def refused_wish(name: str, file: str) -> str:
    """What is said of a wish for one sentence."""
    return _refused(name, file)


def _refused(name: str, file: str) -> str:
    if name.lstrip("-") == "shortlist":
        return (
            f"{name}: {file} is one file for the engine, with the shortlist that nmt-export has put into it, or none. "
            f"Allowed: {NONE}, which takes it away."
        )
    return f"{name}: {file} is one file for the engine, which does not have this; {INSTEAD} it"


def _search(value: Any, *, file: str, named: Named) -> Any:
    if value not in _SEARCHES:
        raise ConfigError(
            f"{named('search')}: {shown(value)} is none of the searches of {file}, one file for the engine. Allowed: "
            f"{', '.join(_SEARCHES)}; {INSTEAD} others."
        )
    return value


def _check_batch_tokens(value: Any, *, named: Named) -> None:
    """The engine needs none: what it computes together depends on the processor."""
    if value != "auto" and (type(value) is not int or value < 1):
        raise ConfigError(f"{named('batch_tokens')}: {shown(value)} is not allowed. Allowed: auto, or a number from 1.")
