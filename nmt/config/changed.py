"""The decoding settings of a model with others in their place, from a command line or a program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from nmt.config.problems import type_problems
from nmt.config.schema import AUTO, DecodingConfig
from nmt.errors import ConfigError
from nmt.registry import SEARCHES


def changed_decoding(
    saved: DecodingConfig, changes: Mapping[str, Any], *, option: Callable[[str], str] = str
) -> DecodingConfig:
    """`saved` with `changes`, keys of the section `decoding`, in their place.

    Another search than the saved one has the options that are its defaults. `option` is what the user calls a key.
    Raises ConfigError for keys and values that are not allowed, and for such as do not go together.
    """
    changes = dict(changes)
    if "n_best" not in changes:
        beam = changes.get("beam_size")
        if isinstance(beam, int) and beam < saved.n_best:
            changes["n_best"] = beam  # the saved n_best was for the saved beam
    try:
        decoding = dataclasses.replace(saved, **changes)
    except ValidationError as error:
        known = [field.name for field in dataclasses.fields(DecodingConfig)]
        problems = type_problems(error, known=known)
        raise ConfigError("; ".join(f"{option(problem.key)}: {problem.message}" for problem in problems)) from None
    if decoding.chosen_search not in SEARCHES.names():
        raise ConfigError(f"{option('search')}: {SEARCHES.unknown(decoding.search, also=(AUTO,))}")
    if decoding.chosen_search != saved.chosen_search and "search_options" not in changes:
        decoding = dataclasses.replace(decoding, search_options={})  # the saved ones were for the saved search
    if decoding.n_best > decoding.beam_size:
        raise ConfigError(f"{option('n_best')} {decoding.n_best} must not exceed the beam size, {decoding.beam_size}")
    return decoding
