"""Samples of training text between validations: translations of sentences the model has just been trained on."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from nmt.config.schema import DecodingConfig
from nmt.data import Corpus, Tokenizer
from nmt.data.sampling import Rows
from nmt.models.base import Seq2Seq
from nmt.search.fusion import Fusion
from nmt.search.translator import Translator
from nmt.training.random_state import random_state, set_random_state


@dataclass(frozen=True, kw_only=True)
class TrainingSamples:
    """The first sentences of the last batch of an update, every so many updates."""

    corpus: Corpus
    tokenizer: Tokenizer
    decoding: DecodingConfig
    device: torch.device
    every: int
    """Updates between two samples."""
    sentences: int
    fusion: Fusion | None = None
    """The language model that `decoding` names."""

    def take(self, model: Seq2Seq, rows: Rows) -> list[dict[str, str]]:
        """`source`, `target` and `translation` of the first of `rows`, as text.

        `model` is in evaluation mode. It gets the text it is trained on, without the part of a sentence that was cut.
        The random numbers of training are not affected, even by a search that draws some.
        """
        chosen = [int(row) for row in rows[: self.sentences]]
        before = random_state()
        try:
            translator = Translator(model, self.tokenizer, self.decoding, device=self.device, fusion=self.fusion)
            found = translator.search([self.corpus.source(row).tolist() for row in chosen])
        finally:
            set_random_state(before)
        return [
            {
                "source": self.tokenizer.decode_source(self.corpus.source(row).tolist()),
                "target": self.tokenizer.decode_target(self.corpus.target(row).tolist()),
                "translation": self.tokenizer.decode_target(hypotheses[0].ids),
            }
            for row, hypotheses in zip(chosen, found, strict=True)
        ]
