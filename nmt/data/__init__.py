"""Text to batches: reading, tokenizers, encoded corpora, batching. What plugins need is imported when it is used."""

from typing import TYPE_CHECKING

from nmt.lazily import members

if TYPE_CHECKING:
    from nmt.data.text import read_lines as read_lines
    from nmt.data.tokenizer import Tokenizer as Tokenizer
    from nmt.data.vocabulary import EOS as EOS
    from nmt.data.vocabulary import PAD as PAD
    from nmt.data.vocabulary import UNK as UNK
    from nmt.data.vocabulary import Vocabulary as Vocabulary

_MODULES = {"text": ("read_lines",), "tokenizer": ("Tokenizer",), "vocabulary": ("EOS", "PAD", "UNK", "Vocabulary")}
__all__ = [name for names in _MODULES.values() for name in names]
__getattr__ = members(__name__, _MODULES)
