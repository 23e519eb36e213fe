"""Shallow fusion: a language model adds scores in each step of a search (Gulcehre et al., 2015)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import torch
from torch import Tensor

from nmt.data import EOS, Tokenizer
from nmt.errors import SettingError
from nmt.interop.model_dir import read_model
from nmt.models.decoder import States

if TYPE_CHECKING:
    from nmt.config.schema import DecodingConfig


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


KEY: Final = "decoding.language_model"
TASK: Final = "language_model"
WEIGHT: Final = 0.2
"""That of a language model whose weight is not given."""


def fusion_of(
    decoding: DecodingConfig,
    tokenizer: Tokenizer,
    *,
    device: torch.device,
    loaded: dict[str, LanguageModel] | None = None,
) -> Fusion | None:
    """The language model of `decoding`, for this tokenizer; None if its weight is 0.

    With weight 0 a search is exactly the same as without a language model; the model is still checked. `loaded` are
    those that have been loaded, by their directories.

    Raises:
        CheckpointError: it cannot be loaded, or is not one.
        ConfigError: its words are not the target words.
    """
    path, loaded = decoding.language_model, {} if loaded is None else loaded
    assert path is not None
    if path not in loaded:
        read = read_model(path, plugins=(), device=device, task=TASK)
        ours, theirs = (one.target_tokens(range(one.target_size)) for one in (tokenizer, read.tokenizer))
        if ours != theirs:
            place = next((i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), None)
            differing = (
                f"it has {len(theirs):,} words, the translation model {len(ours):,}"
                if place is None
                else f"word {place} is {theirs[place]!r}, of the translation model {ours[place]!r}"
            )
            wrong = f"{path}: its vocabulary is not the target vocabulary of the translation model: {differing}"
            advice = "train it with the files in the tokenizer directory of the translation model"
            raise SettingError((KEY, f"{wrong}; {advice}: see docs/language_models.md"))
        loaded[path] = cast("LanguageModel", cast("Any", read.model))
    weight = WEIGHT if decoding.language_model_weight is None else decoding.language_model_weight
    return Fusion(loaded[path], weight=weight) if weight else None
