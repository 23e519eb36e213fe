"""Models as a search runs them: converted to a number format once, for any number of translators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from nmt.config.schema import DecodingConfig
from nmt.data import Tokenizer
from nmt.models.base import Seq2Seq
from nmt.models.graphed import GraphedModel
from nmt.models.language_model import LanguageModel
from nmt.search.fusion import Fusion, fusion_of, load_language_model
from nmt.search.precision import PrecisionName, SearchPrecision, choose_search_precision
from nmt.search.shortlist import Shortlist, load_shortlist


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

    @property
    def device(self) -> torch.device:
        """Where all of them are."""
        return self.precision.device

    def shortlist(self, path: str, tokenizer: Tokenizer) -> Shortlist:
        """The shortlist of a file, read once; errors are those of `load_shortlist`."""
        if path not in self.shortlists:
            self.shortlists[path] = load_shortlist(path, tokenizer)
        return self.shortlists[path]

    def fusion(self, decoding: DecodingConfig, tokenizer: Tokenizer) -> Fusion | None:
        """The language model named in `decoding`, loaded once; errors are those of `load_language_model`."""

        def load(path: str) -> LanguageModel:
            if path not in self.language_models:
                self.language_models[path] = load_language_model(path, tokenizer, device=self.device)
            return self.language_models[path]

        return fusion_of(decoding, load)

    @property
    def vocabulary(self) -> int:
        """Entries of the target vocabulary."""
        return self.models[0].target_vocab_size


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
