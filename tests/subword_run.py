"""A tiny training with subwords that are drawn anew in each epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tiny_training import write_config, write_corpus

OPTIONS = {"vocab_size": 310, "bpe_dropout": 0.2}


def write_subword_config(folder: Path, *, options: dict[str, Any] | None = None, **changes: dict[str, Any]) -> Path:
    """tiny.yaml of `write_config` with SentencePiece, its corpus, and BPE-dropout unless `options` say otherwise."""
    write_corpus(folder)
    data = {"tokenizer": "sentencepiece", "tokenizer_options": OPTIONS | (options or {}), **changes.pop("data", {})}
    return write_config(folder, data=data, **changes)
