"""What may make a training useless, found before a night has passed: warnings that say what was seen and what helps."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from nmt.config.located import path_options
from nmt.config.schema import Config
from nmt.data import Tokenizer, read_lines
from nmt.data.corpus import Corpus
from nmt.data.vocabulary import BYTE, SPECIAL_TOKENS, UNK
from nmt.errors import counted
from nmt.models.attention import AdditiveAttention
from nmt.models.base import Seq2Seq
from nmt.ops.dispatch import selected
from nmt.registry import DOUBTS, TOKENIZERS

SELDOM = 20
"""A piece that training sees fewer times is hardly learned. (Gowda and May, EMNLP 2020 Findings, ask for 100 of nearly
all pieces; small corpora are still best with fewer.)"""
MOST_SELDOM = 0.5
"""The share of the pieces that may be so rare."""
SURELY_FREQUENT = 1000
"""With so many tokens for each piece the pieces are not counted."""
FEWEST_UPDATES = 100
"""Updates of an epoch; with fewer the weights move little between two passes over the data."""
SMALLEST_BATCH = {"batch_tokens": 256, "batch_sentences": 8}
"""What is never undercut by advice."""
UNKNOWN = 0.2
"""A vocabulary that was made for a text, even of whole words, leaves a smaller share of its tokens unknown."""
FEWER = 0.8
"""Vocabularies are swapped if, exchanged, they need fewer tokens than this share."""
LOOKED_AT = 1000
"""Lines at the beginning of the training text on which a vocabulary that was given is tried."""

_SIDES = ("source", "target")


@DOUBTS.register("odd_vocabularies")
def odd_vocabularies(config: Config, tokenizer: Tokenizer, files: Mapping[str, Path]) -> list[str]:
    """A line for each vocabulary that the configuration names and that does not fit its text; `files` are by sides.

    A token that is spelled in bytes counts as unknown.
    """
    options = config.data.tokenizer_options
    given = {name.partition("_")[0]: name for name in path_options(TOKENIZERS.get(config.data.tokenizer))}
    given = {side: name for side, name in given.items() if options.get(name)}
    if options.get("joint"):
        given = {side: given["source"] for side in files if "source" in given}
    if not given:
        return []
    lines = {side: [line[:1000] for line in islice(read_lines(path), LOOKED_AT)] for side, path in files.items()}
    own = {side: _tried(tokenizer, side, lines[side]) for side in lines}
    found = [
        f"data.tokenizer_options.{name}: {options[name]}: {own[side].share:.1%} of the tokens at the beginning of the "
        f"{side} text are unknown to it{', or spelled in bytes' if name.endswith('model') else ''}"
        for side, name in given.items()
        if side in own and own[side].share > UNKNOWN
    ]
    if len({*given.values()}) < len(_SIDES):
        return found
    source, target = _SIDES
    other = {source: _tried(tokenizer, target, lines[source]), target: _tried(tokenizer, source, lines[target])}
    now, then = (_Tried(*map(sum, zip(*tried.values(), strict=True))) for tried in (own, other))
    if (found and then.share < now.share / 2) or then.tokens < FEWER * now.tokens:
        both = " and ".join(f"{given[side]} ({options[given[side]]})" for side in _SIDES)
        found.append(
            f"data.tokenizer_options: {both} seem to be swapped: the other way round, the same lines have "
            f"{then.tokens:,} tokens instead of {now.tokens:,}, {then.share:.1%} instead of {now.share:.1%} of them "
            "unknown"
        )
    return found


class _Tried(NamedTuple):
    """What some lines become by a vocabulary."""

    tokens: int
    unknown: int

    @property
    def share(self) -> float:
        return self.unknown / max(1, self.tokens)


def _tried(tokenizer: Tokenizer, side: str, lines: Sequence[str]) -> _Tried:
    if side == "source":
        found, names = tokenizer.encode_source(lines), tokenizer.source_tokens(range(tokenizer.source_size))
    else:
        found, names = tokenizer.encode_target(lines), tokenizer.target_tokens(range(tokenizer.target_size))
    spelled = {number for number, name in enumerate(names) if BYTE.fullmatch(name)}
    odd = {UNK, *(spelled if 2 * len(spelled) < len(names) else ())}  # a vocabulary of bytes knows all of them
    ids = [number for line in found for number in line]
    return _Tried(len(ids), sum(number in odd for number in ids))


@DOUBTS.register("large_vocabularies")
def large_vocabularies(config: Config, corpus: Corpus, *, sizes: tuple[int, int]) -> list[str]:
    """A line for each vocabulary most of whose pieces occur SELDOM in training; `sizes` are the vocabulary sizes.

    Pieces that never occur are left out: bytes and letters that other text may have. A joint vocabulary is checked on
    both languages together.
    """
    options = config.data.tokenizer_options
    joint = bool(options.get("joint")) and sizes[0] == sizes[1]
    ids = [side.ids for side in corpus.sides]
    found = [("vocabulary", ids, sizes[0])] if joint else []
    if not joint:
        found = [(f"{side} vocabulary", [own], size) for side, own, size in zip(_SIDES, ids, sizes, strict=True)]
    lines = []
    for name, parts, size in found:
        if sum(len(part) for part in parts) >= SURELY_FREQUENT * size:
            continue
        counts = np.stack([np.bincount(part, minlength=size) for part in parts]).sum(0)[len(SPECIAL_TOKENS) :]
        occurring = int((counts > 0).sum())
        seldom = int(((counts > 0) & (counts < SELDOM)).sum())
        if not occurring or seldom <= MOST_SELDOM * occurring:
            continue
        smaller = f"data.tokenizer_options.vocab_size: {_rounded(size - seldom)}"
        cure = smaller if "vocab_size" in options else "subwords, as of data.tokenizer: sentencepiece"
        lines.append(
            f"the {name} is too large for this text: {seldom:,} of the {occurring:,} pieces in it occur fewer than "
            f"{SELDOM} times, so little can be learned about them; possible remedies: {cure}"
        )
    return lines


@DOUBTS.register("few_updates")
def few_updates(config: Config, updates_per_epoch: int) -> list[str]:
    """A line where an epoch has fewer than FEWEST_UPDATES updates."""
    if updates_per_epoch >= FEWEST_UPDATES:
        return []
    training = config.training
    key = "batch_tokens" if training.batch_tokens is not None else "batch_sentences"
    size = getattr(training, key)
    smaller = max(SMALLEST_BATCH[key], _rounded(size * training.accumulate * updates_per_epoch // FEWEST_UPDATES))
    if smaller < size:
        cure = f"training.{key}: {smaller} instead of {size}"
    else:
        cure = f"training.accumulate: 1 instead of {training.accumulate}" if training.accumulate > 1 else "more text"
    also = ", training.accumulate: 1" if smaller < size and training.accumulate > 1 else ""
    few = f"an epoch has only {counted(updates_per_epoch, 'update')}, so many epochs are needed"
    return [f"{few}; possible remedies: {cure}{also}"]


@DOUBTS.register("equal_translations")
def equal_translations(translations: Sequence[str]) -> str | None:
    """A line where all of several translations are the same."""
    if len(translations) < 2 or len(set(translations)) > 1:
        return None
    what = f"the same: {translations[0]!r}" if translations[0].strip() else "empty"
    return (
        f"all {len(translations):,} translations are {what}; this is usual at the start; if it continues, the model "
        f"ignores the source: check that the lines of data.train belong together (nmt-data check), and lower "
        f"training.lr"
    )


@DOUBTS.register("never_learned")
def never_learned(validations: Sequence[Mapping[str, Any]]) -> str | None:
    """A line where the output at the last of these events of the log was no better than chance, and hardly ever was.

    One in ten may have been: that is luck, or a model that forgot at once what it had learned.
    """
    measured = [event for event in validations if "beats_chance" in event]
    beaten = [event["beats_chance"] for event in measured]
    if not measured or beaten[-1] or 10 * sum(beaten) > len(beaten):
        return None
    last = measured[-1]
    ((metric, chance),) = last["chance"].items()
    often = "the only validation" if len(measured) == 1 else f"{len(beaten) - sum(beaten)} of {len(beaten)} validations"
    loss = "" if last.get("loss") is None else f", and the loss is still {last['loss']:.2f}"
    return (
        f"this model has not learned its task: at {often} its output was no better than beside the references of other "
        f"lines ({metric} {last[metric]:.2f}, by chance {chance:.2f} at the last one){loss}. Check the samples in the "
        "log; whether the references belong to their lines (of translations, nmt-data check); the number of updates, "
        f"{last['step']:,} so far; training.lr"
    )


def _rounded(number: int) -> int:
    """Down to two significant digits."""
    unit = 10 ** max(0, len(str(number)) - 2)
    return number // unit * unit


MOST_NORM = 100.0
"""The largest gradient norm of a healthy start; the loss is a mean over words or sentences."""
MOST_SATURATED = 0.05
"""The largest share of a part's tanh and sigmoid values that is saturated in a healthy start."""
WARN_SATURATED = 0.25
"""The share from which users are warned: the attention of Zero with layer norm starts at 0.06, and learns."""
SATURATED = 0.99
"""Beyond it a tanh, and beyond it or one minus it a sigmoid, is saturated."""
SENTENCES = 8
"""Sentences of the first batch in which saturation is measured."""

