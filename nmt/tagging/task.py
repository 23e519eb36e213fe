"""Labels of words, and words in text without spaces, as tasks: loss, scores, validation, training."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor

from nmt.config.schema import Config, FilePath
from nmt.data import Tokenizer
from nmt.data.corpus import FlatSentences, flat
from nmt.data.text_facts import ValidationFacts
from nmt.data.vocabulary import SPECIAL_TOKENS
from nmt.errors import DataError, counted
from nmt.interop.model_dir import sizes_of
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
from nmt.registry import DOUBTS, TASKS
from nmt.tagging.labels import Span, joined, with_labels
from nmt.tagging.model import Tagger, TaggerOptions
from nmt.tagging.prediction import TagBatch, TagBatches, has_loss, measure, tag_batch, unknown_labels
from nmt.tagging.tokenizers import Labelled, TaggedCorpus, TaggedWords, TaggingTokenizer
from nmt.training.distributed import World
from nmt.training.losses import BatchLoss, Loss
from nmt.training.run_dir import write_lines
from nmt.training.state import seed_everything
from nmt.training.task import MemorySample
from nmt.training.trainer import Trainer
from nmt.training.validation import Chance, Check


class F1(NamedTuple):
    """Three scores, in percent; 0 where there is nothing to divide by."""

    f1: float
    precision: float
    recall: float


def f1(*, right: int, wanted: int, found: int) -> F1:
    """Scores from the numbers of correct, reference and predicted spans."""
    precision = 100 * right / found if found else 0.0
    recall = 100 * right / wanted if wanted else 0.0
    both = precision + recall
    return F1(2 * precision * recall / both if both else 0.0, precision, recall)


@dataclass
class SpanCounts:
    """Spans by their kinds: a predicted span is correct if beginning, end and kind match a reference span."""

    right: Counter[str] = field(default_factory=Counter)
    wanted: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    new: int = 0
    """Words of the reference that the training text has not."""
    new_right: int = 0

    def add(
        self, wanted: Sequence[Span], found: Sequence[Span], *, tokens: Sequence[str] = (), known: Collection[str] = ()
    ) -> None:
        """Count a sentence. With `known`, the words of the training text, spans of `tokens` are words."""
        right = set(wanted) & set(found)
        self.right.update(span.kind for span in right)
        self.wanted.update(span.kind for span in wanted)
        self.found.update(span.kind for span in found)
        if known:
            unseen = [span for span in wanted if "".join(tokens[span.first : span.end]) not in known]
            self.new += len(unseen)
            self.new_right += sum(span in right for span in unseen)

    @property
    def overall(self) -> F1:
        """Scores of all kinds together."""
        return f1(right=self.right.total(), wanted=self.wanted.total(), found=self.found.total())

    @property
    def by_kind(self) -> dict[str, F1]:
        """Scores of each kind in the reference or the predictions."""
        kinds = sorted({*self.wanted, *self.found})
        return {kind: f1(right=self.right[kind], wanted=self.wanted[kind], found=self.found[kind]) for kind in kinds}

    @property
    def new_recall(self) -> float | None:
        """Recall of words that the training text has not, in percent; None where there are none."""
        return 100 * self.new_right / self.new if self.new else None


@dataclass(frozen=True)
class LabelledBatch:
    """A batch with the model that is trained on it."""

    model: Tagger
    batch: TagBatch
    weights: Tensor
    """[B, T], what each word counts for in the update"""


class LabelLoss(Loss):
    """The sum over the words of each sentence, because a random field gives one probability to all of them.

    Its weight is the average weight of the sentence's words, so that `training.normalization` keeps its meaning.
    """

    def __call__(self, batch: Any) -> BatchLoss:
        losses = batch.model.losses(batch.batch.source, batch.batch.target)
        words = (batch.batch.target != 0).sum(1)
        return BatchLoss((losses * (batch.weights.sum(1) / words).to(losses.dtype)).sum(), losses.detach())


@dataclass(frozen=True, kw_only=True)
class LabelledText:
    """A text with labels, plain and encoded; both include sentences without a token."""

    sentences: Sequence[Labelled]
    corpus: TaggedCorpus
    tokenizer: TaggingTokenizer

    @cached_property
    def spans(self) -> list[list[Span]]:
        """Of each sentence."""
        return [self.tokenizer.spans(labels) for _, labels in self.sentences]

    def predicted(self, ids: Sequence[int]) -> list[str]:
        """The labels with these ids."""
        return self.tokenizer.target_tokens(ids)

    def count(self, labels: Sequence[Sequence[int]], *, known: Set[str] = frozenset()) -> SpanCounts:
        """What is right of predicted labels of all sentences; `known` as for `SpanCounts`."""
        counts = SpanCounts()
        for sentence, wanted, ids in zip(self.sentences, self.spans, labels, strict=True):
            counts.add(wanted, self.tokenizer.spans(self.predicted(ids)), tokens=sentence.tokens, known=known)
        return counts


def scores_of(counts: SpanCounts) -> dict[str, float]:
    """F1, precision and recall, and the recall of new words where there are any."""
    new = counts.new_recall
    return {**counts.overall._asdict(), **({} if new is None else {"oov_recall": new})}


@dataclass(frozen=True, kw_only=True)
class TagValidator(ScoreValidator):
    """The validation text, whose sentences several processes share."""

    text: LabelledText
    known: Set[str] = field(default_factory=frozenset)
    """The words of the training text, of a segmentation."""

    @property
    def key(self) -> str:
        return self.text.corpus.key

    def scores(self, model: Any, *, check: Check) -> tuple[dict[str, float], Chance | None]:
        found = measure(model, self.text.corpus, device=self.device, world=self.world, check=check)
        scores = {"loss": found.loss, **scores_of(self.text.count(found.labels, known=self.known))}
        wanted = [set(spans) for spans in self.text.spans]
        given = [set(self.text.tokenizer.spans(self.text.predicted(ids))) for ids in found.labels]
        sizes = {"wanted": sum(map(len, wanted)), "found": sum(map(len, given))}

        def shuffled(places: Sequence[int]) -> float:
            right = sum(len(own & given[place]) for own, place in zip(wanted, places, strict=True))
            return f1(right=right, **sizes).f1

        alike = all(spans == wanted[0] for spans in wanted)
        return scores, None if alike else DOUBTS.get("by_chance")(
            "f1", shuffled, lines=len(wanted), sure=SURE_OF_LABELS
        )


@dataclass(frozen=True, kw_only=True)
class TaggingOptions:
    """Options of the tasks `tagging` and `segmentation`. Texts are files, not prefixes: `data.train`, `data.dev`,
    `data.test`."""

    unknown_share: float = 0.5
    """How often a word, or character, that occurs once counts as unknown."""
    vectors: FilePath | None = None
    """File in GloVe's text format from which the embeddings of words start."""

    def __post_init__(self) -> None:
        if not 0 <= self.unknown_share <= 1:
            raise ValueError(f"unknown_share: must be from 0 to 1, not {self.unknown_share:g}")


