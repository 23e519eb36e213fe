"""Samples of the text that was just trained on, as the configured search translates it."""

from __future__ import annotations

import dataclasses

import torch

from nmt.config.schema import Config
from nmt.data.corpus import Rows
from nmt.data.prepare import PreparedData
from nmt.models.base import Seq2Seq
from nmt.registry import SAMPLES
from nmt.search.ruled import fusion_of
from nmt.search.translator import Translator
from nmt.training.state import random_state, set_random_state


@SAMPLES.register("last_batch")
class TrainingSamples:
    """The first sentences of the last batch of an update, every so many updates."""

    def __init__(self, config: Config, data: PreparedData, device: torch.device) -> None:
        assert config.training.sample_every is not None
        self.every = config.training.sample_every
        """Updates between two samples."""
        self.sentences = config.training.sample_sentences
        self.corpus, self.tokenizer, self.device = data.train, data.tokenizer, device
        self.decoding = dataclasses.replace(config.decoding, ensemble_weights=None)
        self.fusion = fusion_of(config.decoding, data.tokenizer, device=device)
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
