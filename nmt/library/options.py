"""Options of a call as type checkers know them; `nmt.light.options` describes them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypedDict

from nmt.errors import ConfigError, refused
from nmt.light.options import OPTIONS
from nmt.search.translation import DETAILS, Details, check_details

Path = str | os.PathLike[str]


class Options(TypedDict, total=False):
    """Options of `Translator.translate`, by the names in docs/decoding_options.md, which has their meanings and ranges.

    Missing ones are taken from the configuration of the (first) model; "none" switches off what that has set.
    """

    search: str
    search_options: dict[str, Any]
    beam_size: int
    n_best: int
    length_penalty: float
    coverage_penalty: float
    max_length_offset: int
    min_length: int
    no_repeat_ngram: int
    repeat_penalty: float
    split: Literal["auto", "sentences", "none"]
    split_long: int | Literal["none"]
    batch_tokens: int | Literal["auto"]
    shortlist: Path
    language_model: Path
    language_model_weight: float
    replace_unknown: bool
    placeholders: bool
    glossary: Path
    ensemble_weights: list[float] | Literal["none"]
    ensemble_mean: Literal["probabilities", "log_probabilities"]
    prefix: str
    required: str | Sequence[str]
    forbidden: str | Sequence[str]
    details: Sequence[Literal["tokens", "scores", "entropies", "attention", "heads", "alignment"]]
    scores: bool


OWN: Final = {name: OPTIONS[name].default for name in ("details", "scores")}
"""Options that belong neither to a sentence nor to the section `decoding`, with their defaults."""


def chosen_details(options: Mapping[str, Any]) -> Details:
    """The details as a tuple; a single one may be given as a string. Raises ConfigError for unknown details."""
    found = options.get("details", OWN["details"])
    if isinstance(found, str):
        found = (found,)
    if not isinstance(found, list | tuple | set | frozenset) or not all(isinstance(name, str) for name in found):
        raise ConfigError(refused("details", found, ", ".join(DETAILS), problem="is not a list of words"))
    check_details(tuple(found))
    return tuple(found)