_CURES = (
    "model.layer_norm: true, with model.layer_norm_scale: 0.5 if necessary; a smaller model.init_range; fewer layers"
)
_TABLES = {
    "embeddings.source": "source table",
    "embeddings.bias": "source table",
    "embeddings.target": "target table",
    "embeddings.softmax": "softmax table",
}
_ENTRANCES = ("forward", "sequence", "attend")
"""Methods through which the work of a part is reached."""


@dataclass(frozen=True)
class Health:
    """What was measured of a model at its first batch."""

    grad_norm: float
    """Global norm of the gradient, not clipped."""
    norms: dict[str, float]
    """That of each part: tables, layers, attentions, initial states, readout."""
    saturated: dict[str, float]
    """Share of the saturated values of each part that has a tanh or sigmoid."""

    def problems(self) -> list[str]:
        """What may keep the model from learning, with the parts where it is and what helps."""
        found = []
        if not self.grad_norm <= MOST_NORM:
            # What is not a number comes with the largest.
            order = sorted(self.norms.items(), key=lambda row: -math.inf if math.isnan(row[1]) else -row[1])
            shown = ", ".join(f"{part} {norm:.3g}" for part, norm in order[:3])
            found.append(f"the gradient norm of the first batch is {self.grad_norm:.3g}, most of it in: {shown}")
        bad = {part: share for part, share in self.saturated.items() if share > WARN_SATURATED}
        if bad:
            shown = ", ".join(f"{part} {share:.0%}" for part, share in sorted(bad.items(), key=lambda row: -row[1]))
            found.append(f"saturated, so that hardly any gradient passes: {shown} of the tanh and sigmoid values")
        return [f"this model may not learn: {problem}; possible remedies: {_CURES}" for problem in found]

    def summary(self) -> str:
        """One line for people."""
        most = max(self.saturated, key=lambda part: self.saturated[part], default=None)
        share = "" if most is None else f", at most {self.saturated[most]:.1%} of a part saturated ({most})"
        return f"start: gradient norm {self.grad_norm:.3g}{share}"


