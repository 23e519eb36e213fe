"""What a program asks for and gets: requests, options, results, inner values. All can be pickled."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from nmt.errors import ConfigError, refused
from nmt.light.options import OPTIONS
from nmt.light.results import Hypothesis, PairScore, Result
from nmt.search.values import DETAILS, Detail, Details, check_details
from nmt.search.values import Request as Request

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Numbers = NDArray[float32]


WISHES = ("prefix", "required", "forbidden")
"""The wishes of a request."""


__all__ = ["Hypothesis", "PairScore", "Result"]


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
    length_normalization: Literal["gnmt", "power"]
    coverage_penalty: float
    max_length_offset: int
    max_length_factor: float
    min_length: int
    no_repeat_ngram: int
    repeat_penalty: float
    target_language: str
    domain: str
    split: Literal["auto", "sentences", "none"]
    capitals: Literal["keep", "lower"]
    split_long: int | Literal["none"]
    batch_tokens: int | Literal["auto"]
    shortlist: Path
    language_model: Path
    language_model_weight: float
    replace_unknown: bool
    placeholders: bool
    glossary: Path | Mapping[str, str]
    ensemble_weights: list[float] | Literal["none"]
    ensemble_mean: Literal["probabilities", "log_probabilities"]
    prefix: str | Sequence[str]
    required: str | Sequence[str]
    forbidden: str | Sequence[str]
    details: Sequence[Detail]
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


def with_arrays(result: Result) -> Result:
    """The same with all attention as NumPy arrays in fp32, from tensors or lists."""
    if result.best.attention_of_parts is None and result.best.heads_of_parts is None:
        return result
    import numpy as np

    def array(part: Any) -> Any:
        found = np.array(part, dtype=np.float32) if isinstance(part, list) else part.float().cpu().numpy()
        return found if found.ndim > 1 else found.reshape(len(found), 0)

    def own(found: Hypothesis) -> Hypothesis:
        parts, heads = found.attention_of_parts, found.heads_of_parts
        return replace(
            found,
            attention_of_parts=None if parts is None else tuple(map(array, parts or ([],))),
            heads_of_parts=None
            if heads is None
            else tuple({name: array(value) for name, value in part.items()} for part in heads),
        )

    return replace(result, n_best=[*map(own, result.n_best)])


START: Final = "<bos>"
"""The name of the decoder's input before the first token, which in the model is a vector of zeros."""
