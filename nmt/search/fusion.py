"""Shallow fusion: a language model of the target language adds scores in each step of a search (Gulcehre et al., 2015).

N rows of hypotheses, V words of the vocabulary, U words of a shortlist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, cast

import torch
from torch import Tensor

from nmt.cells import reorder_state
from nmt.config.schema import DecodingConfig
from nmt.data import EOS, Tokenizer
from nmt.errors import SettingError
from nmt.interop.model_dir import read_model
from nmt.models.decoder import States

KEY: Final = "decoding.language_model"
TASK: Final = "language_model"
WEIGHT: Final = 0.2
"""That of a language model whose weight is not given."""


class LanguageModel(Protocol):
    """What takes part in a search: the architecture of the task TASK, or one of a plugin."""

    def step(self, words: Tensor, states: States | None) -> tuple[Tensor, States]:
        """Log-probabilities [N, V] of the word after `words` [N], and the states after them."""


class Fusion:
    """log p(word) + weight * log q(word), p of a model or an ensemble, q of a language model.

    The language model reads each translation as an independent line, after an end of line, always in fp32. The sum is
    not a normalised distribution. With a weight of 0 or more it is at most 0, like log p, so bounds on the scores of
    unfinished hypotheses by log p stay valid.
    """

    def __init__(self, model: LanguageModel, *, weight: float) -> None:
        """`model`: in evaluation mode, over the target words of the models that are searched with, on their device."""
        self._model = model
        self._weight = weight

    def add_to(self, log_probs: Tensor, tokens: Tensor | None, before: States | None, words: Tensor | None) -> States:
        """Add to log-probabilities [N, V], in place, and return the states after `tokens` [N]; None: the first step.

        Among `words` [U], ids, the log-probabilities are [N, U] and the tokens are places.
        """
        if tokens is None:
            read = torch.full((len(log_probs),), EOS, device=log_probs.device)
        else:
            read = tokens if words is None else words[tokens]
        with torch.autocast(log_probs.device.type, enabled=False):
            found, after = self._model.step(read, before)
        log_probs.add_(found if words is None else found.index_select(1, words), alpha=self._weight)
        return after


def taken(states: States | None, rows: Tensor) -> States | None:
    """The rows [N'] of the states, in this order; repetitions allowed."""
    return None if states is None else tuple(reorder_state(state, rows) for state in states)


def load_language_model(path: str, tokenizer: Tokenizer, *, device: torch.device) -> LanguageModel:
    """The language model in a directory, for translations with this tokenizer.

    Raises:
        CheckpointError: it cannot be loaded, or is not one.
        ConfigError: its words are not the target words.
    """
    loaded = read_model(path, plugins=(), device=device, task=TASK)
    _check_words(loaded.tokenizer, tokenizer, path=path)
    model: Any = loaded.model
    return cast("LanguageModel", model)


def fusion_of(decoding: DecodingConfig, load: Callable[[str], LanguageModel]) -> Fusion | None:
    """The language model of `decoding`, loaded by `load`; None if there is none, or its weight is 0.

    With weight 0 a search is exactly the same as without a language model; the model is still checked.
    """
    if decoding.language_model is None:
        return None
    model = load(decoding.language_model)
    weight = WEIGHT if decoding.language_model_weight is None else decoding.language_model_weight
    return Fusion(model, weight=weight) if weight else None


def _check_words(language_model: Tokenizer, tokenizer: Tokenizer, *, path: str) -> None:
    """Raise ConfigError unless both have the same target words."""
    ours, theirs = (one.target_tokens(range(one.target_size)) for one in (tokenizer, language_model))
    if ours == theirs:
        return
    place = next((i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), None)
    differing = (
        f"it has {len(theirs):,} words, the translation model {len(ours):,}"
        if place is None
        else f"word {place} is {theirs[place]!r}, of the translation model {ours[place]!r}"
    )
    advice = "train it with the files in the tokenizer directory of the translation model: see docs/language_models.md"
    wrong = f"{path}: its vocabulary is not the target vocabulary of the translation model: {differing}; {advice}"
    raise SettingError((KEY, wrong))
