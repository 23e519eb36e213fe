"""Lines of text in, their labels or their words out, by a trained model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch

from nmt.data.vocabulary import UNK
from nmt.interop.model_dir import LoadedModel
from nmt.tagging.model import Tagger
from nmt.tagging.predicting import predict
from nmt.tagging.segmented import begins, word_spans, words_of
from nmt.tagging.task import joined
from nmt.tagging.tokenizers import TaggedWords, TaggingTokenizer


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
