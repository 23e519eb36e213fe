"""What can be set for a call: the keys of the section `decoding`, by the names that nmt-translate has for them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from nmt.errors import ConfigError, shown
from nmt.search.translation import DETAILS, Details, check_details


class Options(TypedDict, total=False):
    """What is not given is as the configuration of the model says, of several the first."""

    search: str
    """beam, greedy, one of a plugin, or auto: greedy for a beam size of 1, else beam"""
    search_options: dict[str, Any]
    """Options of the search."""
    beam_size: int
    """Hypotheses kept."""
    n_best: int
    """Translations of each sentence; more than the beam holds widen it, which is logged."""
    length_penalty: float
    """alpha in ((5 + length) / 6) ** alpha, 0 to 10"""
    coverage_penalty: float
    """beta of the penalty for source words that nothing attends to, 0 to 10"""
    max_length_offset: int
    """Tokens a translation may have more than its source."""
    min_length: int
    """Tokens a translation has at least."""
    no_repeat_ngram: int
    """No sequence of so many tokens comes twice in a translation; 0 allows it."""
    ensemble_weights: list[float] | Literal["none"]
    """How much each of several models counts, in any unit."""
    ensemble_mean: Literal["probabilities", "log_probabilities"]
    """What of several models is averaged."""
    prefix: str
    """What the translation begins with, see `Request`."""
    required: str | Sequence[str]
    """Phrases that it contains."""
    forbidden: str | Sequence[str]
    """Phrases that it does not contain."""
    split_long: int | Literal["none"]
    """A sentence of more than so many source tokens is translated in parts, cut at sentence ends."""
    batch_tokens: int | Literal["auto"]
    """Source tokens in a batch, times the beam."""
    shortlist: str | os.PathLike[str]
    """File made by nmt-shortlist: words to choose from; "none" allows all words."""
    language_model: str | os.PathLike[str]
    """Directory of a language model that joins the search; "none": none."""
    language_model_weight: float
    """How much it counts, 0 to 10."""
    replace_unknown: bool
    """Where the translation has an unknown word, write the source word that it comes from."""
    placeholders: bool
    """Keep {name}, <tag>, web and e-mail addresses as they are, each as often as in the source."""
    glossary: str | os.PathLike[str]
    """File of lines `term TAB translation`: write these translations; "none": no glossary."""
    details: Sequence[Literal["tokens", "scores", "entropies", "attention", "heads", "alignment"]]
    """What each translation has besides its text and score; all but the tokens take another run of the decoder."""
    scores: bool
    """False leaves the scores out (NaN), which makes greedy search faster."""


NONE = "none"
"""Takes away what the configuration of a model says."""
WITHOUT = ("split_long", "shortlist", "ensemble_weights", "glossary", "language_model")
"""Keys that can be taken away so."""
OWN = {"scores": True, "details": ()}
"""Options that are not in the section `decoding`, with their defaults."""


def chosen_details(options: Mapping[str, Any]) -> Details:
    """What is to be known of each translation, where one may be named alone; raises ConfigError for other words."""
    found = options.get("details", OWN["details"])
    if isinstance(found, str):
        found = (found,)
    if not isinstance(found, list | tuple | set | frozenset) or not all(isinstance(name, str) for name in found):
        raise ConfigError(f"details: {shown(found)} is not a list of words. Allowed: {', '.join(DETAILS)}.")
    check_details(tuple(found))
    return tuple(found)