def saturation(model: Seq2Seq, source: Tensor, target: Tensor) -> dict[str, float]:
    """Share of the tanh and sigmoid values of each part beyond SATURATED, for source [B, S] and target [B, T].

    Computed by the plain PyTorch code in evaluation mode, so that nothing random happens.
    """
    watch, attentions, was_training = _Watch(), _attentions(model), model.training
    changed: list[tuple[nn.Module, str]] = []
    model.eval()
    try:
        for name, module in model.named_modules():  # which tell `watch` when they compute
            part = (_part(name, attentions), isinstance(module, AdditiveAttention))
            for entrance in _ENTRANCES:
                if name and entrance not in vars(module) and hasattr(module, entrance):
                    setattr(module, entrance, _telling(getattr(module, entrance), part, watch))
                    changed.append((module, entrance))
        with selected("reference"), torch.no_grad(), watch:
            model.token_losses(source, target)
    finally:
        for module, entrance in changed:
            delattr(module, entrance)
        model.train(was_training)
    return {part: watch.saturated[part] / count for part, count in sorted(watch.values.items())}


@DOUBTS.register("health")
def inspect(model: Seq2Seq, source: Tensor, target: Tensor, *, grad_norm: float = math.inf) -> Health:
    """The health of a model that holds the gradients of its first batch, source [B, S], target [B, T].

    `grad_norm`: their norm before clipping; if it is infinite, they were not clipped.
    """
    attentions, squares = _attentions(model), defaultdict[str, float](float)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            squares[_part(name, attentions)] += float(torch.linalg.vector_norm(parameter.grad.double())) ** 2
    norms = {part: math.sqrt(square) for part, square in squares.items()}
    total = math.sqrt(sum(norm * norm for norm in norms.values()))
    if math.isfinite(grad_norm) and total > 0:
        norms = {part: norm * grad_norm / total for part, norm in norms.items()}
        total = grad_norm
    device = next(model.parameters()).device
    return Health(total, norms, saturation(model, *(ids[:SENTENCES].to(device) for ids in (source, target))))


class _Watch(TorchDispatchMode):
    """Counts what tanh and sigmoid put out, by the part that is at work."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[tuple[str, bool]] = []
        """The parts being computed, the innermost last, and whether its sigmoid computes a tanh."""
        self.values: Counter[str] = Counter()
        self.saturated: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.rstrip("_") if isinstance(func, torch._ops.OpOverload) else ""
        if name in ("tanh", "sigmoid") and self.parts:
            part, is_tanh = self.parts[-1]
            low = -SATURATED if name == "tanh" else (1 - SATURATED) / (2 if is_tanh else 1)
            high = SATURATED if name == "tanh" else 1 - low
            self.values[part] += result.numel()
            self.saturated[part] += int(((result > high) | (result < low)).sum())
        return result


def _telling(method: Callable[..., Any], part: tuple[str, bool], watch: _Watch) -> Callable[..., Any]:
    @wraps(method)
    def told(*args: Any, **kwargs: Any) -> Any:
        watch.parts.append(part)
        try:
            return method(*args, **kwargs)
        finally:
            watch.parts.pop()

    return told


def _attentions(model: Seq2Seq) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, AdditiveAttention)]


def _part(name: str, attentions: Collection[str]) -> str:
    """The part of a model to which a module or parameter belongs, in words."""
    if name in _TABLES:
        return _TABLES[name]
    part = name.partition(".")[0].replace("_", " ")
    if layer := re.match(r"(encoder\.|decoder\.|)(?:layers|residuals)\.(\d+)", name):
        part = f"{layer[1].replace('.', ' ')}layer {int(layer[2]) + 1}"
    inside = any(name == path or name.startswith(f"{path}.") for path in attentions)
    return f"attention of {part}" if inside else part
