"""Search: from a source in ids to its best translations, from text to text, and scores of given translations."""

from nmt.search.base import Search, build_search
from nmt.search.beam import beam_search
from nmt.search.diverse import diverse_beam_search
from nmt.search.greedy import greedy_search
from nmt.search.hypothesis import Hypothesis
from nmt.search.mbr import MbrSearch
from nmt.search.noisy import NoisyBeamSearch
from nmt.search.request import Request
from nmt.search.ruled import RuledModel
from nmt.search.sample import SampleSearch, sample_search
from nmt.search.scorer import PairScore, score_pairs
from nmt.search.translation import ScoredText, Translation
from nmt.search.translator import Translator

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
