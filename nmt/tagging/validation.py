"""Loss and scores of the labels that a tagger gives to a text."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nmt.tagging.features import TaggedCorpus
from nmt.tagging.predicting import measure
from nmt.tagging.schemes import Span
from nmt.tagging.scores import SpanCounts, f1
from nmt.tagging.tokenizers import Labelled, TaggingTokenizer
from nmt.training.validation import SURE_OF_LABELS, Chance, Check, ScoreValidator, chance_of


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
        return scores, None if alike else chance_of("f1", shuffled, lines=len(wanted), sure=SURE_OF_LABELS)
