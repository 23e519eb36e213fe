"""Search: from a source in ids to its best translations, from text to text, and scores of given translations.

Members are imported when they are used.
"""

from typing import TYPE_CHECKING

from nmt.lazily import members

_PLACES = {
    "base": ("Search", "build_search"),
    "reading": ("PairScore", "score_pairs"),
    "ruled": ("RuledModel",),
    "nmt.sampling.diverse": ("diverse_beam_search",),
    "nmt.sampling.search": ("MbrSearch", "NoisyBeamSearch", "SampleSearch", "sample_search"),
    "nmt.zero.search": ("beam_search", "greedy_search"),
    "translator": ("Translator",),
    "values": ("Hypothesis", "Request", "ScoredText", "Translation"),
}

__all__ = [name for names in _PLACES.values() for name in names]

if TYPE_CHECKING:
    from nmt.sampling.diverse import diverse_beam_search as diverse_beam_search
    from nmt.sampling.search import MbrSearch as MbrSearch
    from nmt.sampling.search import NoisyBeamSearch as NoisyBeamSearch
    from nmt.sampling.search import SampleSearch as SampleSearch
    from nmt.sampling.search import sample_search as sample_search
    from nmt.search.base import Search as Search
    from nmt.search.base import build_search as build_search
    from nmt.search.reading import PairScore as PairScore
    from nmt.search.reading import score_pairs as score_pairs
    from nmt.search.ruled import RuledModel as RuledModel
    from nmt.search.translator import Translator as Translator
    from nmt.search.values import Hypothesis as Hypothesis
    from nmt.search.values import Request as Request
    from nmt.search.values import ScoredText as ScoredText
    from nmt.search.values import Translation as Translation
    from nmt.zero.search import beam_search as beam_search
    from nmt.zero.search import greedy_search as greedy_search
else:
    __getattr__ = members(__name__, _PLACES)
