"""What a text of some size asks of a model: the table of docs/getting_started.md."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final, NamedTuple

from nmt.config.yaml12 import write_yaml


class Sizes(NamedTuple):
    """Settings for about so many pairs."""

    pairs: int
    vocab_size: int
    embedding_size: int
    dropout: float
    batch_tokens: int
    lr: float
    dropout_warmup_steps: int
    max_epochs: int


SIZES: Final = (
    Sizes(2_000, 1_000, 128, 0.4, 300, 2e-3, 0, 60),
    Sizes(30_000, 5_000, 256, 0.3, 1_000, 2e-3, 5_000, 20),
    Sizes(200_000, 8_000, 256, 0.2, 1_000, 2e-3, 5_000, 10),
    Sizes(5_000_000, 32_000, 512, 0.1, 4_000, 1e-3, 0, 7),
)


def sizes_for(pairs: int) -> Sizes:
    """The row whose number of pairs is nearest, as a ratio."""
    return min(SIZES, key=lambda row: abs(math.log(max(1, pairs) / row.pairs)))


def configuration(
    folder: str, run_dir: str, languages: tuple[str, str], pairs: int, *, held_out: Collection[str]
) -> str:
    """The text of a configuration for FOLDER/train and those of FOLDER/dev and FOLDER/test that are `held_out`."""
    row = sizes_for(pairs)
    config = {
        "run_dir": run_dir,
        "model": {
            "architecture": "transformer",
            "cell": "lrn",
            "embedding_size": row.embedding_size,
            "tie_embeddings": "all",
            "dropout": row.dropout,
        },
        "data": {
            "source_language": languages[0],
            "target_language": languages[1],
            **{part: f"{folder}/{part}" for part in ("train", *held_out)},
            "tokenizer_options": {"vocab_size": row.vocab_size},
        },
        "training": {
            "max_epochs": row.max_epochs,
            "batch_tokens": row.batch_tokens,
            "dropout_warmup_steps": row.dropout_warmup_steps,
            "lr": row.lr,
            "schedule": "budgeted",
            "schedule_options": {"warmup_steps": 400, "min_lr": row.lr / 20},
            "ema_decay": 0.995,
            **({"early_stopping_metric": "bleu", "patience": 10} if "dev" in held_out else {}),
        },
        "decoding": {"beam_size": 5, "length_penalty": 1.5, "max_length_offset": 10},
    }
    head = f"# Blocks of the LRN, with sizes for about {row.pairs:,} pairs; this text has {pairs:,}."
    return f"{head}\n{write_yaml(config)}"
