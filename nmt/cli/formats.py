"""Translations of any model in the form of nmt-light's, so that the same code writes both (nmt.light.formats)."""

from __future__ import annotations

from nmt.light.results import Hypothesis, Result
from nmt.search import ScoredText, Translation


def as_result(translation: Translation) -> Result:
    """The parts of a translation that are written, without its notes."""
    return Result(
        translation.source,
        [*map(_hypothesis, translation.hypotheses)],
        source_pieces=translation.source_pieces,
    )


def _hypothesis(found: ScoredText) -> Hypothesis:
    pairs, parts, heads = found.alignment, found.attention_of_parts, found.heads_of_parts
    return Hypothesis(
        found.text,
        found.score,
        found.tokens,
        found.token_scores,
        None if parts is None else tuple(part if isinstance(part, list) else part.tolist() for part in parts),
        None if pairs is None else tuple((source, target) for source, target in pairs),
        found.token_entropies,
        None if heads is None else tuple({name: own.tolist() for name, own in part.items()} for part in heads),
    )
