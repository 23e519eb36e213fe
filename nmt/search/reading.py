"""Given translations read by models: those found, for probabilities and attention; pairs, for inner values or scores.

B sentences of S tokens, K hypotheses each, T tokens; V words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from nmt.data import EOS, PAD, UNK, Tokenizer
from nmt.data.batching import batch_lines, pad, restore_order
from nmt.data.text import windows
from nmt.light.results import PairScore as PairScore
from nmt.models.attention import AttentionQuery
from nmt.models.base import Seq2Seq
from nmt.models.blocks import SourceAttention
from nmt.ops.matrices.best_words import log_probabilities
from nmt.search.ensemble import EQUAL, EnsembleMean, mean_nll
from nmt.search.values import WINDOW, Hypothesis


class Reading(NamedTuple):
    """A hypothesis as the model reads it, the end symbol counted where it has ended."""

    log_probs: list[float]
    """Log-probability of each token given the tokens before it [T]."""
    attention: Tensor
    """Over the source tokens, the end symbol counted, when each token was predicted [T, S]; on the CPU, in fp32."""
    entropies: list[float] | None = None
    """Entropy of the distribution of each token in nats, if requested."""
    heads: dict[str, Tensor] | None = None
    """The attention of each attending layer [G, T, S], where it is asked for."""


@torch.inference_mode()
def read_hypotheses(
    model: Any,
    source: Tensor,
    hypotheses: Sequence[Sequence[Hypothesis]],
    *,
    words: Tensor | None = None,
    attends: bool = True,
    entropies: bool = False,
    heads_of: Sequence[Seq2Seq] = (),
) -> list[list[Reading]]:
    """Read the hypotheses of a batch of sentences [B, S], one at least of each, all at once.

    `model` has `attending_step`; without `attends` it has `step` alone, and all attention is 0. `words` [U] are the ids
    that it chooses among, ascending, where these are not all. `heads_of` are models whose attending layers are wanted;
    of several each name begins with `0.`, `1.`, ..., by their order.
    """
    count = max(map(len, hypotheses))
    rows = [own[min(k, len(own) - 1)] for own in hypotheses for k in range(count)]  # of fewer the last fills up
    targets = [tokens_of(hypothesis) for hypothesis in rows]
    target = pad(targets).to(source.device)
    heads: dict[str, Tensor] = {}
    for number, member in enumerate(heads_of):
        for name, weights in _forced_heads(member, source, target, count=count).items():
            heads[f"{number}.{name}" if len(heads_of) > 1 else name] = weights
    target = target if words is None else torch.searchsorted(words, target)
    log_probs, attention, entropy = _forced(model, source, target, count=count, attends=attends, entropies=entropies)
    found = []
    for place, (own, width) in enumerate(zip(hypotheses, (source != PAD).sum(1).tolist(), strict=True)):
        readings = []
        for row in range(place * count, place * count + len(own)):
            size = len(targets[row])
            reading = Reading(log_probs[row, :size].tolist(), attention[row, :size, :width])
            if entropies:
                reading = reading._replace(entropies=entropy[row, :size].tolist())
            if heads_of:
                reading = reading._replace(heads={name: own[row, :, :size, :width] for name, own in heads.items()})
            readings.append(reading)
        found.append(readings)
    return found


def tokens_of(hypothesis: Hypothesis) -> list[int]:
    """The ids of a hypothesis, with the end symbol where it has ended."""
    return [*hypothesis.ids, EOS] if hypothesis.has_ended else list(hypothesis.ids)


def _forced(
    model: Any, source: Tensor, target: Tensor, *, count: int, attends: bool, entropies: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities [N, T], attention [N, T, S] and, if wanted, entropies [N, T] of target [N, T], on the CPU.

    N = B * count rows.
    """
    state, tokens = model.start(source), None
    log_probs, attention, entropy = [], [], []
    for t in range(target.size(1)):
        if attends:
            logits, weights, state = model.attending_step(tokens, state)
        else:
            logits, state = model.step(tokens, state)
            weights = torch.zeros(len(logits), source.size(1), device=source.device)
        if t == 0:  # all hypotheses of a sentence begin with the same step
            logits, weights = logits.repeat_interleave(count, 0), weights.repeat_interleave(count, 0)
            state = state.expand(count)
        all_words = log_probabilities(logits)
        log_probs.append(all_words.gather(1, target[:, t : t + 1]))
        attention.append(weights.float())
        entropy += [entropies_of(all_words)] if entropies else []
        tokens = target[:, t]
    none = torch.empty(len(target), 0)
    if not attention:  # hypotheses of no token, cut at once
        return none, torch.empty(len(target), 0, source.size(1)), none
    found = torch.cat(log_probs, 1).cpu(), torch.stack(attention, 1).cpu()
    return *found, torch.stack(entropy, 1).cpu() if entropies else none


