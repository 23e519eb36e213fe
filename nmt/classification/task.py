"""Labels of texts, and of pairs of texts, as a task: loss, scores, validation, training."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from nmt.classification.model import FIRST_LABEL, Classifier
from nmt.classification.prediction import TextBatch, TextBatches, measure, text_batch
from nmt.classification.records import (
    ClassificationOptions,
    ClassifiedCorpus,
    Read,
    Record,
    encode,
    read_records,
)
from nmt.config.schema import Config
from nmt.data import Tokenizer
from nmt.data.text_facts import ValidationFacts
from nmt.data.vocabulary import SPECIAL_TOKENS
from nmt.errors import DataError, counted
from nmt.files import reason, replace_text
from nmt.models import build_model
from nmt.other_tasks.in_memory import (
    SURE_OF_LABELS,
    InMemoryTask,
    ScoreValidator,
    batch_settings,
    largest_batch,
    tokenizer_of,
    unused_keys,
)
from nmt.registry import DOUBTS, TASKS, TOKENIZERS
from nmt.training.distributed import World
from nmt.training.losses import BatchLoss, Loss, cross_entropy
from nmt.training.run_dir import write_lines
from nmt.training.state import seed_everything
from nmt.training.task import MemorySample
from nmt.training.trainer import Trainer
from nmt.training.validation import Chance, Check

_CORNER = "correct / predicted"


class OfLabel(NamedTuple):
    """Of one label, in percent; 0 where there is nothing to divide by."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Confusion:
    """How often each label was predicted for each."""

    labels: Sequence[str]
    counts: NDArray[np.int64]
    """[K, K], from the right label (row) to the predicted one (column)"""

    @classmethod
    def of(cls, wanted: Sequence[int], found: Sequence[int], *, labels: Sequence[str]) -> Confusion:
        """`wanted` and `found` [N] count the labels from 0."""
        counts = np.zeros((len(labels), len(labels)), np.int64)
        np.add.at(counts, (np.asarray(wanted, np.int64), np.asarray(found, np.int64)), 1)
        return cls(labels, counts)

    @classmethod
    def of_pairs(cls, pairs: Mapping[tuple[str, str], int], *, labels: Sequence[str]) -> Confusion:
        """How often each pair of a right and a predicted label came."""
        counts = np.array([[pairs.get((right, found), 0) for found in labels] for right in labels], np.int64)
        return cls(labels, counts)

    @property
    def texts(self) -> int:
        """How many have been counted."""
        return int(self.counts.sum())

    @property
    def accuracy(self) -> float:
        """Share of right labels, in percent."""
        return _percent(self.counts.trace(), self.texts)

    @property
    def by_label(self) -> dict[str, OfLabel]:
        """Scores of each label that the reference or a prediction has."""
        found = {}
        for i, label in enumerate(self.labels):
            wanted, predicted, right = self.counts[i].sum(), self.counts[:, i].sum(), self.counts[i, i]
            if wanted or predicted:
                f1 = _percent(2 * right, wanted + predicted)
                found[label] = OfLabel(_percent(right, predicted), _percent(right, wanted), f1)
        return found

    @property
    def macro_f1(self) -> float:
        """Mean of the F1 of these labels, in percent."""
        scores = [own.f1 for own in self.by_label.values()]
        return float(np.mean(scores)) if scores else 0.0

    @property
    def scores(self) -> dict[str, float]:
        """What validation measures."""
        return {"accuracy": self.accuracy, "macro_f1": self.macro_f1}

    def lines(self) -> list[str]:
        """Scores of each label and the counts, for people."""
        width = max(map(len, self.labels))
        lines = [
            f"  {label:<{width}}  precision {own.precision:6.2f}  recall {own.recall:6.2f}  f1 {own.f1:6.2f}"
            for label, own in self.by_label.items()
        ]
        columns = [max(len(label), len(f"{self.counts.max():,}")) for label in self.labels]
        names = "  ".join(f"{label:>{size}}" for label, size in zip(self.labels, columns, strict=True))
        width = max(width, len(_CORNER))
        lines.append(f"  {_CORNER:<{width}}  {names}")
        for label, row in zip(self.labels, self.counts.tolist(), strict=True):
            numbers = "  ".join(f"{count:>{size},}" for count, size in zip(row, columns, strict=True))
            lines.append(f"  {label:<{width}}  {numbers}")
        return lines


