"""What tasks share whose texts are files that are read into memory: files, batches, vectors of words."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from nmt.config.schema import Config
from nmt.data import Tokenizer
from nmt.data.corpus import Rows
from nmt.data.prepare import known_files, make_tokenizer
from nmt.data.sampler import BatchSampler, HasLengths
from nmt.data.text import named_files
from nmt.data.text_facts import ValidationFacts, facts_of_files
from nmt.data.work import Advance, no_progress
from nmt.errors import ConfigError, missing
from nmt.other_tasks.vectors import Vectors, read_vectors
from nmt.training.distributed import Share, World
from nmt.training.task import Task
from nmt.training.validation import Chance, Check, Validation

TEXTS: Final = ("train", "dev", "test")
SURE_OF_LABELS = 3.0
"""Standard deviations of the shuffled scores of labels that are luck: they have no outliers, unlike translations', and
few steps."""
SAMPLE_ROWS = 2
"""Rows of the largest batch on which the memory of a whole one is measured."""
OF_TRANSLATION: Final = {
    "data": (
        "source_language",
        "target_language",
        "target_tag",
        "generator",
        "monolingual",
        "monolingual_tag",
        "sampling_temperature",
        "sampling_weights",
        "context",
        "context_sentences",
        "dev_references",
        "test_references",
    ),
    "model": (
        "encoder_cell",
        "encoder_cell_options",
        "decoder_cell",
        "decoder_cell_options",
        "encoder_hidden_size",
        "encoder_layers",
        "decoder_layers",
        "context_aware_encoder",
        "encoder_direction",
        "deep_attention",
        "deep_output",
        "attention_heads",
        "tie_embeddings",
    ),
}
"""Keys of parallel text, and of encoders and decoders, by section."""


def unused_keys(*, pairs: str, search: str, model: str, evaluation: str) -> Mapping[str, str]:
    """Keys of translation that have no effect on such a task.

    The reasons: `pairs` of parallel text, `search` of searches, `model` of encoders and decoders, `evaluation` of
    metrics.
    """
    return {
        **{f"data.{key}": pairs for key in OF_TRANSLATION["data"]},
        **{f"data.{key}": "texts are kept whole, however long" for key in ("max_length", "too_long")},
        "data.workers": "its text is kept in memory",
        **{f"training.{key}": search for key in ("sample_every", "sample_sentences")},
        **{f"training.{key}": model for key in ("guided_alignment", "guided_alignment_weight", "wait")},
        **{f"model.{key}": model for key in OF_TRANSLATION["model"]},
        "decoding": search,
        "evaluation": evaluation,
    }


class InMemoryTask(Task):
    """A task whose options have `vectors`, the name of a file of vectors of words or None."""

    def files(self) -> dict[str, list[Path]]:
        """The files of each of TEXTS; only the training text is required (ConfigError)."""
        found = {name: named_files(getattr(self.config.data, name)) for name in TEXTS}
        if not found["train"]:
            raise ConfigError("data.train: no training text; give a file or a list of files")
        return found

    def missing_files(self) -> list[tuple[str, str]]:
        files = [(f"data.{name}", path) for name, paths in self.files().items() for path in paths]
        if self.options.vectors is not None:
            files.append(("task_options.vectors", Path(self.options.vectors)))
        return [(key, missing(path)) for key, path in files if not path.is_file()]

    def read_validation_facts(self) -> ValidationFacts | None:
        return facts_of_files(self.files()["dev"])

    def cache(self, run: Path) -> Path:
        """Directory for data made from the text."""
        cache = self.config.data.cache_dir
        return Path(cache) if cache else run / "cache"

    def vectors(self, tokenizer: Tokenizer) -> Vectors | None:
        """Those of the words of the vocabulary; read once. None where the options name no file."""
        if self.options.vectors is None:
            return None
        if self._vectors is None or self._vectors[0] != tokenizer.fingerprint():
            tokens = tokenizer.source_tokens(range(tokenizer.source_size))
            found = read_vectors(Path(self.options.vectors), tokens, size=self.config.model.embedding_size)
            self._vectors = tokenizer.fingerprint(), found
        return self._vectors[1]

    _vectors: tuple[str, Vectors] | None = None

    def start_from_vectors(self, table: Tensor, tokenizer: Tokenizer) -> Tensor | None:
        """Put them into the table of embeddings [V, E]; return the ids of the words that have one, None without any."""
        vectors = self.vectors(tokenizer)
        if vectors is None:
            return None
        ids = torch.from_numpy(vectors.ids).to(table.device)
        with torch.no_grad():
            table[ids] = torch.from_numpy(vectors.values).to(table.device)
        return ids

    def describe_epoch(self, batches: Any) -> str:
        return f"{super().describe_epoch(batches)}, {batches.padding_share():.1%} padding"


def tokenizer_of(
    task: Task, files: Sequence[Path], train: Sequence[Path], *, run: Path, cache: Path, shown: bool
) -> Tokenizer:
    """The tokenizer of a run whose text has one side: of the files `train`, or of the model that training starts from.

    `files` are all that the run reads, whose digests are kept in `cache`. Raises DataError or ConfigError.
    """
    known = known_files(cache, files, shown=shown)
    known.save()
    start = task.tokenizer_of_start(run)
    return make_tokenizer(task.config, [], train, run_dir=run, known=known, start=start, shown=shown)


def batch_settings(config: Config, corpus: HasLengths, world: World | None) -> dict[str, Any]:
    """What a `BatchStream` of the corpus is made with."""
    training = config.training
    sampler = BatchSampler(
        corpus,
        batch_tokens=training.batch_tokens,
        batch_sentences=training.batch_sentences,
        pool_batches=config.data.pool_batches,
        seed=config.seed,
    )
    return {
        "sampler": sampler,
        "accumulate": training.accumulate,
        "share": Share() if world is None else Share(world.rank, world.size),
        "seed": config.seed,
        "pinned": world is not None and world.device.type == "cuda",
    }


def largest_batch(batches: Iterable[Rows], lengths: np.ndarray[Any, Any]) -> tuple[Rows, int]:
    """The largest row lengths of the batch with the most cells, and its number of rows; `lengths` of all rows."""
    rows = max(batches, key=lambda rows: len(rows) * int(lengths[rows].max()))
    return rows[np.argsort(-lengths[rows], kind="stable")[:SAMPLE_ROWS]], len(rows)


@dataclass(frozen=True, kw_only=True)
class ScoreValidator(ABC):
    """Validation data of which there are scores and nothing else."""

    device: torch.device
    world: World

    @property
    @abstractmethod
    def key(self) -> str:
        """Digest of the data."""

    @property
    def lines(self) -> int:
        return 0

    @abstractmethod
    def scores(self, model: Any, *, check: Check) -> tuple[dict[str, float], Chance | None]:
        """`loss`, and whatever else is measured of `model`, in evaluation mode; the same in all processes."""

    def validate(self, model: Any, *, check: Check, translated: Advance = no_progress) -> Validation:
        """As `nmt.training.task.Validates`."""
        started = time.monotonic()
        scores, chance = self.scores(model, check=check)
        (seconds,) = self.world.from_main([round(time.monotonic() - started, 3)])
        return Validation(scores, seconds=seconds, chance=chance)
