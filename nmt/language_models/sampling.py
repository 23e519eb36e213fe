"""Texts drawn from a language model, word by word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.data import EOS, PAD, UNK, Tokenizer
from nmt.models.language_model import LanguageModel


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What is drawn from, and how much."""

    temperature: float = 1.0
    """What log-probabilities are divided by: below 1 probable words come more often."""
    top_k: int = 0
    """Draw among so many most probable words (Fan et al., 2018); 0: among all."""
    top_p: float = 1.0
    """Draw among the fewest most probable words that have this probability together (Holtzman et al., 2020)."""
    max_tokens: int = 200
    """Longest line, the prompt not counted."""
    unknown: bool = False
    """Whether the symbol for unknown words may be drawn."""
    seed: int = 1


@torch.inference_mode()
def sample_lines(
    model: LanguageModel, tokenizer: Tokenizer, prompt: str, *, count: int, sampling: Sampling
) -> Iterator[tuple[str, bool]]:
    """`count` lines that begin with `prompt`, each with whether its end was drawn; else the limit has cut it.

    They are independent of each other, and the first ones are the same however many there are.
    """
    device = next(model.parameters()).device
    given = tokenizer.encode_target([prompt])[0] if prompt.strip() else []
    for number in range(count):
        generator = torch.Generator().manual_seed(sampling.seed + number)
        run = model.run(torch.tensor([[EOS, *given]], device=device))
        log_p, states = model.log_probabilities(run.features[:, -1:])[0, 0], run.states
        drawn: list[int] = []
        while len(drawn) < sampling.max_tokens:
            word = _drawn(log_p.cpu(), sampling, generator)
            if word == EOS:
                break
            drawn.append(word)
            rows, states = model.step(torch.tensor([word], device=device), states)
            log_p = rows[0]
        yield tokenizer.decode_target([*given, *drawn]), len(drawn) < sampling.max_tokens


def _drawn(log_p: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    """One word of the log-probabilities [V]."""
    scores = log_p.double() / sampling.temperature
    scores[_never(sampling)] = -torch.inf
    ordered, words = scores.sort(descending=True, stable=True)
    if sampling.top_k:
        ordered = ordered[: sampling.top_k]
    probabilities = torch.softmax(ordered, 0)
    if sampling.top_p < 1:
        before = probabilities.cumsum(0) - probabilities
        probabilities = torch.where(before < sampling.top_p, probabilities, 0.0)
    return int(words[torch.multinomial(probabilities, 1, generator=generator)])


def _never(sampling: Sampling) -> Sequence[int]:
    return [PAD] if sampling.unknown else [PAD, UNK]
