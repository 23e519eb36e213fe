"""Lines of text in, their labels out, by a trained model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from nmt.classification.corpus import encode
from nmt.classification.model import Classifier
from nmt.classification.predicting import predict
from nmt.classification.records import Record, unknown_label
from nmt.classification.task import ClassificationOptions
from nmt.data.vocabulary import UNK
from nmt.errors import ConfigError, DataError, counted
from nmt.interop.model_dir import LoadedModel


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


class LineClassifier:
    """Labels lines, each with the texts that the model compares."""

    def __init__(
        self, loaded: LoadedModel, *, device: torch.device, json: bool = False, labelled: bool = False
    ) -> None:
        """`loaded` is a model of the task `classification`.

        Lines hold one text, or two separated by a tab; if they are `labelled`, a tab and the label follow. With `json`
        they are objects with the keys from the model's training. Raises ConfigError if the model has no keys.
        """
        self._model = cast("Classifier", cast("Any", loaded.model))
        self._tokenizer = loaded.tokenizer
        self._options = ClassificationOptions(**loaded.config.task_options)
        self._device, self._json, self._labelled = device, json, labelled
        self.labels: list[str] = loaded.config.model.architecture_options["labels"]
        """All labels."""
        places = [*self._options.texts, *([self._options.label] if labelled else [])]
        if json and not all(isinstance(place, str) for place in places):
            raise ConfigError(f"--json: {loaded.path} was trained on numbered columns ({places}), not on keys")
        # A line of plain text has no brackets.
        self._layout = replace(self._options.layout, parses=json and self._options.parses)

    def classify(
        self, lines: Sequence[str], *, name: str, first: int = 1, on_batch: Callable[[int], object] = lambda _: None
    ) -> list[ClassifiedLine]:
        """Each line, in order; `on_batch` as for `predict`.

        Raises DataError for a malformed line, naming the source `name` and the line; the first line has the number
        `first`.
        """
        numbered = enumerate(lines, start=first)
        if self._json:
            records = list(self._layout.objects(numbered, name, labelled=self._labelled))
        else:
            records = [self._record(number, line, name) for number, line in numbered]
        right = [self._right(record, name) for record in records]
        filled = [place for place, record in enumerate(records) if record.texts]
        found = [ClassifiedLine("", None, None, 0, 0) for _ in records]
        if not filled:
            return found
        corpus = encode([records[place].texts for place in filled], [0] * len(filled), self._tokenizer)
        log_p = predict(self._model, corpus, device=self._device, on_batch=on_batch)
        for row, place in enumerate(filled):
            ids = np.concatenate([text.row(row) for text in corpus.texts])
            tokens, unknown = len(ids) - len(corpus.texts), int((ids == UNK).sum())
            best = self.labels[int(log_p[row].argmax())]
            found[place] = ClassifiedLine(best, np.exp(log_p[row]), right[place], tokens, unknown)
        return found

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
