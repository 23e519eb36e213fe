"""Text to batches: reading, tokenizers, encoded corpora, batching; importing it fills TOKENIZERS."""

from nmt.data.batching import (
    Batch,
    batch_lines,
    collate,
    pad,
    restore_order,
)
from nmt.data.corpus import Corpus
from nmt.data.prepare import PreparedData, check_files, missing_files, planned_sizes, prepare
from nmt.data.report import CorpusReport
from nmt.data.sampler import BatchSampler
from nmt.data.saved_tokenizer import load_tokenizer, save_tokenizer
from nmt.data.sentencepiece import SentencePieceTokenizer
from nmt.data.text import ParallelText, find_file, read_lines, read_parallel
from nmt.data.tokenizer import Tokenizer
from nmt.data.vocabulary import EOS, PAD, UNK, Vocabulary, check_vocabulary_sizes
from nmt.data.whitespace import WhitespaceTokenizer

__all__ = [
    "EOS",
    "PAD",
    "UNK",
    "Batch",
    "BatchSampler",
    "Corpus",
    "CorpusReport",
    "ParallelText",
    "PreparedData",
    "SentencePieceTokenizer",
    "Tokenizer",
    "Vocabulary",
    "WhitespaceTokenizer",
    "batch_lines",
    "check_files",
    "check_vocabulary_sizes",
    "collate",
    "find_file",
    "load_tokenizer",
    "missing_files",
    "pad",
    "planned_sizes",
    "prepare",
    "read_lines",
    "read_parallel",
    "restore_order",
    "save_tokenizer",
]
