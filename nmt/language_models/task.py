"""Language models as a task: windows of a text or batches of lines, their losses, validation, training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.config.schema import Config
from nmt.data import Tokenizer
from nmt.data.batching import Batch, collate
from nmt.data.text import named_files
from nmt.data.text_facts import ValidationFacts, facts_of_files
from nmt.data.vocabulary import PAD
from nmt.errors import ConfigError, DataError, counted, missing
from nmt.language_models.fusion import fusion_of
from nmt.language_models.model import LanguageModel, States
from nmt.language_models.scoring import score_lines, score_text
from nmt.language_models.text import EncodedText, Rows, TextLines, encode_text, windows
from nmt.limits import MOST
from nmt.models import build_model
from nmt.models.build import within
from nmt.ops.dropout import Masks, batch_key
from nmt.ops.linear_cross_entropy import Losses
from nmt.ops.recurrence import at_least_fp32
from nmt.other_tasks.in_memory import OF_TRANSLATION, ScoreValidator, batch_settings, largest_batch, tokenizer_of
from nmt.registry import DOUBTS, TASKS
from nmt.training.batches import BatchStream, Group, Position, Prefetching
from nmt.training.distributed import Share, World, interleave
from nmt.training.losses import BatchLoss, Loss, sampled_losses
from nmt.training.state import perplexity, seed_everything
from nmt.training.task import MemorySample, Task
from nmt.training.trainer import Trainer
from nmt.training.validation import (
    LOSS_BATCH_TOKENS,
    Check,
    batch_losses,
    in_all_processes,
    mean_loss,
    rows_by_length,
)


class Window(NamedTuple):
    """Some columns of some rows of a stream."""

    source: Tensor
    """[B, T], the word before each of the target's"""
    target: Tensor
    """[B, T]"""
    first_row: int
    begins: bool
    """Whether it is the first window of an epoch, before which there is nothing."""
    share: float
    """T by the usual length of a window: rates are in proportion to it (Merity et al., ICLR 2018)."""

    def pinned(self) -> Window:
        """The same in memory from which a GPU can copy by itself."""
        return self._replace(source=self.source.pin_memory(), target=self.target.pin_memory())

    def to(self, device: torch.device) -> Window:
        """The same on a device."""
        source, target = (part.to(device, non_blocking=True) for part in (self.source, self.target))
        return self._replace(source=source, target=target)