@dataclass(frozen=True, kw_only=True)
class PreparedLabels:
    """All that training needs of the data."""

    tokenizer: TaggingTokenizer
    train: TaggedCorpus
    """Without the sentences that have no token."""
    known: Set[str]
    """The words of the training text, of a segmentation."""
    empty: int
    """Lines of the training text without a character."""
    dev: LabelledText | None
    test: LabelledText | None
    dev_facts: ValidationFacts | None
    folders: Sequence[Path] = ()

    @property
    def key(self) -> str:
        return self.train.key

    @property
    def texts(self) -> Mapping[str, TaggedCorpus]:
        """The given texts, encoded."""
        others = {"dev": self.dev, "test": self.test}
        return {"train": self.train, **{name: text.corpus for name, text in others.items() if text is not None}}

    @property
    def counts(self) -> Mapping[str, int]:
        return {f"{name}_sentences": len(corpus) for name, corpus in self.texts.items()}


class LabelTask(InMemoryTask):
    """Sentences whose tokens have labels."""

    Options = TaggingOptions
    options: TaggingOptions
    tokenizer: ClassVar[str]
    """The tokenizer that reads its texts."""
    tokens: ClassVar[str]
    """What it calls them."""
    suffix: ClassVar[str]
    """Suffix of the files of predictions."""
    scores: ClassVar[Mapping[str, bool]] = {"f1": True, "precision": True, "recall": True}
    unused: ClassVar[Mapping[str, str]] = {
        **unused_keys(
            pairs="a tagger reads one text",
            search="a tagger does not search",
            model="it has no decoder and no attention; see model.cell and model.architecture_options",
            evaluation="validation measures loss, F1, precision and recall",
        ),
        **{
            f"training.{key}": "its loss is the likelihood of the labels; see model.architecture_options.crf"
            for key in ("loss", "loss_options", "label_smoothing")
        },
    }

    @classmethod
    def completed(cls, config: Config) -> Config:
        """No smoothing, no metrics of translations."""
        evaluation = dataclasses.replace(config.evaluation, metrics=[])
        training = dataclasses.replace(config.training, label_smoothing=0.0)
        return dataclasses.replace(config, evaluation=evaluation, training=training)

    @classmethod
    def check(cls, config: Config) -> list[tuple[str, str]]:
        if config.data.tokenizer != cls.tokenizer:
            return [("data.tokenizer", f"'{config.data.tokenizer}' reads no labels. Allowed: {cls.tokenizer}.")]
        given = config.model.architecture_options if config.model.architecture == "tagger" else {}
        return [
            (f"model.architecture_options.{name}", f"has no effect {why}")
            for name, why in cls.idle_options(config.data.tokenizer_options).items()
            if name in given and given[name] != getattr(TaggerOptions, name)
        ]

    @classmethod
    @abstractmethod
    def idle_options(cls, tokenizer_options: Mapping[str, Any]) -> Mapping[str, str]:
        """Options of the architecture `tagger` without effect, each with the reason."""

    @abstractmethod
    def known_words(self, sentences: Sequence[Labelled], tokenizer: TaggingTokenizer) -> Set[str]:
        """The words of the training text, if scores distinguish new words."""

    @abstractmethod
    def predictions(self, text: LabelledText, labels: Sequence[Sequence[str]]) -> Iterator[str]:
        """The lines of the test text with these labels of its sentences, in its own format."""

    def prepare(self, run: Path, *, progress: bool = True) -> PreparedLabels:
        files = self.files()
        read = [path for paths in files.values() for path in paths]
        made = tokenizer_of(self, read, files["train"], run=run, cache=self.cache(run), shown=progress)
        tokenizer = cast("TaggingTokenizer", made)
        texts = {name: _read(name, paths, tokenizer) for name, paths in files.items() if paths}
        filled = [sentence for sentence in texts["train"].sentences if sentence.tokens]
        train = texts["train"].corpus if len(filled) == len(texts["train"].sentences) else _encoded(filled, tokenizer)
        data = PreparedLabels(
            tokenizer=tokenizer,
            train=train,
            known=self.known_words(filled, tokenizer),
            empty=len(texts["train"].sentences) - len(filled),
            dev=texts.get("dev"),
            test=texts.get("test"),
            dev_facts=self.read_validation_facts(),
        )
        training = self.config.training
        ends = training.max_steps is not None or training.max_epochs is not None
        if (
            data.dev is not None
            and not has_loss(data.dev.corpus)
            and training.early_stopping_metric == "loss"
            and not ends
        ):
            raise DataError(
                "data.dev: every sentence has labels that are not in the training text, so there is no loss that "
                "training.patience could wait for; set training.early_stopping_metric: f1, or training.max_steps"
            )
        self.vectors(tokenizer)  # a mistake in them should show before the work
        return data

    def build_model(self, tokenizer: Tokenizer, *, device: torch.device) -> Tagger:
        seed_everything(self.config.seed)
        built: Any = build_model(self.config.model, *sizes_of(tokenizer))
        model = cast("Tagger", built).to(device)
        self.start_from_vectors(model.words.weight, tokenizer)
        return model

    def build_batches(self, data: PreparedLabels, *, world: World | None = None) -> TagBatches:
        return TagBatches(
            data.train, unknown=self.options.unknown_share, **batch_settings(self.config, data.train, world)
        )

    def build_loss(self) -> Loss:
        return LabelLoss()

    def training_batch(self, model: Any, batch: Any, weights: Tensor) -> LabelledBatch:
        return LabelledBatch(model, batch, weights)

    def memory_sample(self, data: PreparedLabels, batches: TagBatches) -> MemorySample:
        """The largest batch (most cells) of the first pool."""
        longest, rows = largest_batch(batches.sampler.pool(0, 0).batches, data.train.source_lengths)
        return MemorySample(tag_batch(data.train, longest), rows)

    def build_validator(self, data: PreparedLabels, *, device: torch.device, world: World) -> TagValidator | None:
        if data.dev is None:
            return None
        return TagValidator(text=data.dev, device=device, known=data.known, world=world)

    def describe_model(self, model: Tagger) -> str:
        head = "softmax" if model.crf is None else "CRF"
        layers = counted(len(model.layers), "bidirectional layer")
        return f"{self.config.model.architecture} {self.config.model.cell}, {layers}, {head}"

    def describe_vocabularies(self, model: Tagger) -> str:
        parts = [f"{self.tokens} {model.source_vocab_size:,}", f"labels {model.output.weights[0].size(0)}"]
        if model.letters is not None:
            parts.append(f"characters {len(model.letters.table.weight):,}")
        if model.bigrams is not None:
            parts.append(f"bigrams {len(model.bigrams.weight):,}")
        return f"vocabularies: {', '.join(parts)}"

    def data_lines(self, data: PreparedLabels, batches: TagBatches) -> list[str]:
        lines = [
            f"{name}: {counted(len(corpus), 'sentence')}, {int(corpus.source_lengths.sum()):,} {self.tokens}, "
            f"{corpus.features.unknown:,} of them unknown"
            for name, corpus in data.texts.items()
        ]
        if data.empty:
            lines.append(f"train: {counted(data.empty, 'empty line')} left out")
        vectors = self.vectors(data.tokenizer)
        if vectors is not None:
            words = len(data.tokenizer.tokens) - len(SPECIAL_TOKENS)
            lines.append(vectors.describe(str(self.options.vectors), words=words))
        return lines

    def doubts(self, data: PreparedLabels, batches: TagBatches) -> list[str]:
        found = []
        for name, corpus in data.texts.items():
            if count := unknown_labels(corpus):
                line = (
                    f"{name}: {counted(count, 'sentence')} with labels that are not in the training text; they count "
                )
                found.append(
                    f"{line}in F1, but not in the loss"
                    + ("" if has_loss(corpus) else ": nothing is left of it, it is NaN and ranks no checkpoint")
                )
        return found

    def test_outputs(self, *, average: bool = False) -> list[Path]:
        return [Path(self.config.run_dir) / f"test{'.average' if average else ''}.{self.suffix}"]

    def score_test(self, trainer: Trainer, data: PreparedLabels, *, by: str, outputs: Sequence[Path]) -> None:
        assert data.test is not None
        (output,) = outputs
        log, model, text = trainer.log, cast("Any", trainer.updater.model), data.test
        model.eval()
        device = trainer.updater.precision.device
        found = measure(model, text.corpus, device=device, world=trainer.world, check=lambda: None)
        if not trainer.world.is_main:
            return
        counts = text.count(found.labels, known=data.known)
        scores, by_kind = scores_of(counts), counts.by_kind
        listed = ", ".join(f"{name} {value:.2f}" for name, value in scores.items())
        log.say(f"test loss {found.loss:.4f}, {listed} with {by}")
        fields: dict[str, Any] = {"checkpoint": by, "loss": found.loss, **scores}
        if set(by_kind) != {""}:
            fields["by_type"] = {kind: own._asdict() for kind, own in by_kind.items()}
            for kind, own in by_kind.items():
                log.say(f"  {kind}: f1 {own.f1:.2f}, precision {own.precision:.2f}, recall {own.recall:.2f}")
        write_lines(output, self.predictions(text, [text.predicted(ids) for ids in found.labels]))
        trainer.record("test", fields)
        log.say(f"test text labelled with {by} into {output}")

    def hint(self, run: Path) -> str:
        return f"label text with: nmt-tag {run}"