def _percent(part: int, whole: int) -> float:
    return 100 * float(part) / float(whole) if whole else 0.0


@dataclass(frozen=True)
class ClassifiedBatch:
    """A batch with the model that is trained on it."""

    model: Classifier
    batch: TextBatch
    weights: Tensor
    """[B, 1], what each text counts for in the update"""


class ClassLoss(Loss):
    """Cross entropy with `training.label_smoothing`."""

    smooths = True

    def __call__(self, batch: Any) -> BatchLoss:
        scores, labels = batch.model.scores(batch.batch.source), batch.batch.target[:, 0] - FIRST_LABEL
        losses = cross_entropy(scores, labels, label_smoothing=self.label_smoothing)
        nll = F.cross_entropy(scores.detach(), labels, reduction="none")
        return BatchLoss((losses * batch.weights[:, 0].to(losses.dtype)).sum(), nll)


@dataclass(frozen=True, kw_only=True)
class ClassifiedText:
    """Records with labels, as they are and encoded."""

    records: Sequence[Record]
    corpus: ClassifiedCorpus
    labels: Sequence[str]
    """All that there are."""
    unlabelled: int = 0
    """Lines that have been left out, because they have no label."""
    blank: int = 0
    """The same, because they are blank."""

    def compare(self, labels: Sequence[int]) -> Confusion:
        """With predicted labels of all records, counted from 0."""
        return Confusion.of((self.corpus.labels - FIRST_LABEL).tolist(), labels, labels=self.labels)


@dataclass(frozen=True, kw_only=True)
class ClassValidator(ScoreValidator):
    """The validation text, which several processes share."""

    text: ClassifiedText

    @property
    def key(self) -> str:
        return self.text.corpus.key

    def scores(self, model: Any, *, check: Check) -> tuple[dict[str, float], Chance | None]:
        found = measure(model, self.text.corpus, device=self.device, world=self.world, check=check)
        scores = {"loss": found.loss, **self.text.compare(found.labels).scores}

        def shuffled(places: Sequence[int]) -> float:
            return self.text.compare([found.labels[place] for place in places]).macro_f1

        alike = len(set(self.text.corpus.labels.tolist())) < 2
        return scores, None if alike else DOUBTS.get("by_chance")(
            "macro_f1", shuffled, lines=len(found.labels), sure=SURE_OF_LABELS
        )


@dataclass(frozen=True, kw_only=True)
class PreparedTexts:
    """All that training needs of the data."""

    tokenizer: Tokenizer
    texts: Mapping[str, ClassifiedText]
    """`train`, and `dev` and `test` if given."""
    dev_facts: ValidationFacts | None
    folders: Sequence[Path] = ()

    @property
    def train(self) -> ClassifiedCorpus:
        """The training text, encoded."""
        return self.texts["train"].corpus

    @property
    def key(self) -> str:
        return self.train.key

    @property
    def counts(self) -> Mapping[str, int]:
        return {f"{name}_texts": len(text.corpus) for name, text in self.texts.items()}