class StreamBatches(Prefetching):
    """The windows of an epoch one after the other, `accumulate` to an update, all rows of each at once.

    Where they are cut is a function of the seed and the epoch. Several processes share the rows.
    """

    def __init__(
        self,
        rows: Rows,
        *,
        steps: int,
        varied: bool,
        accumulate: int,
        seed: int,
        share: Share | None = None,
        pinned: bool = False,
    ) -> None:
        self._rows = rows
        self._steps = steps
        self._varied = varied
        self._accumulate = accumulate
        self._seed = seed
        self._share = Share() if share is None else share
        self._pinned = pinned
        count = len(rows.targets)
        parts = self._share.parts([np.full(count, rows.length)])
        self._mine = (parts[0].first, parts[0].end) if parts else (0, 0)

    def ends(self, epoch: int) -> NDArray[np.int64]:
        """Where the windows of an epoch end, counted from 1."""
        generator = np.random.default_rng([self._seed, epoch])
        return windows(self._rows.length, steps=self._steps, varied=self._varied, generator=generator)

    def updates_per_epoch(self) -> int:
        return -(-len(self.ends(1)) // self._accumulate)

    def groups(self, position: Position) -> Iterator[Group]:
        epoch, done = position.epoch, position.batch
        while True:
            ends = self.ends(epoch)
            starts = np.concatenate([[0], ends[:-1]])
            order = iter(zip(range(done, len(ends)), starts[done:], ends[done:], strict=True))
            while taken := list(islice(order, self._accumulate)):
                yield self._group(epoch, taken, windows_of_epoch=len(ends))
            epoch, done = epoch + 1, 0

    def _group(self, epoch: int, taken: list[tuple[int, int, int]], *, windows_of_epoch: int) -> Group:
        after = Position(epoch, taken[-1][0] + 1) if taken[-1][0] + 1 < windows_of_epoch else Position(epoch + 1, 0)
        count, (first, end) = len(self._rows.targets), self._mine
        words = sum(int((self._rows.targets[:, start:stop] != PAD).sum()) for _, start, stop in taken)
        made = [self._window(start, stop, begins=number == 0) for number, start, stop in taken] if end > first else []
        return Group(
            batches=tuple(window.pinned() if self._pinned else window for window in made),
            sentences=(count,) * len(made),
            masks=tuple(Masks(batch_key(self._seed, epoch, number), first) for number, *_ in taken[: len(made)]),
            whole_batches=len(taken),
            whole_sentences=count * len(taken),
            after=after,
            epoch_batches=windows_of_epoch,
            target_tokens=words,
            tokens=words,
            cells=sum(count * int(stop - start) for _, start, stop in taken),
            last_rows=np.arange(0),
            seed=self._share.random_seed(self._seed, *after),
        )

    def _window(self, start: int, stop: int, *, begins: bool) -> Window:
        first, end = self._mine
        source, target = (
            torch.from_numpy(np.ascontiguousarray(side[first:end, start:stop]))
            for side in (self._rows.inputs, self._rows.targets)
        )
        share = (stop - start) / self._steps if self._varied else 1.0
        return Window(source, target, first, begins, float(share))


@dataclass(frozen=True)
class WindowBatch:
    """A window with the model that is trained on it."""

    model: LanguageModel
    window: Window
    weights: Tensor
    """[B, T], what each word counts for in the update"""


class NextWordLoss(Loss):
    """Cross entropy of next words.

    With penalties alpha and beta (Merity et al., 2017, "Revisiting activation regularization for language RNNs") the
    mean square of the last states, after dropout, and of their change from word to word, before it, are added. With
    `samples` the softmax is over the batch's own words and a sample of the others: see `sampled_losses`.
    """

    def __init__(
        self, *, activation_penalty: float = 0.0, temporal_penalty: float = 0.0, samples: int | None = None
    ) -> None:
        super().__init__()
        self._activation, self._temporal, self._samples = activation_penalty, temporal_penalty, samples

    def cross_entropy(self, model: LanguageModel, features: Tensor, target: Tensor, weights: Tensor) -> Losses:
        """As `LanguageModel.losses`, over all words or a sample."""
        if self._samples is None:
            return model.losses(features, target, weights=weights)
        places = (target != PAD).flatten().nonzero().squeeze(1)
        rows, chosen, own = features.flatten(0, 1)[places], target.flatten()[places], weights.flatten()[places]
        return sampled_losses(rows, model.softmax_table, chosen, weights=own, samples=self._samples)


class StreamLoss(NextWordLoss):
    """`NextWordLoss` of consecutive windows; each starts from the final states of the one before.

    No gradient passes from window to window.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._states: States | None = None
        self._saved: list[list[Tensor]] | None = None  # of all rows, until the first window after they were loaded

    def __call__(self, batch: Any) -> BatchLoss:
        model, window = batch.model, batch.window
        states = None if window.begins else self._before(model, window)
        run = model.run(window.source, states)
        self._states = tuple(type(state)(*(part.detach() for part in state)) for state in run.states)
        self._saved = None
        weights = batch.weights * window.share
        found = self.cross_entropy(model, run.features, window.target, weights)
        total, of_rows = found.total, weights.sum(1).to(found.total.dtype)  # [B]
        if self._activation:
            total = total + self._activation * (of_rows * _mean_square(run.features)).sum()
        if self._temporal and run.raw.size(1) > 1:
            total = total + self._temporal * (of_rows * _mean_square(run.raw.diff(dim=1))).sum()
        return BatchLoss(total, found.nll.detach())

    def _before(self, model: LanguageModel, window: Window) -> States | None:
        """The states before a window that begins no epoch, of its rows."""
        if self._saved is None:
            return self._states
        rows = slice(window.first_row, window.first_row + len(window.source))
        device = window.source.device
        kinds = [cell.State for cell in model.cells]
        return tuple(
            kind(*(part[rows].to(device) for part in parts)) for kind, parts in zip(kinds, self._saved, strict=True)
        )

    def state_dict(self, world: World) -> dict[str, Any]:
        mine = None if self._states is None else [[part.cpu() for part in state] for state in self._states]
        states = mine if world.size == 1 else _of_all_rows(mine, world)
        if states is None:  # no window was read since these were loaded
            states = self._saved
        return {} if states is None else {"states": states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._states, self._saved = None, state.get("states")


def _of_all_rows(states: list[list[Tensor]] | None, world: World) -> list[list[Tensor]] | None:
    """The states of the rows of all processes, each of which must call this; a process without rows has None."""
    listed = None if states is None else [[part.tolist() for part in state] for state in states]
    found = [each for each in world.gather(listed) if each is not None]
    if not found:
        return None
    return [
        [torch.cat([torch.tensor(part) for part in same]) for same in zip(*layer, strict=True)]
        for layer in zip(*found, strict=True)
    ]


@dataclass(frozen=True)
class LinesBatch:
    """Some lines with the model that is trained on them."""

    model: LanguageModel
    lines: Batch
    weights: Tensor
    """[B, T], what each word counts for in the update; 0 where there is none"""


class LineLoss(NextWordLoss):
    """`NextWordLoss` of lines, each from the zero state; the penalties are for their own words."""

    def __call__(self, batch: Any) -> BatchLoss:
        run = batch.model.run(batch.lines.source)
        found = self.cross_entropy(batch.model, run.features, batch.lines.target, batch.weights)
        total, weights = found.total, batch.weights.to(found.total.dtype)
        if self._activation:
            total = total + self._activation * (weights * _square(run.features)).sum()
        if self._temporal:
            total = total + self._temporal * (weights[:, 1:] * _square(run.raw.diff(dim=1))).sum()
        return BatchLoss(total, found.nll.detach())


def _square(x: Tensor) -> Tensor:
    """The mean square of each word's x [B, T, L]: [B, T]."""
    return at_least_fp32(x).square().mean(2)


def _mean_square(x: Tensor) -> Tensor:
    """Of each row of x [B, T, L]: [B]."""
    return at_least_fp32(x).square().mean((1, 2))


STEPS = 70
"""Words that are read at once."""


@torch.inference_mode()
def stream_losses(
    model: LanguageModel,
    rows: Rows,
    *,
    device: torch.device,
    check: Check | None = None,
    first: int = 0,
    end: int | None = None,
) -> float:
    """Sum of the negative log-likelihoods, in nats, of rows first..end-1 of a stream."""
    inputs, targets = (torch.from_numpy(side[first:end]).to(device) for side in (rows.inputs, rows.targets))
    states: States | None = None
    total = 0.0
    for start in range(0, rows.length, STEPS):
        if check is not None:
            check()
        words, wanted = inputs[:, start : start + STEPS], targets[:, start : start + STEPS]
        run = model.run(words, states)
        states = run.states
        found = model.losses(run.features, wanted, weights=torch.ones_like(wanted, dtype=torch.float32))
        total += float(found.nll.double().sum())
    return total


@dataclass(frozen=True, kw_only=True)
class StreamValidator(ScoreValidator):
    """The validation text as a stream in some rows, which several processes share."""

    text: EncodedText
    rows: int

    @property
    def key(self) -> str:
        return self.text.key

    def scores(self, model: Any, *, check: Check) -> tuple[dict[str, float], None]:
        rows = Rows.of(self.text.ids, self.rows)
        cuts = np.linspace(0, len(rows.targets), self.world.size + 1).astype(int).tolist()
        first, end = cuts[self.world.rank], cuts[self.world.rank + 1]

        def mine() -> float:
            if end == first:
                return 0.0
            return stream_losses(model, rows, device=self.device, check=check, first=first, end=end)

        return {"loss": sum(in_all_processes(self.world, mine)) / len(self.text.ids)}, None


@torch.inference_mode()
def line_loss(model: Any, lines: TextLines, *, device: torch.device, world: World, check: Check) -> float:
    """Mean negative log-likelihood of the words of independent lines in nats, with the ends of lines.

    Several processes share the lines, and all get the same result. Raises InterruptedValidationError in all of them
    when `check` raises it in one.
    """
    batches = list(rows_by_length(lines, cells=LOSS_BATCH_TOKENS))[world.rank :: world.size]
    parts = in_all_processes(world, lambda: batch_losses(model, lines, batches, device=device, check=check))
    return mean_loss(interleave(parts))


@dataclass(frozen=True, kw_only=True)
class LineValidator(ScoreValidator):
    """The validation text line by line."""

    text: EncodedText

    @property
    def key(self) -> str:
        return self.text.key

    def scores(self, model: Any, *, check: Check) -> tuple[dict[str, float], None]:
        loss = line_loss(model, TextLines.of(self.text), device=self.device, world=self.world, check=check)
        return {"loss": loss}, None


_NO_PAIRS = "a language model reads one text"
_NO_SEARCH = "training of a language model does not search"
"""Why keys of translation have no effect here."""
_OF_LINES = ("data.pool_batches", "training.normalization")
"""Keys that mean something to batches of lines, and nothing to a stream."""


@dataclass(frozen=True, kw_only=True)
class LanguageModellingOptions:
    """Options of the task `language_model`. Texts are files, not prefixes: `data.train`, `data.dev`, `data.test`."""

    by_line: bool = False
    """Each line is read by itself; otherwise the text is one stream."""
    steps: int = 70
    """For a stream: words over which gradients are propagated back."""
    varied_windows: bool = True
    """These windows vary in length about `steps` (Merity et al., ICLR 2018)."""
    activation_penalty: float = 0.0
    temporal_penalty: float = 0.0
    """alpha and beta: weights of the mean squares of the last states, and of their changes from word to word."""
    samples: int | None = None
    """Words besides a batch's own in the softmax of training; `null`: all."""
    validation_rows: int = 10
    """For a stream: rows of the validation text, read in parallel."""

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
    fusion_of = staticmethod(fusion_of)
    """What adds the scores of such a model to those of a translation model."""
    unused: ClassVar[Mapping[str, str]] = {
        **{
            f"data.{key}": _NO_PAIRS
            for key in (*OF_TRANSLATION["data"], "max_length", "too_long", "pool_batches", "workers")
        },
        **{f"training.{key}": _NO_SEARCH for key in ("sample_every", "sample_sentences")},
        **{f"training.{key}": _NO_PAIRS for key in ("guided_alignment", "guided_alignment_weight", "wait")},
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
        read = [path for paths in files.values() for path in paths]
        tokenizer = tokenizer_of(self, read, files["train"], run=run, cache=folder, shown=progress)
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
        found: list[str] = DOUBTS.get("odd_vocabularies")(
            self.config, data.tokenizer, {"source": self._files("train")[0]}
        )
        return found

    def describe_epoch(self, batches: StreamBatches | BatchStream) -> str:
        if isinstance(batches, BatchStream):
            return f"{super().describe_epoch(batches)} of lines, {batches.padding_share():.1%} padding"
        return f"{super().describe_epoch(batches)} of {counted(self.rows, 'row')} by about {self.options.steps} words"

    def score_test(self, trainer: Trainer, data: PreparedText, *, by: str, outputs: Sequence[Path]) -> None:
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
