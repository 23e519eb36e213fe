"""Texts as batches, and the labels that a classifier gives to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.classification.model import FIRST_LABEL, Classifier, Texts
from nmt.classification.records import (
    ClassificationOptions,
    ClassifiedCorpus,
    Record,
    RecordReader,
    encode,
    unknown_label,
)
from nmt.data.batching import Pairs, batch_lines
from nmt.data.corpus import Rows
from nmt.data.vocabulary import UNK
from nmt.errors import ConfigError, DataError, counted
from nmt.interop.model_dir import LoadedModel
from nmt.training.batches import BatchStream
from nmt.training.distributed import World, interleave
from nmt.training.validation import in_all_processes


class TextBatch(NamedTuple):
    """Some texts, or pairs of texts, and their labels."""

    source: Texts
    target: Tensor
    """[B, 1]"""

    def pinned(self) -> TextBatch:
        """The same in memory from which a GPU can copy by itself."""
        return TextBatch(self.source.pinned(), self.target.pin_memory())

    def to(self, device: torch.device) -> TextBatch:
        """The same on a device."""
        return TextBatch(self.source.to(device), self.target.to(device, non_blocking=True))


def text_batch(corpus: ClassifiedCorpus, rows: Rows) -> TextBatch:
    """Rows of a corpus."""
    texts = [torch.from_numpy(text.padded(rows)) for text in corpus.texts]
    return TextBatch(Texts(*texts), torch.from_numpy(corpus.padded_target(rows)))


class TextBatches(BatchStream):
    """Batches of a corpus with labels."""

    def batch(self, pairs: Pairs, rows: Rows, *, epoch: int) -> TextBatch:
        assert isinstance(pairs, ClassifiedCorpus)
        return text_batch(pairs, rows)


BATCH_TOKENS = 4096
"""Cells of a batch, both texts counted as long as the longer one."""


def _nothing(texts: int) -> None:
    """Nobody wants to know."""


@torch.inference_mode()
def predict(
    model: Classifier,
    corpus: ClassifiedCorpus,
    *,
    device: torch.device,
    rows: Sequence[int] | None = None,
    batch_tokens: int = BATCH_TOKENS,
    on_batch: Callable[[int], object] = _nothing,
) -> NDArray[np.float64]:
    """Log-probabilities [N, K] of the labels of `rows`, by default of all, in order.

    `on_batch` is called before each batch with the number of its texts, and may raise to end the work.
    """
    wanted = np.arange(len(corpus)) if rows is None else np.asarray(rows, np.int64)
    lengths = np.maximum(corpus.source_lengths, corpus.target_lengths)[wanted]
    found = np.zeros((len(wanted), model.output.weights[0].size(0)))
    for places in batch_lines(lengths.tolist(), batch_tokens=batch_tokens):
        on_batch(len(places))
        scores = model.scores(text_batch(corpus, wanted[places]).source.to(device))
        found[places] = scores.double().log_softmax(1).cpu().numpy()
    return found


class Measured(NamedTuple):
    """A model's results for a text with labels."""

    loss: float
    """In nats a label."""
    labels: list[int]
    """Those predicted, counted from 0."""


def measure(
    model: Classifier, corpus: ClassifiedCorpus, *, device: torch.device, world: World, check: Callable[[], object]
) -> Measured:
    """Loss and labels; several processes share the texts, and all get the same result.

    Raises InterruptedValidationError in all of them when `check` raises it in one.
    """
    rows = range(world.rank, len(corpus), world.size)

    def mine() -> tuple[list[float], list[int]]:
        log_p = predict(model, corpus, device=device, rows=rows, on_batch=lambda _: check())
        right = log_p[np.arange(len(rows)), corpus.labels[rows.start :: world.size] - FIRST_LABEL]
        return (-right).tolist(), log_p.argmax(1).tolist()

    parts = in_all_processes(world, mine)
    losses = interleave([losses for losses, _ in parts])
    return Measured(float(np.mean(losses)), interleave([labels for _, labels in parts]))


