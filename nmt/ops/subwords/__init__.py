"""Sentences split into random subwords, each as a pure function of its seed: BPE-dropout and unigram sampling.

C kernels on the CPU, and Python with the same results if there is no compiler.
"""

from nmt.ops.subwords.merges import MergeDropout
from nmt.ops.subwords.paths import PathSampling
from nmt.ops.subwords.splitter import Alphabet, Drawn, Splitter, draw
from nmt.ops.subwords.table import Table

__all__ = ["Alphabet", "Drawn", "MergeDropout", "PathSampling", "Splitter", "Table", "draw"]
