"""What all exports say of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nmt import __version__
from nmt.data.corpus import SIDES
from nmt.models.build import parameters_by_part

if TYPE_CHECKING:
    from nmt.interop.model_dir import LoadedModel

MAKER = "made_by"
"""Key in the metadata of averaged weights: the run around them made them, and may replace them."""


def facts_for_tools(loaded: LoadedModel, *, precision: str) -> dict[str, Any]:
    """The description of a model in JSON, common to all exports."""
    config = loaded.config
    return {
        "nmt_version": __version__,
        "source_language": config.data.source_language,
        "target_language": config.data.target_language,
        "architecture": config.model.architecture,
        "encoder_direction": config.model.encoder_direction,
        "units": loaded.model.outline(config.model).mixing,
        "parameters": sum(parameters_by_part(loaded.model).values()),
        "precision": precision,
        "normalization": {side: loaded.tokenizer.rule_of(side) for side in SIDES},
        "longest_training_source": loaded.longest_source.tokens if loaded.longest_source.is_known else None,
        "sources_of_several_sentences": loaded.several,
    }


def megabytes(size: int) -> str:
    """`8.31 MB`, of 10**6 bytes."""
    return f"{size / 1e6:,.2f} MB"