class ClassifiedLine(NamedTuple):
    """A model's result for one line."""

    label: str
    """The most probable one; empty for a blank line."""
    probabilities: NDArray[np.float64] | None
    """[K], in the order of the labels; None for a blank line."""
    right: str | None
    """The label given in the line; None if there is none."""
    tokens: int
    """In all its texts."""
    unknown: int
    """How many of these tokens are not in the vocabulary."""
    record: Record


class LineClassifier:
    """Labels lines, each with the texts that the model compares."""

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        device: torch.device,
        json: bool = False,
        as_trained: bool = False,
        labelled: bool = False,
    ) -> None:
        """`loaded` is a model of the task `classification`.

        Lines hold one text, or two separated by a tab; if they are `labelled`, a tab and the label follow. With `json`
        they are objects with the keys from the model's training, with `as_trained` they are as in the files that it
        was trained on. Raises ConfigError if the model has no keys.
        """
        self._model = cast("Classifier", cast("Any", loaded.model))
        self._tokenizer = loaded.tokenizer
        self._options = ClassificationOptions(**loaded.config.task_options)
        self._device, self._labelled = device, labelled
        self.labels: list[str] = loaded.config.model.architecture_options["labels"]
        """All labels."""
        named = [isinstance(place, str) for place in self._options.places]
        if json and not all(named if labelled else named[:-1]):
            raise ConfigError(f"--json: {loaded.path} was trained on numbered columns, not on keys; try --as-trained")
        layout = self._options.layout
        if json:
            layout = replace(layout, form="json", header=False)
        # A line of plain text has no brackets.
        self._layout = layout if json or as_trained else replace(layout, parses=False, escaped=False)
        self._reader: RecordReader | None = None
        self._is_text = not (json or as_trained)

    def classify(
        self, lines: Sequence[str], *, name: str, first: int = 1, on_batch: Callable[[int], object] = lambda _: None
    ) -> list[ClassifiedLine]:
        """Each record, in order; `on_batch` as for `predict`.

        Raises DataError for a malformed line, naming the source `name` and the line; the first line has the number
        `first`. Where lines are no plain text, those of all calls are one file: a record whose last lines are missing
        is found in a later call, or refused by `end`.
        """
        if self._is_text:
            records = [self._record(number, line, name) for number, line in enumerate(lines, start=first)]
        else:
            self._reader = self._reader or RecordReader(self._layout, name, labelled=self._labelled)
            records = list(self._reader.records(lines))
        right = [self._right(record, name) for record in records]
        filled = [place for place, record in enumerate(records) if record.texts]
        found = [ClassifiedLine("", None, None, 0, 0, record) for record in records]
        if not filled:
            return found
        corpus = encode([records[place].texts for place in filled], [0] * len(filled), self._tokenizer)
        log_p = predict(self._model, corpus, device=self._device, on_batch=on_batch)
        for row, place in enumerate(filled):
            ids = np.concatenate([text.row(row) for text in corpus.texts])
            tokens, unknown = len(ids) - len(corpus.texts), int((ids == UNK).sum())
            best = self.labels[int(log_p[row].argmax())]
            found[place] = ClassifiedLine(best, np.exp(log_p[row]), right[place], tokens, unknown, records[place])
        return found

    def end(self) -> None:
        """Raise DataError if the last record has no end."""
        if self._reader is not None:
            self._reader.end()

    def _record(self, number: int, line: str, name: str) -> Record:
        if not line.strip():
            return Record((), "", number)
        fields, texts = line.split("\t"), len(self._options.texts)
        if len(fields) != texts + self._labelled:
            has = counted(len(fields), "column")
            wanted = f"{counted(texts, 'text')}{' and a label' if self._labelled else ''}"
            raise DataError(f"{name}, line {number}: {has}; expected: {wanted}, separated by tabs")
        label = fields.pop().strip() if self._labelled else ""
        return Record(tuple(map(self._layout.text, fields)), label, number)

    def _right(self, record: Record, name: str) -> str | None:
        if not self._labelled or not record.texts or record.label == self._options.no_label:
            return None
        if record.label not in self.labels:
            said = unknown_label(record.label, self.labels, self._options.no_label)
            raise DataError(f"{name}, line {record.line}: {said}")
        return record.label
