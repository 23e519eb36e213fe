"""Sentences as batches, and the labels that a tagger gives to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.data.batching import Pairs, batch_lines
from nmt.data.corpus import Rows
from nmt.data.vocabulary import UNK
from nmt.interop.model_dir import LoadedModel
from nmt.tagging.labels import begins, joined, word_spans, words_of
from nmt.tagging.model import FIRST_LABEL, Sentences, Tagger
from nmt.tagging.tokenizers import Features, TaggedCorpus, TaggedWords, TaggingTokenizer
from nmt.training.batches import BatchStream
from nmt.training.distributed import World, interleave
from nmt.training.validation import in_all_processes


class TagBatch(NamedTuple):
    """Some sentences and their labels, padded with 0."""

    source: Sentences
    target: Tensor
    """[B, T]"""

    def pinned(self) -> TagBatch:
        """The same in memory from which a GPU can copy by itself."""
        return TagBatch(self.source.pinned(), self.target.pin_memory())

    def to(self, device: torch.device) -> TagBatch:
        """The same on a device."""
        return TagBatch(self.source.to(device), self.target.to(device, non_blocking=True))


def sentences_of(features: Features, rows: Rows, *, words: NDArray[np.int64] | None = None) -> Sentences:
    """Sentences `rows`, with other ids of their words if these are given."""
    forms = letters = bigrams = None
    if features.forms is not None and features.letters is not None:
        padded = features.forms.padded(rows)
        # Row 0, which is padding, is always there, so that numbers of rows begin with it.
        chosen, places = np.unique(np.append(0, padded), return_inverse=True)
        forms = torch.from_numpy(places[1:].reshape(padded.shape).astype(np.int64))
        letters = torch.from_numpy(features.letters.padded(chosen.astype(np.int64)))
    if features.bigrams is not None:
        bigrams = torch.from_numpy(features.bigrams.padded(rows))
    words = features.words.padded(rows) if words is None else words
    return Sentences(torch.from_numpy(words), forms, letters, bigrams)


def tag_batch(corpus: TaggedCorpus, rows: Rows, *, words: NDArray[np.int64] | None = None) -> TagBatch:
    """Sentences `rows` of a corpus with their labels."""
    return TagBatch(sentences_of(corpus.features, rows, words=words), torch.from_numpy(corpus.padded_target(rows)))


class TagBatches(BatchStream):
    """Batches of a corpus with labels, in which words that come once in it are unknown ones now and then."""

    def __init__(self, *arguments: Any, unknown: float, **settings: Any) -> None:
        """`unknown`: how often; the rest as for `BatchStream`."""
        super().__init__(*arguments, **settings)
        self._unknown = unknown

    def batch(self, pairs: Pairs, rows: Rows, *, epoch: int) -> TagBatch:
        assert isinstance(pairs, TaggedCorpus)
        words = pairs.with_unknown(rows, share=self._unknown, seed=self.seed, epoch=epoch)
        return tag_batch(pairs, rows, words=words)


BATCH_TOKENS = 4096
"""Cells of a batch."""


def _nothing(sentences: int) -> None:
    """Nobody wants to know."""


@torch.inference_mode()
def predict(
    model: Tagger,
    features: Features,
    *,
    device: torch.device,
    rows: Sequence[int] | None = None,
    on_batch: Callable[[int], object] = _nothing,
) -> list[list[int]]:
    """Ids of the labels of each sentence of `rows` (default: all), in order; empty for a sentence without a token.

    `on_batch` is called before each batch with the number of its sentences, and may raise to end the work.
    """
    wanted = np.arange(len(features.lengths)) if rows is None else np.asarray(rows, np.int64)
    found: list[list[int]] = [[] for _ in wanted]
    lengths = features.lengths[wanted]
    for places in batch_lines(lengths.tolist(), batch_tokens=BATCH_TOKENS):
        on_batch(len(places))
        filled = [place for place in places if lengths[place]]
        if not filled:
            continue
        labels = model.best(sentences_of(features, wanted[filled]).to(device)).tolist()
        for place, own in zip(filled, labels, strict=True):
            found[place] = own[: lengths[place]]
    return found


class Measured(NamedTuple):
    """A model's results for a text with labels."""

    loss: float
    """In nats a token, of sentences whose labels the model knows; NaN where there are none."""
    labels: list[list[int]]
    """Predicted labels of each sentence."""


