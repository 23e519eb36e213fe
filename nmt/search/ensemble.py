"""Models as a search runs them: converted to a number format once, for any number of translators (fp32, bf16, or int8
for matrices of the decoder or of both sides); several searched, and asked for scores, as one, by default by the mean of
their probabilities, as in Zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.config.schema import DecodingConfig
from nmt.data import PAD
from nmt.errors import SettingError, counted
from nmt.models.base import Seq2Seq, drop_padding_columns
from nmt.models.graphed import GraphedModel
from nmt.models.inference import inference_copy
from nmt.models.parts import OutputWords
from nmt.ops.hardware import bf16_hardware, device_noun
from nmt.ops.matrices import int8_implementation
from nmt.ops.matrices.best_words import BestWords, Choice, best_words, log_probabilities
from nmt.search.shortlist import Restrictable, Shortlist

_TOO_LARGE_FOR_BF16 = 2.0**128 - 2.0**119
"""From here on bf16, with its 8 bits, rounds to infinity."""

PrecisionName = Literal["auto", "fp32", "bf16", "int8"]

_USABLE: Final = MappingProxyType({"fp32": ("fp32", "bf16", "int8"), "bf16": ("fp32", "bf16"), "int8": ("int8",)})
"""Number formats in which a search can run, by the format of exported weights. Those in bf16 are numbers of
fp32, too; rounding them once more, to int8, would lose more than rounding those of training."""


@dataclass(frozen=True)
class SearchPrecision:
    """A chosen number format; `str()` gives the format and the reason."""

    name: Literal["fp32", "bf16", "int8"]
    reason: str
    bf16: bool
    """Whether the parts that are not int8 are bf16."""
    device: torch.device

    def converted(self, model: Seq2Seq) -> Seq2Seq:
        """The model to search with, inside `autocast`; shares what need not change.

        Raises ConfigError for weights that would be infinite in this number format.
        """
        for name, weight in model.named_parameters() if self.bf16 else ():
            if weight.dtype == torch.float32:
                largest = max(abs(float(value)) for value in weight.detach().aminmax())
                if _TOO_LARGE_FOR_BF16 <= largest < math.inf:
                    raise SettingError(("precision", f"{name} holds {largest:.4g}, too large for bf16; choose fp32"))
        return inference_copy(model, bf16=self.bf16, int8=self.name == "int8")

    def autocast(self) -> AbstractContextManager[object]:
        """Context for the steps of a search; does nothing without bf16."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16) if self.bf16 else nullcontext()

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})"


def choose_search_precision(
    requested: PrecisionName, *, device: torch.device, models: Sequence[Seq2Seq] = ()
) -> SearchPrecision:
    """Resolve `decoding.precision` for `device` and `models`, one or an ensemble.

    `auto` takes the format of exported models, else bf16 if it is faster than fp32.

    Raises:
        ConfigError: a model was exported in another number format, so that its weights are no longer there.
    """
    stored = {model.stored.precision for model in models if model.stored is not None}
    note = ""
    if requested == "auto" and stored:
        # What is stored in fp32 can be anything; of others there can be no two.
        requested = next((name for name in ("int8", "bf16") if name in stored), "fp32")
        note = "as exported"
    for name in sorted(stored):
        if requested not in _USABLE[name]:
            allowed = ", ".join(("auto", *_USABLE[name]))
            message = f"{requested} is not possible, because the model was exported in {name}. Allowed: {allowed}."
            raise SettingError(("precision", f"{message} For {requested} use the run, or export it in {requested}."))
    hardware = bf16_hardware(device)
    without = f"this {device_noun(device)} has no fast bf16 arithmetic"
    if requested == "int8":
        rest = f"bf16 elsewhere: {hardware}" if hardware else f"fp32 elsewhere: {without}"
        reason = f"by {int8_implementation(device)}; {rest}"
        return SearchPrecision("int8", f"{note}, {reason}" if note else reason, bool(hardware), device)
    if requested == "auto":
        if hardware:
            return SearchPrecision("bf16", f"auto: {hardware}", True, device)
        return SearchPrecision("fp32", f"auto: {without}", False, device)
    slow = "; slow here, fp32 may be faster" if requested == "bf16" and not hardware else ""
    return SearchPrecision(requested, f"{note or 'as configured'}{slow}", requested == "bf16", device)


class PreparedModels(NamedTuple):
    """The models of one translator, or of several that differ only in their settings."""

    precision: SearchPrecision
    models: list[Seq2Seq]
    """With converted weights; run them within `precision.autocast()`."""
    graphed: list[GraphedModel]
    """The same, whose steps are CUDA graphs on a GPU."""
    shortlists: dict[str, Shortlist]
    """Those that have been read, by their files."""
    language_models: dict[str, Any]
    """Those that have been loaded, by their directories."""


