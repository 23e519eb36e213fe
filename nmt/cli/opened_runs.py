"""Runs and model folders that are ready to translate, by torch."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from nmt.cli.decoding_options import overridden
from nmt.cli.opened import Opened
from nmt.cli.totals import shortest_training
from nmt.config.schema import AUTO
from nmt.data.sentences import lines_of_all
from nmt.interop.ensemble import load_models, names_of
from nmt.registry import SEARCHES
from nmt.search import Translator

if TYPE_CHECKING:
    import torch

    from nmt.config import DecodingConfig


def open_runs(
    arguments: argparse.Namespace,
    *,
    device: str | torch.device,
    place: str,
    scores: bool,
    say: Callable[[str], object] | None,
    before_batch: Callable[[], object] | None,
    on_batch: Callable[[int], object],
) -> Opened:
    """The models of a command line, on `device`; see `OpenModels`."""
    models = load_models(arguments.models, plugins=arguments.plugins, device=device, checkpoint=arguments.checkpoint)
    loaded, *others = models
    decoding = overridden(loaded.config.decoding, arguments, say=say)
    translator = Translator(
        loaded.model,
        loaded.tokenizer,
        decoding,
        others=[other.model for other in others],
        scores=scores,
        before_batch=before_batch,
        on_batch=on_batch,
        lines=lines_of_all([model.lines for model in models]),
    )
    return Opened(
        translator,
        len(models),
        decoding.n_best,
        f"{names_of(models)} on {place}, {_search(decoding)}, {translator.precision}",
        (loaded.config.data.source_language, loaded.config.data.target_language),
        shortest_training(models),
        loaded.tokenizer.joined_target,
    )


def _search(decoding: DecodingConfig) -> str:
    named = "" if decoding.search == AUTO else f"search {decoding.search}, "
    fused = "" if decoding.language_model is None else f", with the language model {decoding.language_model}"
    return f"{named}{SEARCHES.get(decoding.chosen_search).size(decoding)}{fused}"
