"""Text to batches: reading, tokenizers, encoded corpora, batching. Members are imported when they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.lazily import members

if TYPE_CHECKING:
    from nmt.data.batching import Batch as Batch
    from nmt.data.batching import batch_lines as batch_lines
    from nmt.data.batching import collate as collate
    from nmt.data.batching import pad as pad
    from nmt.data.batching import restore_order as restore_order
    from nmt.data.corpus import Corpus as Corpus
    from nmt.data.corpus import CorpusReport as CorpusReport
    from nmt.data.prepare import PreparedData as PreparedData
    from nmt.data.prepare import missing_files as missing_files
    from nmt.data.prepare import planned_sizes as planned_sizes
    from nmt.data.sampler import BatchSampler as BatchSampler
    from nmt.data.saved_tokenizer import load_tokenizer as load_tokenizer
    from nmt.data.saved_tokenizer import save_tokenizer as save_tokenizer
    from nmt.data.sentencepiece import SentencePieceTokenizer as SentencePieceTokenizer
    from nmt.data.text import ParallelText as ParallelText
    from nmt.data.text import find_file as find_file
    from nmt.data.text import read_lines as read_lines
    from nmt.data.text import read_parallel as read_parallel
    from nmt.data.tokenizer import Tokenizer as Tokenizer
    from nmt.data.vocabulary import EOS as EOS
    from nmt.data.vocabulary import PAD as PAD
    from nmt.data.vocabulary import UNK as UNK
    from nmt.data.vocabulary import Vocabulary as Vocabulary
    from nmt.data.vocabulary import check_vocabulary_sizes as check_vocabulary_sizes
    from nmt.data.whitespace import WhitespaceTokenizer as WhitespaceTokenizer

_MODULES = {
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
}
__all__ = [name for names in _MODULES.values() for name in names]
__getattr__ = members(__name__, _MODULES)