@TASKS.register("classification")
class Classification(InMemoryTask):
    """Labels of texts, or of pairs of texts."""

    Options = ClassificationOptions
    options: ClassificationOptions
    scores: ClassVar[Mapping[str, bool]] = {"accuracy": True, "macro_f1": True}
    unused: ClassVar[Mapping[str, str]] = {
        **unused_keys(
            pairs="a classifier reads files with texts and labels",
            search="a classifier does not search",
            model="see model.cell and model.architecture_options",
            evaluation="validation measures loss, accuracy and macro F1",
        ),
        **{f"training.{key}": "its loss is cross entropy of the labels" for key in ("loss", "loss_options")},
        "training.normalization": "each text has one label, with equal weight",
    }

    @classmethod
    def completed(cls, config: Config) -> Config:
        """One vocabulary, no metrics of translations."""
        options = config.data.tokenizer_options
        if "joint" in options:
            options = {**options, "joint": True}
        data = dataclasses.replace(config.data, tokenizer_options=options)
        return dataclasses.replace(config, data=data, evaluation=dataclasses.replace(config.evaluation, metrics=[]))

    @classmethod
    def check(cls, config: Config) -> list[tuple[str, str]]:
        options = ClassificationOptions(**config.task_options)
        own, problems = config.model.architecture_options, list[tuple[str, str]]()
        if "labels" in own and len(own["labels"]) < 2:
            problems.append(("model.architecture_options.labels", "name two labels or more"))
        if "labels" in own and options.no_label in own["labels"]:
            problems.append(("task_options.no_label", f"'{options.no_label}' must not be one of the labels"))
        compares = own.get("attention") is not None
        if "attention" in own and compares != (len(options.texts) == 2):
            wrong = "compares two texts" if compares else "null is for one text; for two: word_by_word, aligned"
            message = f"{wrong}, but task_options.texts has {len(options.texts)}"
            problems.append(("model.architecture_options.attention", message))
        return problems + _tokenizer_problems(config, options)

    @property
    def labels(self) -> list[str]:
        """All labels, in the order of the model's output."""
        names: list[str] = self.config.model.architecture_options["labels"]
        return names

    def prepare(self, run: Path, *, progress: bool = True) -> PreparedTexts:
        read = {name: self._read(name, paths) for name, paths in self.files().items() if paths}
        words = _write_texts(self.cache(run), read["train"])
        tokenizer = tokenizer_of(self, [words], [words], run=run, cache=words.parent, shown=progress)
        texts = {name: self._encoded(found, tokenizer) for name, found in read.items()}
        self.vectors(tokenizer)  # a mistake in them should show before the work
        return PreparedTexts(tokenizer=tokenizer, texts=texts, dev_facts=self.read_validation_facts())

    def _read(self, name: str, files: Sequence[Path]) -> Read:
        read = read_records(files, self.options.layout, labels=self.labels, no_label=self.options.no_label)
        if not read.records:
            raise DataError(f"data.{name}: {', '.join(map(str, files))}: has no text with a label")
        return read

    def _encoded(self, read: Read, tokenizer: Tokenizer) -> ClassifiedText:
        ids = {label: number for number, label in enumerate(self.labels, start=FIRST_LABEL)}
        records = read.records
        corpus = encode([record.texts for record in records], [ids[record.label] for record in records], tokenizer)
        return ClassifiedText(
            records=records, corpus=corpus, labels=self.labels, unlabelled=read.unlabelled, blank=read.blank
        )

    def build_model(self, tokenizer: Tokenizer, *, device: torch.device) -> Classifier:
        seed_everything(self.config.seed)
        built: Any = build_model(self.config.model, tokenizer.source_size, tokenizer.target_size)
        model = cast("Classifier", built).to(device)
        table = model.words.weight
        ids = self.start_from_vectors(table, tokenizer)
        if ids is not None and self.options.fixed_vectors:
            table.register_hook(lambda gradient: gradient.index_fill(0, ids, 0.0))
        return model

    def build_batches(self, data: PreparedTexts, *, world: World | None = None) -> TextBatches:
        return TextBatches(data.train, **batch_settings(self.config, data.train, world))

    def build_loss(self) -> Loss:
        return ClassLoss(label_smoothing=self.config.training.label_smoothing)

    def training_batch(self, model: Any, batch: Any, weights: Tensor) -> ClassifiedBatch:
        return ClassifiedBatch(model, batch, weights)

    def memory_sample(self, data: PreparedTexts, batches: TextBatches) -> MemorySample:
        """The largest batch (most cells) of the first pool."""
        lengths = data.train.source_lengths + data.train.target_lengths
        longest, rows = largest_batch(batches.sampler.pool(0, 0).batches, lengths)
        return MemorySample(text_batch(data.train, longest), rows)

    def build_validator(self, data: PreparedTexts, *, device: torch.device, world: World) -> ClassValidator | None:
        if "dev" not in data.texts:
            return None
        return ClassValidator(text=data.texts["dev"], device=device, world=world)

    def describe_model(self, model: Classifier) -> str:
        options = self.config.model.architecture_options
        texts = "one text" if model.texts == 1 else f"two texts, {options['attention']}"
        return f"{self.config.model.architecture} {self.config.model.cell}, {texts}"

    def describe_vocabularies(self, model: Classifier) -> str:
        return f"vocabulary: {model.source_vocab_size:,}; labels: {', '.join(self.labels)}"

    def data_lines(self, data: PreparedTexts, batches: TextBatches) -> list[str]:
        lines = []
        for name, text in data.texts.items():
            kinds = "text" if len(text.corpus.texts) == 1 else "pair"
            counts = np.bincount(text.corpus.labels, minlength=FIRST_LABEL + len(self.labels))[FIRST_LABEL:]
            listed = ", ".join(f"{label} {count:,}" for label, count in zip(self.labels, counts, strict=True))
            lines.append(
                f"{name}: {counted(len(text.corpus), kinds)} ({listed}), {text.corpus.tokens:,} tokens, "
                f"{text.corpus.unknown:,} of them unknown"
            )
            for count, why in ((text.unlabelled, "without a label"), (text.blank, "that are blank")):
                if count:
                    lines.append(f"{name}: {counted(count, 'line')} {why} left out")
        vectors = self.vectors(data.tokenizer)
        if vectors is not None:
            lines.append(
                vectors.describe(str(self.options.vectors), words=data.tokenizer.source_size - len(SPECIAL_TOKENS))
            )
        return lines

    def doubts(self, data: PreparedTexts, batches: TextBatches) -> list[str]:
        missing = [label for i, label in enumerate(self.labels, start=FIRST_LABEL) if i not in data.train.labels]
        return [f"train: no text with the label {', '.join(missing)}; it cannot be learned"] if missing else []

    def test_outputs(self, *, average: bool = False) -> list[Path]:
        return [Path(self.config.run_dir) / f"test{'.average' if average else ''}.tsv"]

    def score_test(self, trainer: Trainer, data: PreparedTexts, *, by: str, outputs: Sequence[Path]) -> None:
        (output,) = outputs
        log, model, text = trainer.log, cast("Any", trainer.updater.model), data.texts["test"]
        model.eval()
        device = trainer.updater.precision.device
        found = measure(model, text.corpus, device=device, world=trainer.world, check=lambda: None)
        if not trainer.world.is_main:
            return
        confusion = text.compare(found.labels)
        listed = ", ".join(f"{name} {value:.2f}" for name, value in confusion.scores.items())
        log.say(f"test loss {found.loss:.4f}, {listed} with {by}")
        for line in confusion.lines():
            log.say(line)
        rows = (
            [record.label, self.labels[i], *record.texts] for record, i in zip(text.records, found.labels, strict=True)
        )
        write_lines(output, ("\t".join(field.replace("\t", " ") for field in row) for row in rows))
        fields: dict[str, Any] = {"checkpoint": by, "loss": found.loss, **confusion.scores}
        fields["by_label"] = {label: own._asdict() for label, own in confusion.by_label.items()}
        fields["confusion"] = confusion.counts.tolist()
        trainer.record("test", fields)
        log.say(f"labels, predicted labels and texts of the test text, by {by}, in {output}")

    def hint(self, run: Path) -> str:
        return f"label texts with: nmt-classify {run}"