def prepare_models(
    models: Sequence[Seq2Seq], *, precision: PrecisionName, device: torch.device | str | None = None
) -> PreparedModels:
    """Use the present weights of `models`, which are in evaluation mode; at least one model.

    `device` is the device of all models; by default that of the first model's first parameter. Raises ConfigError for
    weights that this number format cannot hold.
    """
    place = next(models[0].parameters()).device if device is None else torch.device(device)
    chosen = choose_search_precision(precision, device=place, models=models)
    converted = [chosen.converted(model) for model in models]
    return PreparedModels(chosen, converted, [GraphedModel(model) for model in converted], {}, {})


MeanOf = Literal["probabilities", "log_probabilities"]


class EnsembleMean(NamedTuple):
    """The mean of the distributions of K models."""

    weights: tuple[float, ...] | None = None
    """Weights of the models, in order, which add up to 1; None for equal weights."""
    of: MeanOf = "probabilities"
    """`log_probabilities`: the logarithms are averaged and the result normalised, the product of experts."""

    def attention(self, weights: Sequence[Tensor]) -> Tensor:
        """The mean [N, S] of what the models attend to, each [N, S]."""
        stacked = torch.stack(list(weights))
        if self.weights is None:
            return stacked.mean(0)
        return (stacked * stacked.new_tensor(self.weights)[:, None, None]).sum(0)


EQUAL = EnsembleMean()
"""The mean of the probabilities of models that count the same."""


class RunningMean:
    """The mean of log-probabilities that come model by model, of all words or of single ones."""

    def __init__(self, how: EnsembleMean) -> None:
        self._how = how
        self._total: Tensor | None = None
        self._count = 0

    def add(self, log_probs: Tensor) -> None:
        """One more model's."""
        weights, total = self._how.weights, self._total
        weight = None if weights is None else weights[self._count]
        self._count += 1
        if self._how.of == "log_probabilities":
            share = log_probs if weight is None else log_probs * weight
            self._total = share if total is None else total + share
            return
        share = log_probs if weight is None else log_probs + math.log(weight)
        self._total = share if total is None else torch.logaddexp(total, share)

    def result(self) -> Tensor:
        """Logarithms of the mean; for a mean of logarithms, all members must have been added."""
        total = self._total
        assert total is not None
        if self._how.of == "log_probabilities":
            if self._how.weights is None and self._count > 1:
                total = total / self._count
            return total if self._count == 1 else total.log_softmax(-1)
        return total if self._how.weights is not None or self._count == 1 else total.sub_(math.log(self._count))


def ensemble_mean(decoding: DecodingConfig, *, models: int) -> EnsembleMean:
    """The mean configured in the section `decoding`; ConfigError if it is for another number of models."""
    weights = decoding.ensemble_weights
    if weights is None:
        return EnsembleMean(None, decoding.ensemble_mean)
    if len(weights) != models:
        raise SettingError(("decoding.ensemble_weights", wrong_number(len(weights), models=models)))
    return EnsembleMean(tuple(weight / sum(weights) for weight in weights), decoding.ensemble_mean)


def wrong_number(weights: int, *, models: int) -> str:
    """The message about a wrong number of weights."""
    return f"{counted(weights, 'weight')} for {counted(models, 'model')}; give one for each"


_CELLS = 1 << 24
"""Most log-probabilities at a time: 64 MiB in fp32."""

M = TypeVar("M", bound=Restrictable[Any, OutputWords])


class EnsembleState(NamedTuple):
    """The states of all members, with the same hypotheses in the same rows."""

    members: tuple[Any, ...]

    def expand(self, k: int) -> EnsembleState:
        return EnsembleState(tuple(state.expand(k) for state in self.members))

    def reorder(self, rows: Tensor) -> EnsembleState:
        return EnsembleState(tuple(state.reorder(rows) for state in self.members))

    def keep(self, sentences: Tensor) -> EnsembleState:
        return EnsembleState(tuple(state.keep(sentences) for state in self.members))


class EnsembleWords(NamedTuple):
    """The same words in the output layer of each member."""

    members: tuple[OutputWords, ...]

    @property
    def ids(self) -> Tensor:
        """[U]"""
        return self.members[0].ids

    def keep(self, sentences: Tensor) -> EnsembleWords:
        return EnsembleWords(tuple(words.keep(sentences) for words in self.members))


