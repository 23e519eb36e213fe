"""Found translations read again by the model: the probability of each token, and what it attended to.

B sentences of S tokens, K hypotheses each, T tokens; V words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.data import EOS, PAD, pad
from nmt.ops.matrices.top import log_probabilities
from nmt.search.hypothesis import Hypothesis


class Reading(NamedTuple):
    """A hypothesis as the model reads it, the end symbol counted where it has ended."""

    log_probs: list[float]
    """Of each token, those before it given [T]."""
    attention: Tensor
    """Over the source tokens, the end symbol counted, when each token was predicted [T, S]; on the CPU, in fp32."""


@torch.inference_mode()
def read_hypotheses(
    model: Any,
    source: Tensor,
    hypotheses: Sequence[Sequence[Hypothesis]],
    *,
    words: Tensor | None = None,
    attends: bool = True,
) -> list[list[Reading]]:
    """Read the hypotheses of a batch of sentences [B, S], one at least of each, all at once.

    `model` is an `AttendingModel`; without `attends` it has `step` alone, and all attention is 0. `words` [U] are the
    ids that it chooses among, ascending, where these are not all.
    """
    count = max(map(len, hypotheses))
    rows = [own[min(k, len(own) - 1)] for own in hypotheses for k in range(count)]  # of fewer the last fills up
    targets = [tokens_of(hypothesis) for hypothesis in rows]
    target = pad(targets).to(source.device)
    target = target if words is None else torch.searchsorted(words, target)
    log_probs, attention = _forced(_steps(model, source, attends=attends), source, target, count=count)
    lengths = (source != PAD).sum(1).tolist()
    found = [
        Reading(log_probs[row, : len(ids)].tolist(), attention[row, : len(ids), : lengths[row // count]])
        for row, ids in enumerate(targets)
    ]
    return [found[place * count :][: len(own)] for place, own in enumerate(hypotheses)]


def tokens_of(hypothesis: Hypothesis) -> list[int]:
    """The ids of a hypothesis, with the end symbol where it has ended."""
    return [*hypothesis.ids, EOS] if hypothesis.has_ended else list(hypothesis.ids)


Step = Callable[[Tensor | None, Any], tuple[Tensor, Tensor, Any]]


def _steps(model: Any, source: Tensor, *, attends: bool) -> tuple[Any, Step]:
    """The first state, and `attending_step` of the model, or what takes its place."""

    def step(tokens: Tensor | None, state: Any) -> tuple[Tensor, Tensor, Any]:
        logits, state = model.step(tokens, state)
        return logits, torch.zeros(len(logits), source.size(1), device=source.device), state

    return model.start(source), model.attending_step if attends else step


def _forced(steps: tuple[Any, Step], source: Tensor, target: Tensor, *, count: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities [N, T] and attention [N, T, S] of target [N, T], N = B * count rows, on the CPU."""
    (state, step), tokens = steps, None
    log_probs, attention = [], []
    for t in range(target.size(1)):
        logits, weights, state = step(tokens, state)
        if t == 0:  # all hypotheses of a sentence begin with the same step
            logits, weights = logits.repeat_interleave(count, 0), weights.repeat_interleave(count, 0)
            state = state.expand(count)
        log_probs.append(log_probabilities(logits).gather(1, target[:, t : t + 1]))
        attention.append(weights.float())
        tokens = target[:, t]
    if not attention:  # hypotheses of no token, cut at once
        return torch.empty(len(target), 0), torch.empty(len(target), 0, source.size(1))
    return torch.cat(log_probs, 1).cpu(), torch.stack(attention, 1).cpu()
