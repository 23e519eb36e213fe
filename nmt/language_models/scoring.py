"""What trained language models do: score the lines of a text, and draw texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.data import EOS, PAD, UNK, Tokenizer
from nmt.data.batching import batch_lines, pad, restore_order
from nmt.data.text import windows
from nmt.language_models.model import LanguageModel, States

LINES = 2000
"""Lines that are encoded together."""
STEPS = 256
"""Words that are read at once, without a gradient."""
FOLLOWED = 5
"""Words after which dynamic evaluation adapts the weights."""


@dataclass(frozen=True)
class LineScore:
    """The models' score of one line."""

    log_probs: list[float]
    """Log-probability of each token given the tokens before it; the last one is the end of the line."""
    unknown: int
    """Tokens that are not in the vocabulary; they are scored as unknown words."""

    @property
    def mean_nll(self) -> float:
        """Nats per token."""
        return -sum(self.log_probs) / len(self.log_probs)


class Dynamic(NamedTuple):
    """Dynamic evaluation: the weights are adapted to the scored text (Krause et al., ICML 2018).

    After every `FOLLOWED` words, when they have been scored, w <- w - rate * gradient + decay * (w_0 - w), where the
    gradient is that of their mean loss and w_0 are the weights of the model. (The paper also scales the rate of each
    weight by the size of its gradients in training, which is not done here.)
    """

    rate: float
    decay: float = 0.0


@dataclass
class Reader:
    """A model that reads a text token by token, and adapts to it if that is asked for."""

    model: LanguageModel
    dynamic: Dynamic | None = None
    _states: States | None = None
    _weights: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Each with what it was."""

    def __post_init__(self) -> None:
        if self.dynamic is not None:
            self._weights = [(weight, weight.detach().clone()) for weight in self.model.parameters()]

    def read(self, source: Tensor, target: Tensor) -> Tensor:
        """Log-probabilities [T] of target [T] after source [T], and after all that was read before."""
        steps = STEPS if self.dynamic is None else FOLLOWED
        # One tensor for all results: a small one for each step, kept between larger ones that are freed, would leave
        # memory in pieces that cannot be used again.
        log_probs = torch.empty(target.shape, device=target.device)
        for words, wanted, found in zip(source.split(steps), target.split(steps), log_probs.split(steps), strict=True):
            with torch.set_grad_enabled(self.dynamic is not None):
                run = self.model.run(words.unsqueeze(0), self._states)
                weights = torch.full(wanted.shape, 1 / len(wanted), device=wanted.device).unsqueeze(0)
                losses = self.model.losses(run.features, wanted.unsqueeze(0), weights=weights)
            self._states = tuple(type(state)(*(part.detach() for part in state)) for state in run.states)
            found.copy_(-losses.nll.detach())
            if self.dynamic is not None:
                self._follow(losses.total, self.dynamic)
        return log_probs

    def _follow(self, loss: Tensor, dynamic: Dynamic) -> None:
        gradients = torch.autograd.grad(loss, [weight for weight, _ in self._weights], allow_unused=True)
        with torch.no_grad():
            for (weight, first), gradient in zip(self._weights, gradients, strict=True):
                if gradient is not None:
                    weight.sub_(gradient, alpha=dynamic.rate)
                weight.lerp_(first, dynamic.decay)

    def restore(self) -> None:
        """Give the model its weights back."""
        with torch.no_grad():
            for weight, first in self._weights:
                weight.copy_(first)


def score_text(
    models: Sequence[LanguageModel],
    tokenizer: Tokenizer,
    lines: Iterable[str],
    *,
    dynamic: tuple[float, float] | None = None,
) -> Iterator[LineScore]:
    """The score of each line of a continuous text: each line is read after all lines before it.

    Probabilities of several models are averaged. Models are in evaluation mode. `dynamic`: as `Dynamic`.
    """
    readers = [Reader(model, Dynamic(*dynamic) if dynamic else None) for model in models]
    device = next(models[0].parameters()).device
    before = EOS
    try:
        for chunk in windows(lines, size=LINES):
            encoded = [[*ids, EOS] for ids in tokenizer.encode_target(chunk)]
            ids = torch.tensor([before, *chain.from_iterable(encoded)], device=device)
            before = EOS
            log_probs = mean_log_probs([reader.read(ids[:-1], ids[1:]) for reader in readers]).tolist()
            ends = [0, *torch.tensor([len(line) for line in encoded]).cumsum(0).tolist()]
            for line, (first, end) in zip(encoded, pairwise(ends), strict=True):
                yield LineScore(log_probs[first:end], line.count(UNK))
    finally:
        for reader in readers:
            reader.restore()


def score_lines(
    models: Sequence[LanguageModel], tokenizer: Tokenizer, lines: Iterable[str], *, batch_tokens: int
) -> Iterator[LineScore]:
    """The score of each line independently, after an end of line; otherwise like `score_text`."""
    device = next(models[0].parameters()).device
    for chunk in windows(lines, size=LINES):
        encoded = [[*ids, EOS] for ids in tokenizer.encode_target(chunk)]
        batches = batch_lines([len(line) for line in encoded], batch_tokens=batch_tokens)
        found: list[list[list[float]]] = []
        for batch in batches:
            target = pad([encoded[place] for place in batch]).to(device)
            source = torch.cat([torch.full_like(target[:, :1], EOS), target[:, :-1]], 1)
            rows = mean_log_probs([-model.token_losses(source, target) for model in models]).tolist()
            found.append([row[: len(encoded[place])] for row, place in zip(rows, batch, strict=True)])
        for line, log_probs in zip(encoded, restore_order(batches, found), strict=True):
            yield LineScore(log_probs, line.count(UNK))


def mean_log_probs(found: Sequence[Tensor]) -> Tensor:
    """Log of the mean of probabilities, of logs of any shape."""
    stacked: Any = torch.stack(list(found))
    return torch.logsumexp(stacked.double(), 0) - torch.log(torch.tensor(float(len(found)), dtype=torch.float64))


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
