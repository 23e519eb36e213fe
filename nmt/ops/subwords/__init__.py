"""Sentences of subwords split anew at random, each a pure function of its seed: BPE-dropout and unigram sampling.

C kernels on the CPU, and Python with the same results where there is no compiler.
"""

from nmt.ops.subwords.merges import MergeDropout
from nmt.ops.subwords.paths import PathSampling
from nmt.ops.subwords.splitter import Alphabet, Drawn, Splitter, draw
from nmt.ops.subwords.table import Table

__all__ = ["Alphabet", "Drawn", "MergeDropout", "PathSampling", "Splitter", "Table", "draw"]
