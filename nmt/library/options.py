"""Options of a call: the keys of the section `decoding`, by their names in nmt-translate."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from nmt.errors import ConfigError, shown
from nmt.search.translation import DETAILS, Details, check_details


class Options(TypedDict, total=False):
    """Missing options are taken from the configuration of the (first) model."""

    search: str
    """beam, greedy, a plugin's search, or auto: greedy for a beam size of 1, else beam"""
    search_options: dict[str, Any]
    """Options of the search."""
    beam_size: int
    """Hypotheses kept."""
    n_best: int
    """Translations of each sentence; more than the beam size widen the beam, which is logged."""
    length_penalty: float
    """alpha in ((5 + length) / 6) ** alpha, 0 to 10"""
    coverage_penalty: float
    """weight of the penalty for source words without attention, 0 to 10"""
    max_length_offset: int
    """How many more tokens than its source a translation may have."""
    min_length: int
    """Smallest number of tokens of a translation."""
    no_repeat_ngram: int
    """N: no sequence of N tokens occurs twice in a translation; 0: no limit."""
    ensemble_weights: list[float] | Literal["none"]
    """Relative weights of the models of an ensemble."""
    ensemble_mean: Literal["probabilities", "log_probabilities"]
    """What an ensemble averages."""
    prefix: str
    """Text that the translation begins with, see `Request`."""
    required: str | Sequence[str]
    """Phrases that it must contain."""
    forbidden: str | Sequence[str]
    """Phrases that it must not contain."""
    split_long: int | Literal["none"]
    """N: a sentence of more than N source tokens is translated in parts, cut at sentence ends."""
    batch_tokens: int | Literal["auto"]
    """Source tokens in a batch, times the beam size."""
    shortlist: str | os.PathLike[str]
    """File made by nmt-shortlist with the allowed words; "none" allows all words."""
    language_model: str | os.PathLike[str]
    """Directory of a language model to use in the search; "none": no language model."""
    language_model_weight: float
    """Weight of the language model, 0 to 10."""
    replace_unknown: bool
    """Replace each unknown word in the translation by the source word it attends to most."""
    placeholders: bool
    """Copy {name}, <tag>, web and e-mail addresses unchanged, each as often as in the source."""
    glossary: str | os.PathLike[str]
    """File of lines `term TAB translation`: how terms must be translated; "none": no glossary."""
    details: Sequence[Literal["tokens", "scores", "entropies", "attention", "heads", "alignment"]]
    """Details of each translation in addition to text and score; all except the tokens need another run of the
    decoder."""
    scores: bool
    """False leaves the scores out (NaN), which makes greedy search faster."""


NONE = "none"
"""Value that switches off a setting of the model's configuration."""
WITHOUT = ("split_long", "shortlist", "ensemble_weights", "glossary", "language_model")
"""Keys that can be switched off in this way."""
OWN = {"scores": True, "details": ()}
"""Options that are not in the section `decoding`, with their defaults."""


def chosen_details(options: Mapping[str, Any]) -> Details:
    """The details as a tuple; a single one may be given as a string. Raises ConfigError for unknown details."""
    found = options.get("details", OWN["details"])
    if isinstance(found, str):
        found = (found,)
    if not isinstance(found, list | tuple | set | frozenset) or not all(isinstance(name, str) for name in found):
        raise ConfigError(f"details: {shown(found)} is not a list of words. Allowed: {', '.join(DETAILS)}.")
    check_details(tuple(found))
    return tuple(found)