def _forced_heads(model: Seq2Seq, source: Tensor, target: Tensor, *, count: int) -> dict[str, Tensor]:
    """The attention [N, G, T, S] of each attending layer while `model` reads target [N, T], on the CPU."""
    state, length = model.start(source), target.size(1)
    steps: list[list[Tensor]] = []
    for t in range(max(1, length)):  # at least one, which gives the number of heads
        _, weights, state = model.attending(target[:, t - 1] if t else None, state)
        rows = [own.transpose(1, 2).flatten(0, 1).float() for own in weights]  # [N, G, S]
        if t == 0:
            rows, state = [own.repeat_interleave(count, 0) for own in rows], state.expand(count)
        steps.append(rows)
    layers = [torch.stack(own, 2)[:, :, :length].cpu() for own in zip(*steps, strict=True)]
    return dict(zip(attention_names(model, len(layers)), layers, strict=True))


_UNSAID: Final = {"layers", "blocks", "rnn", "cell", "mixing", "attention", "attentions"}
"""Parts of a path that tell nothing."""

_SAID: Final = {"forward_rnn": "forward", "backward_rnn": "backward"}

_SIDES: Final = ("encoder", "decoder")


def layer_names(paths: Sequence[str]) -> list[str]:
    """A name for each path of a module: side, layer from 0, and what else tells it from the others of its layer."""
    names = [_name(path) for path in paths]
    count = Counter(names)
    return [name if count[name] == 1 else path for name, path in zip(names, paths, strict=True)]


def _name(path: str) -> str:
    parts = path.split(".")
    if parts[:2] == ["encoder", "first"]:  # of `nmt.models.encoder.Alternating`, below the layers that it calls above
        parts[1:2] = ["0"]
    elif parts[:2] == ["encoder", "above"]:
        parts[1:3] = [str(int(parts[2]) + 1)]
    side, *rest = [_SAID.get(part, part) for part in parts if part not in _UNSAID]
    if side in _SIDES and not (rest and rest[0].isdecimal()):
        rest.insert(0, "0")
    return ".".join([side, *rest])


def attention_names(model: Seq2Seq, count: int) -> list[str]:
    """Names of the `count` attentions to the source that the decoder of `model` tells, in its order."""
    known = [path for path, module in model.named_modules() if isinstance(module, AttentionQuery | SourceAttention)]
    return layer_names(known) if len(known) == count else [f"decoder.{place}" for place in range(count)]


def entropies_of(log_probs: Tensor) -> Tensor:
    """The entropies [...] of distributions of which these are the logarithms [..., V], in nats."""
    return torch.special.entr(log_probs.exp()).sum(-1)


def score_pairs(
    model: Seq2Seq,
    tokenizer: Tokenizer,
    pairs: Iterable[tuple[str, str]],
    *,
    batch_tokens: int,
    others: Sequence[Seq2Seq] = (),
    mean: EnsembleMean = EQUAL,
    window: int = WINDOW,
    before_batch: Callable[[], object] | None = None,
) -> Iterator[PairScore]:
    """The score of each (source, target) pair, in order; memory does not grow with their number.

    If reading `pairs` raises DataError, the scores of the pairs before it are returned first.

    `model` must be in evaluation mode, and so must the `others`, models with the same vocabularies whose probabilities
    are averaged with its own by `mean`. A batch has at most `batch_tokens` source or target tokens, padding counted.
    `before_batch` is called before each batch; an exception ends the work.
    """
    models = [model, *others]
    device = next(model.parameters()).device
    for chunk in windows(pairs, size=window, length=lambda pair: len(pair[0]) + len(pair[1])):
        sources = [[*ids, EOS] for ids in tokenizer.read_sources([source for source, _ in chunk])]
        targets = [[*ids, EOS] for ids in tokenizer.encode_target([target for _, target in chunk])]
        lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        batches = batch_lines(lengths, batch_tokens=batch_tokens)
        means = []
        for batch in batches:
            if before_batch is not None:
                before_batch()
            source, target = pad([sources[i] for i in batch]).to(device), pad([targets[i] for i in batch]).to(device)
            with torch.inference_mode():
                means.append(mean_nll(models, source, target, mean=mean).tolist())
        for place, nll in enumerate(restore_order(batches, means)):
            empty = not all(side.strip() for side in chunk[place])
            unknown = targets[place].count(UNK)
            yield PairScore(-nll, len(targets[place]), unknown, len(sources[place]) - 1, has_empty_side=empty)