@torch.inference_mode()
def measure(
    model: Tagger, corpus: TaggedCorpus, *, device: torch.device, world: World, check: Callable[[], object]
) -> Measured:
    """Losses and labels; several processes share the sentences, and all get the same result.

    Raises InterruptedValidationError in all of them when `check` raises it in one.
    """
    lengths, known = corpus.source_lengths, _measurable(corpus)
    batches = batch_lines(lengths[known].tolist(), batch_tokens=BATCH_TOKENS)

    def mine() -> tuple[list[float], list[list[int]]]:
        losses = []
        for places in batches[world.rank :: world.size]:
            check()
            batch = tag_batch(corpus, known[places]).to(device)
            losses.append(float(model.losses(batch.source, batch.target).double().sum()))
        rows = range(world.rank, len(corpus), world.size)
        labels = predict(model, corpus.features, device=device, rows=rows, on_batch=lambda _: check())
        return losses, labels

    parts = in_all_processes(world, mine)
    total, tokens = sum(interleave([losses for losses, _ in parts])), int(lengths[known].sum())
    return Measured(total / tokens if tokens else float("nan"), interleave([labels for _, labels in parts]))


def _with_unknown_labels(corpus: TaggedCorpus) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which sentences have a label that the training text has not."""
    unknown = np.append(0, np.cumsum(corpus.labels.ids < FIRST_LABEL))
    ends = corpus.labels.offsets
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = unknown[ends[1:]] > unknown[ends[:-1]]
    return found


def _measurable(corpus: TaggedCorpus) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The sentences that have a loss."""
    return np.flatnonzero((corpus.source_lengths > 0) & ~_with_unknown_labels(corpus))


def has_loss(corpus: TaggedCorpus) -> bool:
    """Whether any sentence has one."""
    return len(_measurable(corpus)) > 0


def unknown_labels(corpus: TaggedCorpus) -> int:
    """How many sentences have a label that the training text has not."""
    return int(_with_unknown_labels(corpus).sum())


class TaggedLine(NamedTuple):
    """A model's result for one line."""

    tokens: list[str]
    """Words, or characters without spaces."""
    labels: list[str]
    """Label of each token; for words, in the scheme of the training text."""
    text: str
    """Labels with spaces between them, or the text with spaces between words."""
    unknown: int
    """Tokens that the vocabulary lacks."""


class LineTagger:
    """Tags lines of text; a segmentation keeps the spaces of a line, which the model does not see, as ends of words."""

    def __init__(self, loaded: LoadedModel, *, device: torch.device) -> None:
        """`loaded` is a model of the task `tagging` or `segmentation`."""
        self._model = cast("Tagger", cast("Any", loaded.model))
        self._tokenizer = cast("TaggingTokenizer", loaded.tokenizer)
        self._device = device

    @property
    def labels_words(self) -> bool:
        """Whether it labels words; else it finds them."""
        return isinstance(self._tokenizer, TaggedWords)

    def tag(self, lines: Sequence[str], *, on_batch: Callable[[int], object] = lambda _: None) -> list[TaggedLine]:
        """Each line, in order; `on_batch` as for `predict`."""
        tokenizer = self._tokenizer
        sentences = [tokenizer.split(line) for line in lines]
        features = tokenizer.features(sentences)
        found = predict(self._model, features, device=self._device, on_batch=on_batch)
        unknown = [sum(i == UNK for i in features.words.row(row).tolist()) for row in range(len(lines))]
        tagged = []
        for line, tokens, ids, missing in zip(lines, sentences, found, unknown, strict=True):
            labels = tokenizer.target_tokens(ids)
            if isinstance(tokenizer, TaggedWords):
                labels = tokenizer.written(labels)
                text = " ".join(labels)
            else:
                text = joined(tokens, word_spans(labels, begin=begins(words_of(line))))
            tagged.append(TaggedLine(tokens, labels, text, missing))
        return tagged
