"""Text to batches: reading, tokenizers, encoded corpora, batching. Members are imported when they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.lazily import members

if TYPE_CHECKING:
    from nmt.data.batching import Batch, batch_lines, collate, pad, restore_order
    from nmt.data.corpus import Corpus, CorpusReport
    from nmt.data.prepare import PreparedData, missing_files, planned_sizes
    from nmt.data.sampler import BatchSampler
    from nmt.data.saved_tokenizer import load_tokenizer, save_tokenizer
    from nmt.data.sentencepiece import SentencePieceTokenizer
    from nmt.data.text import ParallelText, find_file, read_lines, read_parallel
    from nmt.data.tokenizer import Tokenizer
    from nmt.data.vocabulary import EOS, PAD, UNK, Vocabulary, check_vocabulary_sizes
    from nmt.data.whitespace import WhitespaceTokenizer
else:
    __getattr__ = members(
        __name__,
        {
            "batching": ("Batch", "batch_lines", "collate", "pad", "restore_order"),
            "corpus": ("Corpus", "CorpusReport"),
            "prepare": ("PreparedData", "missing_files", "planned_sizes"),
            "sampler": ("BatchSampler",),
            "saved_tokenizer": ("load_tokenizer", "save_tokenizer"),
            "sentencepiece": ("SentencePieceTokenizer",),
            "text": ("ParallelText", "find_file", "read_lines", "read_parallel"),
            "tokenizer": ("Tokenizer",),
            "vocabulary": ("EOS", "PAD", "UNK", "Vocabulary", "check_vocabulary_sizes"),
            "whitespace": ("WhitespaceTokenizer",),
        },
    )

__all__ = [
    "Batch",
    "BatchSampler",
    "Corpus",
    "CorpusReport",
    "EOS",
    "PAD",
    "ParallelText",
    "PreparedData",
    "SentencePieceTokenizer",
    "Tokenizer",
    "UNK",
    "Vocabulary",
    "WhitespaceTokenizer",
    "batch_lines",
    "check_vocabulary_sizes",
    "collate",
    "find_file",
    "load_tokenizer",
    "missing_files",
    "pad",
    "planned_sizes",
    "read_lines",
    "read_parallel",
    "restore_order",
    "save_tokenizer",
]