class Ensemble:
    """K models over the same vocabularies, with the logits ln((1/K) sum_k softmax(logits_k)), or another mean.

    They run one after the other. Softmax and mean are computed in at least fp32 and with logarithms, so that very
    improbable words keep their order.
    """

    def __init__(self, members: Sequence[Restrictable[Any, OutputWords]], *, mean: EnsembleMean = EQUAL) -> None:
        self._members = tuple(members)
        self._mean = mean

    def start(self, source: Tensor) -> EnsembleState:
        """The state before the first word, one row for each sentence of source [B, S]."""
        return EnsembleState(tuple(member.start(source) for member in self._members))

    def among(self, ids: Tensor, forbidden: Tensor) -> EnsembleWords:
        """The words `ids` [U]; `forbidden` [B, U] marks those that a sentence must not use."""
        return EnsembleWords(tuple(member.among(ids, forbidden) for member in self._members))

    def step(
        self, tokens: Tensor | None, state: EnsembleState, words: EnsembleWords | None = None
    ) -> tuple[Tensor, EnsembleState]:
        """Log-probabilities [N, V] of the next word after `tokens` [N], the last words of the N rows of `state`.

        Among U `words` [N, U], and tokens are places in them. None in place of the tokens is the zero vector.
        """
        mean, states = RunningMean(self._mean), []
        for member, before, own in self._each(state, words):
            logits, after = member.step(tokens, before, own)
            states.append(after)
            mean.add(log_probabilities(logits))
        return mean.result(), EnsembleState(tuple(states))

    def attending_step(
        self, tokens: Tensor | None, state: EnsembleState, words: EnsembleWords | None = None
    ) -> tuple[Tensor, Tensor, EnsembleState]:
        """As `step`, between log-probabilities and state the mean of the members' attention [N, S]."""
        mean, states, attention = RunningMean(self._mean), [], []
        for member, before, own in self._each(state, words):
            logits, weights, after = member.attending_step(tokens, before, own)
            states.append(after)
            attention.append(weights)
            mean.add(log_probabilities(logits))
        return mean.result(), self._mean.attention(attention), EnsembleState(tuple(states))

    def _each(
        self, state: EnsembleState, words: EnsembleWords | None
    ) -> Iterator[tuple[Restrictable[Any, OutputWords], Any, OutputWords | None]]:
        """Each member, its state and its words."""
        owned: Sequence[OutputWords | None] = [None] * len(self._members) if words is None else words.members
        return zip(self._members, state.members, owned, strict=True)

    def best(
        self, tokens: Tensor | None, state: EnsembleState, choice: Choice, words: EnsembleWords | None = None
    ) -> tuple[BestWords, EnsembleState]:
        """As `step`, but what `choice` asks for; always by the members' probabilities, scores wanted or not."""
        logits, state = self.step(tokens, state, words)
        return best_words(logits, choice), state


def as_one(members: Sequence[M], *, mean: EnsembleMean = EQUAL) -> M | Ensemble:
    """What to search with `members`: the only one there is, or their ensemble."""
    return members[0] if len(members) == 1 else Ensemble(members, mean=mean)


@torch.no_grad()
def mean_nll(models: Sequence[Seq2Seq], source: Tensor, target: Tensor, *, mean: EnsembleMean = EQUAL) -> Tensor:
    """Mean negative log-probability [B] that the ensemble gives the words of each target; lower is better.

    source [B, S], target [B, T]. Takes no more memory than the model that takes most, and for a mean of
    log-probabilities a few times _CELLS numbers.
    """
    words = drop_padding_columns(target) != PAD  # [B, T']
    if mean.of == "log_probabilities" and len(models) > 1:
        log_probs = _all_words(models, source, target, mean=mean)
    else:
        total = RunningMean(mean)
        for model in models:
            total.add(-model.token_losses(source, target))
        log_probs = total.result()
    return -log_probs.masked_fill(~words, 0.0).sum(1) / words.sum(1).clamp(min=1)


def _all_words(models: Sequence[Seq2Seq], source: Tensor, target: Tensor, *, mean: EnsembleMean) -> Tensor:
    """Log-probabilities [B, T'] of the target words by a mean that has to be normalised, some sentences at a time."""
    target = drop_padding_columns(target)
    sentences = max(1, _CELLS // (target.shape[1] * models[0].target_vocab_size))
    found = []
    for start in range(0, len(target), sentences):
        rows = slice(start, start + sentences)
        total = RunningMean(mean)
        for model in models:
            logits = model(source[rows], target[rows])  # [b, T'', V]
            total.add(log_probabilities(logits))
        log_probs = total.result()
        words = target[rows, : log_probs.shape[1]]
        picked = log_probs.gather(2, words.unsqueeze(2)).squeeze(2)
        found.append(F.pad(picked, (0, target.shape[1] - picked.shape[1])))
    return torch.cat(found)
