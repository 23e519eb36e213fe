"""Decoding settings of a model, changed by a command line or a program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from nmt.config.problems import type_problems
from nmt.config.schema import AUTO, DecodingConfig
from nmt.errors import ConfigError, SettingError
from nmt.light.options import OPTIONS
from nmt.registry import SEARCHES


def changed_decoding(
    saved: DecodingConfig,
    changes: Mapping[str, Any],
    *,
    option: Callable[[str], str] = str,
    say: Callable[[str], object] | None = None,
) -> DecodingConfig:
    """`saved` with the keys in `changes` (of the section `decoding`) replaced.

    A search other than the saved one starts from its own default options, and with the beam size that it needs. If more
    translations are wanted than a search finds with this beam, the beam is widened and `say` is called with one line.
    `option` gives the user's name of a key. Raises ConfigError for keys and values that are not allowed or do not go
    together.
    """
    if changes.get("language_model", "") is None:
        changes = {"language_model_weight": None, **changes}  # the saved weight was for the saved language model
    try:
        decoding = dataclasses.replace(saved, **changes)
    except ValidationError as error:
        known = [field.name for field in dataclasses.fields(DecodingConfig)]
        problems = type_problems(error, known=known)
        raise SettingError(*((option(problem.key), problem.message) for problem in problems)) from None
    if decoding.chosen_search not in SEARCHES.names():
        raise SettingError((option("search"), SEARCHES.unknown(decoding.search, also=(AUTO,))))
    if decoding.chosen_search != saved.chosen_search and "search_options" not in changes:
        decoding = dataclasses.replace(decoding, search_options={})  # the saved ones were for the saved search
    search = SEARCHES.get(decoding.chosen_search)
    if "search" in changes and "beam_size" not in changes and search.only_beam_size is not None:
        decoding = dataclasses.replace(decoding, beam_size=search.only_beam_size)
    most = search.largest_n_best(decoding)
    if decoding.n_best <= most:
        return decoding
    if "n_best" not in changes:
        return dataclasses.replace(decoding, n_best=most)  # the saved n_best was for the saved search and beam
    return _widened(decoding, name=option("n_best"), say=say)


def _widened(decoding: DecodingConfig, *, name: str, say: Callable[[str], object] | None) -> DecodingConfig:
    """`decoding` with a beam of n_best hypotheses, or the next size that the search can divide."""
    wanted, widest = decoding.n_best, int(OPTIONS["beam_size"].most)
    wider = dataclasses.replace(decoding, beam_size=min(wanted, widest))
    search = SEARCHES.get(wider.chosen_search)
    most = search.largest_n_best(wider)
    if most < wanted:
        raise ConfigError(f"{name} {wanted}: search '{wider.chosen_search}' finds at most {most} per sentence")
    sizes = range(wanted, min(2 * wanted, widest) + 1)
    candidates = (dataclasses.replace(decoding, beam_size=size) for size in sizes)
    wider = next((candidate for candidate in candidates if not search.problems(candidate)), wider)
    if say is not None:
        say(f"{name} {wanted} widens the beam from {decoding.beam_size} to {wider.beam_size}")
    return wider
