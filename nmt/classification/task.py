"""The task `classification`."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor

from nmt.classification.batches import TextBatches, text_batch
from nmt.classification.corpus import ClassifiedCorpus, encode
from nmt.classification.loss import ClassifiedBatch, ClassLoss
from nmt.classification.model import FIRST_LABEL, Classifier
from nmt.classification.predicting import measure
from nmt.classification.records import Layout, Read, read_records
from nmt.classification.validation import ClassifiedText, ClassValidator
from nmt.config.schema import Config, FilePath
from nmt.data import Tokenizer
from nmt.data.prepare import known_files, make_tokenizer
from nmt.data.text_facts import ValidationFacts
from nmt.data.vocabulary import SPECIAL_TOKENS
from nmt.errors import DataError, counted
from nmt.files import reason, replace_text
from nmt.models import build_model
from nmt.registry import TASKS, TOKENIZERS
from nmt.tasks.in_memory import InMemoryTask, batch_settings, largest_batch, unused_keys
from nmt.training.distributed import World
from nmt.training.losses import Loss
from nmt.training.run_dir import write_lines
from nmt.training.state import seed_everything
from nmt.training.task import MemorySample
from nmt.training.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class ClassificationOptions:
    """Options of the task `classification`. `data.train`, `data.dev` and `data.test` are files, not prefixes."""

    format: Literal["tsv", "json"] = "tsv"
    """`tsv`: columns that tabs separate, without quotes; `json`: a JSON object a line."""
    texts: list[str | int] = field(default_factory=lambda: ["sentence1", "sentence2"])
    """Columns of one or two texts, by their names in the first line or by numbers (from 1; -1 is the last); or JSON
    keys."""
    label: str | int = "gold_label"
    """Column or key of the label."""
    header: bool | None = None
    """Of `tsv`: whether the first line of each file names columns; `null`: if a column is given by name."""
    no_label: str | None = "-"
    """Label of lines that have none; these are left out, and counted."""
    parses: bool = False
    """The texts are parses with brackets between spaces, as SNLI's `sentence1_binary_parse`; their words are read."""
    lowercase: bool = False
    """All text is read in lower case."""
    vectors: FilePath | None = None
    """File of vectors from which the embeddings of words start, in the text format of GloVe, with
    `model.embedding_size` numbers for each word."""
    fixed_vectors: bool = False
    """The embeddings that start from a vector stay as they are."""

    def __post_init__(self) -> None:
        places = [*self.texts, self.label]
        if len(self.texts) not in (1, 2):
            raise ValueError(f"texts: one or two, not {len(self.texts)}")
        if len({*places}) < len(places):
            raise ValueError(f"texts: the texts and the label must be in different places, not {places}")
        if 0 in places:
            raise ValueError("texts: columns are counted from 1, or from the end with -1")
        named = [isinstance(place, str) for place in places]
        if self.format == "json" and not all(named):
            raise ValueError("texts: JSON has named keys, not numbered columns")
        if self.format == "json" and self.header is not None:
            raise ValueError("header: has no effect with JSON")
        if self.header is False and any(named):
            raise ValueError("header: must be true if columns are given by their names in the first line")
        if self.fixed_vectors and self.vectors is None:
            raise ValueError("fixed_vectors: has no effect without vectors")

    @property
    def layout(self) -> Layout:
        """Where lines have their texts and labels."""
        header = self.header
        if header is None:
            header = any(isinstance(place, str) for place in [*self.texts, self.label])
        return Layout(
            form=self.format,
            texts=self.texts,
            label=self.label,
            header=header,
            lowercase=self.lowercase,
            parses=self.parses,
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
        known = known_files(words.parent, [words], shown=progress)
        known.save()
        tokenizer = make_tokenizer(self.config, [], [words], run_dir=run, known=known, shown=progress)
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

    def test_output(self, *, average: bool = False) -> Path:
        return Path(self.config.run_dir) / f"test{'.average' if average else ''}.tsv"

    def score_test(self, trainer: Trainer, data: PreparedTexts, *, by: str, output: Path | None) -> None:
        assert output is not None
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