def _tokenizer_problems(config: Config, options: ClassificationOptions) -> list[tuple[str, str]]:
    """What does not go with the tokenizer, as (key, message)."""
    name, problems = config.data.tokenizer, list[tuple[str, str]]()
    if name not in TOKENIZERS.names():
        return []
    kind, given = TOKENIZERS.get(name), config.data.tokenizer_options
    if options.vectors is not None and not kind.splits_at_spaces:
        problems.append(("task_options.vectors", f"are for words; the tokenizer '{name}' splits them"))
    for key in sorted(kind.sampling_options):
        if given.get(key):
            problems.append((f"data.tokenizer_options.{key}", "has no effect with the task 'classification'"))
    if options.fixed_vectors and config.training.optimizer_options.get("weight_decay"):
        message = "would change the embeddings that task_options.fixed_vectors keeps fixed; set it to 0"
        problems.append(("training.optimizer_options.weight_decay", message))
    return problems


def _write_texts(folder: Path, read: Read) -> Path:
    """A file of the texts alone, one a line, from which the tokenizer is made; other texts have another name."""
    content = "".join(f"{text}\n" for record in read.records for text in record.texts)
    path = folder / f"texts-{hashlib.sha256(content.encode()).hexdigest()[:16]}.txt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.is_file():
            replace_text(path, content)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({reason(error)})") from error
    return path
