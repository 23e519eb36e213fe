"""The task `language_model`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from nmt.config.schema import Config
from nmt.data import Tokenizer, collate
from nmt.data.prepare import known_files, make_tokenizer
from nmt.data.streams import EncodedText, Rows, encode_text
from nmt.data.text import named_files
from nmt.data.text_facts import ValidationFacts, facts_of_files
from nmt.data.text_lines import TextLines
from nmt.errors import ConfigError, DataError, counted, missing
from nmt.language_models.batches import StreamBatches, Window
from nmt.language_models.loss import LineLoss, LinesBatch, StreamLoss, WindowBatch
from nmt.language_models.scoring import score_lines, score_text
from nmt.language_models.validation import LineValidator, StreamValidator, line_loss, stream_losses
from nmt.limits import MOST
from nmt.models import build_model
from nmt.models.build import within
from nmt.models.language_model import LanguageModel
from nmt.registry import TASKS
from nmt.tasks.in_memory import OF_TRANSLATION, batch_settings, largest_batch
from nmt.training.batches import BatchStream
from nmt.training.distributed import Share, World
from nmt.training.doubts import odd_vocabularies
from nmt.training.losses import Loss
from nmt.training.state import perplexity, seed_everything
from nmt.training.task import MemorySample, Task
from nmt.training.trainer import Trainer

_NO_PAIRS = "a language model reads one text"
_NO_SEARCH = "training of a language model does not search"
"""Why keys of translation have no effect here."""
_OF_LINES = ("data.pool_batches", "training.normalization")
"""Keys that mean something to batches of lines, and nothing to a stream."""


@dataclass(frozen=True, kw_only=True)
class LanguageModellingOptions:
    """Options of the task `language_model`. Texts are files, not prefixes: `data.train`, `data.dev`, `data.test`."""

    by_line: bool = False
    """Each line is read independently, from the zero state, in batches of lines of similar length; a model used in a
    search or for ranking translations reads lines in this way. Otherwise the text is one stream of consecutive
    lines."""
    steps: int = 70
    """For a stream: words of a window, over which gradients are propagated back."""
    varied_windows: bool = True
    """For a stream: windows of varying length, about `steps` words, cut differently in each epoch (Merity et al., ICLR
    2018)."""
    activation_penalty: float = 0.0
    """alpha: weight of the mean square of the last states, which is added to the loss."""
    temporal_penalty: float = 0.0
    """beta, the same for the change of the last states from word to word."""
    samples: int | None = None
    """Words besides a batch's own over which training computes the softmax, as the loss `sampled_cross_entropy` does:
    more updates in a given time. `null`: all. Validation is exact."""
    validation_rows: int = 10
    """For a stream: rows into which the validation text is cut, read in parallel. The test text is one row."""

    def __post_init__(self) -> None:
        for name in ("steps", "samples", "validation_rows"):
            within(name, getattr(self, name), 1, MOST)
        for name in ("steps", "varied_windows", "validation_rows"):
            if self.by_line and getattr(self, name) != getattr(type(self), name):
                raise ValueError(f"{name}: has no effect with by_line, which has no stream")
        for name in ("activation_penalty", "temporal_penalty"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}: must be 0 or more, not {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class PreparedText:
    """All that training needs of the data."""

    tokenizer: Tokenizer
    train: EncodedText
    dev: EncodedText | None
    test: EncodedText | None
    dev_facts: ValidationFacts | None
    folders: Sequence[Path] = ()

    @property
    def key(self) -> str:
        return self.train.key

    @property
    def counts(self) -> Mapping[str, int]:
        known = {"train": self.train, "dev": self.dev, "test": self.test}
        return {f"{name}_tokens": len(text.ids) for name, text in known.items() if text is not None}


@TASKS.register("language_model")
class LanguageModelling(Task):
    """A text, whose words are predicted one after the other from those before."""

    Options = LanguageModellingOptions
    options: LanguageModellingOptions
    score_lines, score_text = staticmethod(score_lines), staticmethod(score_text)
    """By which nmt-score scores the lines of a text."""
    unused: ClassVar[Mapping[str, str]] = {
        **{
            f"data.{key}": _NO_PAIRS
            for key in (*OF_TRANSLATION["data"], "max_length", "too_long", "pool_batches", "workers")
        },
        **{f"training.{key}": _NO_SEARCH for key in ("sample_every", "sample_sentences")},
        **{
            f"training.{key}": "its loss is cross entropy; see task_options.samples"
            for key in ("loss", "loss_options", "label_smoothing", "normalization")
        },
        **{
            f"model.{key}": "it has no encoder and no attention; see model.architecture_options"
            for key in OF_TRANSLATION["model"]
            if key != "tie_embeddings"
        },
        **{
            f"model.{key}": "tables start uniform in +-0.1, layers in +-1 / sqrt(width)"
            for key in ("initializer", "initializer_options", "init_range")
        },
        "decoding": _NO_SEARCH,
        "evaluation": "validation measures loss and perplexity",
    }

    @classmethod
    def unused_in(cls, options: Mapping[str, Any]) -> Mapping[str, str]:
        used = _OF_LINES if options.get("by_line") is True else ()
        return {key: why for key, why in cls.unused.items() if key not in used}

    @classmethod
    def completed(cls, config: Config) -> Config:
        """One vocabulary, and no smoothing."""
        options = config.data.tokenizer_options
        if "joint" in options:
            options = {**options, "joint": True}
        data = dataclasses.replace(config.data, tokenizer_options=options)
        evaluation = dataclasses.replace(config.evaluation, metrics=[])
        training = dataclasses.replace(config.training, label_smoothing=0.0)
        return dataclasses.replace(config, data=data, evaluation=evaluation, training=training)

    @classmethod
    def check(cls, config: Config) -> list[tuple[str, str]]:
        found = []
        if config.model.tie_embeddings == "all":
            found.append(("model.tie_embeddings", "'all' is for two languages. Allowed: none, target_softmax."))
        softmaxes = config.model.architecture_options.get("softmaxes", 1)
        if config.task_options.get("samples") is not None and softmaxes != 1:
            found.append(("task_options.samples", "is not allowed with a mixture of softmaxes; set it to null"))
        return found

    @property
    def rows(self) -> int:
        """Rows of the stream that are read side by side."""
        training = self.config.training
        if training.batch_sentences is not None:
            return training.batch_sentences
        assert training.batch_tokens is not None, "a complete configuration sets one of the two"
        return max(1, training.batch_tokens // self.options.steps)

    def _files(self, name: str) -> list[Path]:
        return named_files(getattr(self.config.data, name))

    def missing_files(self) -> list[tuple[str, str]]:
        return [
            (f"data.{name}", missing(path))
            for name in ("train", "dev", "test")
            for path in self._files(name)
            if not path.is_file()
        ]

    def read_validation_facts(self) -> ValidationFacts | None:
        return facts_of_files(self._files("dev"))

    def prepare(self, run: Path, *, progress: bool = True) -> PreparedText:
        files = {name: self._files(name) for name in ("train", "dev", "test")}
        if not files["train"]:
            raise ConfigError("data.train: no training text; give a file or a list of files")
        cache = self.config.data.cache_dir
        folder = Path(cache) if cache else run / "cache"
        known = known_files(folder, [path for paths in files.values() for path in paths], shown=progress)
        known.save()
        tokenizer = make_tokenizer(self.config, [], files["train"], run_dir=run, known=known, shown=progress)
        texts = {name: encode_text(paths, tokenizer) for name, paths in files.items() if paths}
        for name, text in texts.items():
            if not len(text.ids):
                raise DataError(f"data.{name}: {', '.join(map(str, files[name]))}: has no line")
        return PreparedText(
            tokenizer=tokenizer,
            train=texts["train"],
            dev=texts.get("dev"),
            test=texts.get("test"),
            dev_facts=self.read_validation_facts(),
        )

    def build_model(self, tokenizer: Tokenizer, *, device: torch.device) -> LanguageModel:
        seed_everything(self.config.seed)
        model: Any = build_model(self.config.model, tokenizer.source_size, tokenizer.target_size)
        return cast("LanguageModel", model.to(device))

    def build_batches(self, data: PreparedText, *, world: World | None = None) -> StreamBatches | BatchStream:
        if self.options.by_line:
            lines = TextLines.of(data.train)
            return BatchStream(lines, **batch_settings(self.config, lines, world))
        return StreamBatches(
            Rows.of(data.train.ids, self.rows),
            steps=self.options.steps,
            varied=self.options.varied_windows,
            accumulate=self.config.training.accumulate,
            seed=self.config.seed,
            share=None if world is None else Share(world.rank, world.size),
            pinned=world is not None and world.device.type == "cuda",
        )

    def build_loss(self) -> Loss:
        options = self.options
        kind = LineLoss if options.by_line else StreamLoss
        return kind(
            activation_penalty=options.activation_penalty,
            temporal_penalty=options.temporal_penalty,
            samples=options.samples,
        )

    def training_batch(self, model: Any, batch: Any, weights: Tensor) -> WindowBatch | LinesBatch:
        if self.options.by_line:
            return LinesBatch(model, batch, weights)
        return WindowBatch(model, batch, weights)

    def memory_sample(self, data: PreparedText, batches: StreamBatches | BatchStream) -> MemorySample:
        if isinstance(batches, BatchStream):  # the batch with the most cells in the first pool
            lines = TextLines.of(data.train)
            longest, rows_of_batch = largest_batch(batches.sampler.pool(0, 0).batches, lines.target_lengths)
            return MemorySample(collate(lines, longest), rows_of_batch)
        rows = Rows.of(data.train.ids, self.rows)
        shown = slice(None, 2), slice(None, self.options.steps)
        source, target = (torch.from_numpy(np.ascontiguousarray(side[shown])) for side in (rows.inputs, rows.targets))
        return MemorySample(Window(source, target, 0, True, 1.0), len(rows.targets))

    def build_validator(
        self, data: PreparedText, *, device: torch.device, world: World
    ) -> StreamValidator | LineValidator | None:
        if data.dev is None:
            return None
        if self.options.by_line:
            return LineValidator(text=data.dev, device=device, world=world)
        return StreamValidator(text=data.dev, rows=self.options.validation_rows, device=device, world=world)

    def describe_model(self, model: LanguageModel) -> str:
        widths = [f"{type(cell).__name__.lower()} {cell.hidden_size}" for cell in model.cells]
        mixture = f", a mixture of {model.mixture.count} softmaxes" if model.mixture is not None else ""
        return f"{self.config.model.architecture}, layers {', '.join(widths)}{mixture}"

    def describe_vocabularies(self, model: LanguageModel) -> str:
        return f"vocabulary: {model.target_vocab_size:,}"

    def data_lines(self, data: PreparedText, batches: StreamBatches | BatchStream) -> list[str]:
        texts = {"train": data.train, "dev": data.dev, "test": data.test}
        return [
            f"{name}: {counted(text.lines, 'line')}, {counted(len(text.ids), 'token')}, ends of lines "
            f"counted, {text.unknown:,} of them unknown words"
            for name, text in texts.items()
            if text is not None
        ]

    def doubts(self, data: PreparedText, batches: StreamBatches | BatchStream) -> list[str]:
        return odd_vocabularies(self.config, data.tokenizer, {"source": self._files("train")[0]})

    def describe_epoch(self, batches: StreamBatches | BatchStream) -> str:
        if isinstance(batches, BatchStream):
            return f"{super().describe_epoch(batches)} of lines, {batches.padding_share():.1%} padding"
        return f"{super().describe_epoch(batches)} of {counted(self.rows, 'row')} by about {self.options.steps} words"

    def score_test(self, trainer: Trainer, data: PreparedText, *, by: str, output: Path | None) -> None:
        assert data.test is not None
        log, model = trainer.log, cast("Any", trainer.updater.model)
        if not trainer.world.is_main:
            return
        model.eval()
        device = trainer.updater.precision.device
        if self.options.by_line:
            alone = World(device)
            loss = line_loss(model, TextLines.of(data.test), device=device, world=alone, check=lambda: None)
        else:
            loss = stream_losses(model, Rows.of(data.test.ids, 1), device=device) / len(data.test.ids)
        trainer.record("test", {"checkpoint": by, "loss": loss, "perplexity": perplexity(loss)})
        log.say(f"test loss {loss:.4f}, perplexity {perplexity(loss):.2f} with {by}")

    def hint(self, run: Path) -> str:
        return f"score a text with: nmt-score {run} --text FILE{' --by-line' if self.options.by_line else ''}"
