"""Tasks: each provides its data, the head of its model and its scores; the trainer does the rest.

A task is registered like any component, and chosen by the key `task` of a configuration. Whatever it trains on comes in
batches of a source and a target, padded with 0, and its model gives a loss for each place of the target: the words of a
translation for `translation`, the next words for a language model, the labels for a tagger.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from nmt.config import component_options
from nmt.config.located import path_options
from nmt.config.schema import Config
from nmt.data import Tokenizer
from nmt.data.text_facts import ValidationFacts
from nmt.data.work import Advance
from nmt.errors import DataError, counted
from nmt.interop import run_layout
from nmt.registry import STARTS, TASKS, TOKENIZERS, NoOptions
from nmt.training.distributed import World
from nmt.training.losses import Loss, TrainingBatch
from nmt.training.validation import Check, Validation

if TYPE_CHECKING:
    from nmt.training.trainer import Trainer


class MemorySample(NamedTuple):
    """Some rows of a batch."""

    batch: Any
    """A batch of them, as of `Group.batches`."""
    rows: int
    """Of the whole batch."""


class Prepared(Protocol):
    """The data of a run."""

    tokenizer: Tokenizer
    key: str
    """Digest of the training data, by which a resumed run detects changes."""
    folders: Sequence[Path]
    """What has been made of it, where all processes of a run must see it."""
    counts: Mapping[str, int]
    """Sizes of each text, for the log."""
    dev_facts: ValidationFacts | None
    """By which a change of the validation text is noticed."""


class Validates(Protocol):
    """Measures a model on the validation data."""

    key: str
    """Digest of the validation data."""
    lines: int
    """How many lines are reported to `translated`; 0 for none."""

    def validate(self, model: Any, *, check: Check, translated: Advance) -> Validation:
        """Measure `model`, in evaluation mode; all processes get the same result, whose scores have a `loss`."""


class Task(ABC):
    """One task with the configuration of a run."""

    Options: ClassVar[type] = NoOptions
    """Frozen dataclass of the task's options, against which `task_options` is checked."""
    scores: ClassVar[Mapping[str, bool]] = {}
    """What validation always measures besides the loss, and whether more of it is better."""
    unused: ClassVar[Mapping[str, str]] = {}
    """Keys that have no effect on this task, such as `data.target_language`, each with the reason."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.options: Any = component_options(type(self), config.task_options, key="task_options")

    @classmethod
    def unused_in(cls, options: Mapping[str, Any]) -> Mapping[str, str]:
        """`unused` with these `task_options`, unchecked: a key may be of use with one of them only."""
        return cls.unused

    @classmethod
    def completed(cls, config: Config) -> Config:
        """The configuration with what follows from the task filled in."""
        return config

    @classmethod
    def check(cls, config: Config) -> list[tuple[str, str]]:
        """What does not fit together in a configuration for this task, as (key, message)."""
        return []

    @property
    def validates(self) -> bool:
        """Whether the configuration has data to validate on."""
        return self.config.data.dev is not None

    @property
    def tests(self) -> bool:
        """Whether it has data to test on when training has ended."""
        return self.config.data.test is not None

    @abstractmethod
    def missing_files(self) -> list[tuple[str, str]]:
        """The key of each file that the configuration names and that is not there, with a message."""

    def tokenizer_of_start(self, run: Path) -> Tokenizer | None:
        """That of the model that training starts from; None without one, if the run has checkpoints, which depend on
        the run's own, if options name files, or if the vocabulary is to be another."""
        training, data = self.config.training, self.config.data
        is_other = training.new_vocabulary or any(
            map(data.tokenizer_options.get, path_options(TOKENIZERS.get(data.tokenizer)))
        )
        if training.init_from is None or is_other or run_layout.checkpoint_steps(run):
            return None
        tokenizer: Tokenizer = STARTS.get("model")(self.config).tokenizer()
        return tokenizer

    @abstractmethod
    def prepare(self, run: Path, *, progress: bool = True) -> Any:
        """The data, as `Prepared`; reusable files are kept in the run. DataError or ConfigError name file, line or
        key."""

    @abstractmethod
    def build_model(self, tokenizer: Any, *, device: torch.device) -> Any:
        """The model, its weights drawn from the seed; ConfigError where it cannot fit into memory."""

    @abstractmethod
    def build_batches(self, data: Any, *, world: World | None = None) -> Any:
        """The training data as `Prefetching`."""

    @abstractmethod
    def build_loss(self) -> Loss:
        """What is minimised."""

    @abstractmethod
    def build_validator(self, data: Any, *, device: torch.device, world: World) -> Any:
        """What validates, as `Validates`; None without data for it."""

    def build_samples(self, data: Any, *, device: torch.device) -> Any:
        """What shows training text between validations; by default nothing does."""
        return None

    def training_batch(self, model: Any, batch: Any, weights: Tensor) -> Any:
        """What the loss is given of a batch on the device of the model; `weights` [B, T] as of `TrainingBatch`."""
        return TrainingBatch(model, batch.source, batch.target, batch.words, weights)

    @abstractmethod
    def memory_sample(self, data: Any, batches: Any) -> MemorySample:
        """A small part of the batch that takes the most memory."""

    @abstractmethod
    def describe_model(self, model: Any) -> str:
        """Architecture, units and layers, in a few words."""

    @abstractmethod
    def describe_vocabularies(self, model: Any) -> str:
        """The vocabularies of the model, for people."""

    @abstractmethod
    def data_lines(self, data: Any, batches: Any) -> list[str]:
        """The same of the data and its batches."""

    def doubts(self, data: Any, batches: Any) -> list[str]:
        """What data and batches let one fear, as warnings."""
        return []

    def describe_epoch(self, batches: Any) -> str:
        """The number of batches of an epoch, and their properties, for people."""
        return f"{counted(batches.updates_per_epoch(), 'update')} an epoch"

    def read_validation_facts(self) -> ValidationFacts | None:
        """The facts that `prepare` finds, from the validation data alone; None without such data."""
        return None

    def keep_facts(self, data: Any, run: Path, *, before: Path | None) -> None:  # noqa: B027, a task may have none
        """Write down in the run what its users need to know of the data; `before`: a model it starts from."""

    def test_outputs(self, *, average: bool = False) -> list[Path]:
        """The files for the outputs of the best checkpoint, or of the average, on the test data; by default none."""
        return []

    @abstractmethod
    def score_test(self, trainer: Trainer, data: Any, *, by: str, outputs: Sequence[Path]) -> None:
        """Score the test data by the weights that the model has now, called `by`; log it, and write `outputs`.

        Several processes share the work; rank 0 writes.
        """

    @abstractmethod
    def hint(self, run: Path) -> str:
        """What can be done with the model now, in one line."""


def task_of(config: Config) -> Task:
    """The task that a configuration names."""
    task: Task = TASKS.get(config.task)(config)
    return task


def check_files(task: Task) -> None:
    """Raise DataError with a line for each file that the task needs and that is not there."""
    if missing := task.missing_files():
        raise DataError("\n".join(f"{key}: {message}" for key, message in missing))
