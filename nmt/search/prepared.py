"""Models as a search runs them: converted to a number format once, for any number of translators.

fp32, bf16, or int8 for matrices of the decoder or of both sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

import torch

from nmt.errors import SettingError
from nmt.models.base import Seq2Seq
from nmt.models.graphed import GraphedModel
from nmt.models.inference import inference_copy
from nmt.ops.hardware import bf16_hardware, device_noun
from nmt.ops.matrices import int8_implementation
from nmt.search.ruled import LanguageModel
from nmt.search.shortlist import Shortlist

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
        if self.bf16:
            _check_range(model)
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


def _check_range(model: Seq2Seq) -> None:
    for name, weight in model.named_parameters():
        if weight.dtype == torch.float32:
            largest = max(abs(float(value)) for value in weight.detach().aminmax())
            if _TOO_LARGE_FOR_BF16 <= largest < math.inf:
                raise SettingError(("precision", f"{name} holds {largest:.4g}, too large for bf16; choose fp32"))


class PreparedModels(NamedTuple):
    """The models of one translator, or of several that differ only in their settings."""

    precision: SearchPrecision
    models: list[Seq2Seq]
    """With converted weights; run them within `precision.autocast()`."""
    graphed: list[GraphedModel]
    """The same, whose steps are CUDA graphs on a GPU."""
    shortlists: dict[str, Shortlist]
    """Those that have been read, by their files."""
    language_models: dict[str, LanguageModel]
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
