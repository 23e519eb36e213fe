"""What a program asks for and gets: requests, options, results, inner values. All can be pickled."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from nmt.errors import ConfigError, refused, shown
from nmt.light.options import OPTIONS
from nmt.light.results import Hypothesis, PairScore, Result
from nmt.search.values import DETAILS, Details, check_details
from nmt.search.values import Request as Asked

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Numbers = NDArray[float32]


@dataclass(frozen=True)
class Request(Asked):
    """A sentence, and what its translation must begin with, must contain and must not contain.

    `prefix`: with a space at its end its last word is complete. `required`, `forbidden`: phrases; any list of strings,
    or one string.
    """

    def __post_init__(self) -> None:
        for name in ("text", "prefix"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be a string, not {shown(getattr(self, name))}")
        for name in ("required", "forbidden"):
            given: object = getattr(self, name)
            phrases = (given,) if isinstance(given, str) else given
            if not isinstance(phrases, tuple | list) or not all(isinstance(phrase, str) for phrase in phrases):
                raise TypeError(f"{name} must be a string or a list of strings, not {shown(given)}")
            object.__setattr__(self, name, tuple(phrases))


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


@dataclass(frozen=True, eq=False)
class UnitTrace:
    """The values of a recurrent unit while it read N tokens, in fp32 and in the order of the tokens."""

    unit: str
    """Its name in the configuration, such as `lrn`; for an unregistered class, the class name."""
    reverse: bool
    """Whether it read from the last token to the first."""
    tokens: tuple[str, ...] = field(repr=False)
    """The N tokens: the source tokens or, in a decoder, `<bos>` and all target tokens except the last, because each
    token is predicted from the tokens before it. Empty if unknown, in parts of plugins."""
    states: Numbers = field(repr=False)
    """[N, H]: h after each token, before an activation of the output alone, if the unit has one."""
    gates: dict[str, Numbers] = field(repr=False)
    """Gates, [N, H] each, by their names in the unit's equation; empty for a unit that names none."""
    memory: Numbers | None = field(repr=False)
    """[N, N]: how much of token k (column) is in the state after token t (row): the mean over the dimensions of
    |i_k * f_(k+1) * ... * f_t|, including the factors by which other cells of the layer multiply this unit's state.
    None if a state is not updated in this way: no input and forget gate, or a tanh around the new state."""
    cell: Numbers | None = field(default=None, repr=False)
    """[N, H]: the memory c after each token, for units that have one in addition to h."""


@dataclass(frozen=True, eq=False)
class Inspection:
    """A sentence and its translation as a model reads them, with NumPy arrays in fp32.

    S and T are the numbers of source and target tokens. Everything is computed in fp32 by the equations of the units,
    without kernels, whatever the precision of the search. For an ensemble, `token_scores` and `token_entropies` belong
    to the averaged probabilities, and each name in `attention` and `units` begins with the number of the model:
    `0.decoder.0`.
    """

    source: str
    target: str
    """The given target, or else the best translation."""
    source_tokens: tuple[str, ...] = field(repr=False)
    """Source tokens as the model reads them, with the end symbol."""
    target_tokens: tuple[str, ...] = field(repr=False)
    """The same for the target; without the end symbol if the length limit has cut the best translation."""
    token_scores: Numbers = field(repr=False)
    """[T]: log-probability of each target token given the tokens before it."""
    token_entropies: Numbers = field(repr=False)
    """[T]: entropy of the distribution of each target token, in nats."""
    attention: dict[str, Numbers] = field(repr=False)
    """[heads, T, S] by the layer that attends, lowest first: `decoder.0`, ...; [heads, N, N] for self-attention, whose
    names end with `.self`. Modules of plugins that do not report their attention are missing."""
    units: dict[str, UnitTrace] = field(repr=False)
    """By side, layer and direction: `encoder.0.forward`, `encoder.0.backward`, `encoder.1`, `decoder.0`, ...; for a
    layer with two cells `decoder.0.lower`, which reads the tokens, and `decoder.0.higher`, which reads the context."""

    @property
    def source_attention(self) -> Numbers:
        """The mean over all heads of all attentions to the source [T, S], as `details=["attention"]` gives it.

        For an ensemble, models are averaged without their weights. Zeros if no attention is reported.
        """
        import numpy as np

        heads = [weights for name, weights in self.attention.items() if not name.endswith(".self")]
        if not heads:
            return np.zeros((len(self.target_tokens), len(self.source_tokens)), dtype=np.float32)
        found: Any = np.concatenate(heads).mean(0, dtype=np.float32)
        return found

    def __repr__(self) -> str:
        return f"Inspection({self.source!r}, {self.target!r}, units={[*self.units]}, attention={[*self.attention]})"
