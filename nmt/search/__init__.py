"""Search: from a source in ids to its best translations, from text to text, and scores of given translations.

Members are imported when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.lazily import members

if TYPE_CHECKING:
    from nmt.search.base import Search, build_search
    from nmt.search.beam import beam_search, diverse_beam_search
    from nmt.search.greedy import greedy_search
    from nmt.search.mbr import MbrSearch
    from nmt.search.reading import PairScore, score_pairs
    from nmt.search.ruled import RuledModel
    from nmt.search.sample import NoisyBeamSearch, SampleSearch, sample_search
    from nmt.search.translator import Translator
    from nmt.search.values import Hypothesis, Request, ScoredText, Translation
else:
    __getattr__ = members(
        __name__,
        {
            "base": ("Search", "build_search"),
            "beam": ("beam_search", "diverse_beam_search"),
            "greedy": ("greedy_search",),
            "mbr": ("MbrSearch",),
            "reading": ("PairScore", "score_pairs"),
            "ruled": ("RuledModel",),
            "sample": ("NoisyBeamSearch", "SampleSearch", "sample_search"),
            "translator": ("Translator",),
            "values": ("Hypothesis", "Request", "ScoredText", "Translation"),
        },
    )

__all__ = [
    "Hypothesis",
    "MbrSearch",
    "NoisyBeamSearch",
    "PairScore",
    "Request",
    "RuledModel",
    "SampleSearch",
    "ScoredText",
    "Search",
    "Translation",
    "Translator",
    "beam_search",
    "build_search",
    "diverse_beam_search",
    "greedy_search",
    "sample_search",
    "score_pairs",
]