@TASKS.register("tagging")
class Tagging(LabelTask):
    """Words in columns and their labels, which say spans: names, phrases."""

    tokenizer = "tagged_words"
    tokens = "words"
    suffix = "conll"

    @classmethod
    def idle_options(cls, tokenizer_options: Mapping[str, Any]) -> Mapping[str, str]:
        return {"bigram_size": "with the task 'tagging', which reads no bigrams"}

    def known_words(self, sentences: Sequence[Labelled], tokenizer: TaggingTokenizer) -> Set[str]:
        return frozenset()

    def predictions(self, text: LabelledText, labels: Sequence[Sequence[str]]) -> Iterator[str]:
        tokenizer = cast("TaggedWords", text.tokenizer)
        written = map(tokenizer.written, labels)
        for file in self.files()["test"]:
            yield from with_labels(file, tokenizer.options.columns, written)


@TASKS.register("segmentation")
class Segmentation(LabelTask):
    """Text with spaces between words, for segmentation of text without spaces."""

    tokenizer = "tagged_characters"
    tokens = "characters"
    suffix = "txt"

    @classmethod
    def check(cls, config: Config) -> list[tuple[str, str]]:
        problems = super().check(config)
        if config.task_options.get("vectors") is not None:
            problems.append(("task_options.vectors", "is for words; the task 'segmentation' reads characters"))
        return problems

    @classmethod
    def idle_options(cls, tokenizer_options: Mapping[str, Any]) -> Mapping[str, str]:
        words = "with the task 'segmentation', which reads no words"
        idle = {"character_size": words, "character_hidden_size": words}
        if not tokenizer_options.get("bigrams"):
            idle["bigram_size"] = "without data.tokenizer_options.bigrams: true"
        return idle

    def known_words(self, sentences: Sequence[Labelled], tokenizer: TaggingTokenizer) -> Set[str]:
        spans = ((tokens, span) for tokens, labels in sentences for span in tokenizer.spans(labels))
        return frozenset("".join(tokens[span.first : span.end]) for tokens, span in spans)

    def predictions(self, text: LabelledText, labels: Sequence[Sequence[str]]) -> Iterator[str]:
        for (tokens, _), own in zip(text.sentences, labels, strict=True):
            yield joined(tokens, text.tokenizer.spans(own))


def _read(name: str, files: Sequence[Path], tokenizer: TaggingTokenizer) -> LabelledText:
    sentences = [sentence for file in files for sentence in tokenizer.read(file)]
    if not any(sentence.tokens for sentence in sentences):
        raise DataError(f"data.{name}: {', '.join(map(str, files))}: has no sentence")
    return LabelledText(sentences=sentences, corpus=_encoded(sentences, tokenizer), tokenizer=tokenizer)


def _encoded(sentences: Sequence[Labelled], tokenizer: TaggingTokenizer) -> TaggedCorpus:
    labels: FlatSentences = flat(tokenizer.labels.encode(sentence.labels) for sentence in sentences)
    return TaggedCorpus(tokenizer.features([sentence.tokens for sentence in sentences]), labels)
