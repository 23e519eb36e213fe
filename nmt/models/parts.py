"""What all architectures are made of: linear maps, layer norm, dropout, embeddings, initial states, readout."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.cells import Cell, as_initializer
from nmt.errors import ConfigError
from nmt.ops.dropout import layer_dropout
from nmt.ops.matrices import linear
from nmt.ops.matrices.best_words import BestWords, Choice, best_words
from nmt.ops.recurrence import layer_norm, product_type


@torch.no_grad()
def initialize(module: nn.Module, init_range: float) -> None:
    """Let each part below `module` that has parameters of its own start them, in order of registration.

    A part with `reset_parameters(init_range)` (a cell, a linear map, an attention, ...) takes care of everything inside
    it. `init_range` is an `Initializer` or a plain number, the range of `uniform`. A module of torch.nn stays as its
    constructor, or whoever made it, has started it. Of any other module with a `reset_parameters()` that takes no
    argument the parts start first, and it has the last word.
    """
    reset: Callable[..., Any] | None = getattr(module, "reset_parameters", None)
    if reset is not None and _takes_argument(reset):
        reset(init_range)
        return
    for child in module.children():
        initialize(child, init_range)
    # What PyTorch wrote the constructor has called, and who derives from its class may have gone on.
    if reset is not None and not reset.__module__.startswith("torch."):
        reset()


def _takes_argument(method: Callable[..., Any]) -> bool:
    """Whether a value can be given to it by its position."""
    try:
        inspect.signature(method).bind(None)
    except TypeError:
        return False
    return True


class LayerNorm(nn.Module):
    """scale * (x - mean) / sqrt(variance + 1e-8) + offset over the last axis, in at least fp32."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(size))
        self.offset = nn.Parameter(torch.empty(size))

    def reset_parameters(self, init_range: float) -> None:
        """Scale 1, offset 0, whatever the initializer."""
        nn.init.ones_(self.scale)
        nn.init.zeros_(self.offset)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x [..., size]."""
        return layer_norm(x, self.scale, self.offset)


class Linear(nn.Module):
    """y = x_0 W_0 + x_1 W_1 + ... + b for inputs x_j of the widths `inputs`.

    Without layer norm the inputs are concatenated and there is one weight [out, sum of widths].
    With it each product has a weight [out, width] and a layer norm of its own, the results are
    added, and only then the bias, which is never normalised.
    """

    def __init__(self, inputs: Sequence[int], outputs: int, *, bias: bool = True, normalize: bool = False) -> None:
        super().__init__()
        widths = list(inputs) if normalize else [sum(inputs)]
        self.weights = nn.ParameterList([nn.Parameter(torch.empty(outputs, width)) for width in widths])
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None
        self.norms = nn.ModuleList([LayerNorm(outputs) for _ in widths] if normalize else [])

    def reset_parameters(self, init_range: float) -> None:
        """Weights by the initializer, zero bias, layer norm 1 and 0."""
        for weight in self.weights:
            as_initializer(init_range).matrix_(weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        for norm in self.norms:
            initialize(norm, init_range)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Map the inputs [..., width_j], which agree in all but the last axis, to [..., out]."""
        if not self.norms:
            x = inputs[0] if len(inputs) == 1 else torch.cat([x.to(product_type(x)) for x in inputs], dim=-1)
            return linear(x, self.weights[0], self.bias)
        products = [norm(linear(x, weight)) for norm, x, weight in zip(self.norms, inputs, self.weights, strict=True)]
        total = sum(products[1:], start=products[0])
        return total if self.bias is None else total + self.bias


class Dropout(nn.Dropout):
    """torch's dropout, with masks that in training are a function of the place in the batch; see `nmt.ops.dropout`."""

    layer_number: int = 0
    """Number of this layer in its model, see `number_layers`."""

    def forward(self, x: Tensor, *, position: int = 0) -> Tensor:
        """x [B, T, ...] in training with values dropped, otherwise x; or [B, W], the words at one `position`."""
        if not self.training or self.p == 0:
            return x
        return layer_dropout(x, self.p, layer=self.layer_number, position=position)


class DropoutWarmup:
    """Dropouts of a model that grow linearly from 0 to their values over its first updates.

    Curriculum dropout (Morerio et al., ICCV 2017), whose curve is an exponential: a model learns most at first without
    dropout, and overfits only later.
    """

    def __init__(self, model: nn.Module, *, steps: int) -> None:
        """`steps`: the update, counted from 0, in which they reach the values that the model has now; 0: at once."""
        self.steps = steps
        self._full = [
            (module, name, float(getattr(module, name)))
            for kind, name in ((nn.Dropout, "p"), (Cell, "recurrent_dropout"), (Cell, "weight_dropout"))
            for module in model.modules()
            if isinstance(module, kind)
        ]

    def at_step(self, step: int) -> None:
        """Set the dropouts of the update after `step` earlier ones."""
        if self.steps:
            share = min(1.0, step / self.steps)
            for module, name, full in self._full:
                setattr(module, name, full * share)


def number_layers(model: nn.Module) -> None:
    """Give each layer with dropout its own number, in the order in which the model lists them.

    Done once before training: without numbers all layers of a size have the same masks in one `masked_by`.
    """
    dropping = (module for module in model.modules() if isinstance(module, (Dropout, Cell)))
    for number, module in enumerate(dropping, start=1):
        module.layer_number = number


Tying = Literal["none", "target_softmax", "all"]


class Embeddings(nn.Module):
    """Tables [V, E] and the vector [E] that is added to both source and target embeddings.

    A table that is shared is registered once: `target` is None where it is the source's, `softmax`
    where it is the target's. `target_table` and `softmax_table` are what to use.
    """

    def __init__(self, source_vocab_size: int, target_vocab_size: int, *, size: int, tie: Tying) -> None:
        super().__init__()
        if tie == "all" and source_vocab_size != target_vocab_size:
            raise ConfigError(
                f"model.tie_embeddings: 'all' needs one vocabulary for both languages, "
                f"but they have {source_vocab_size} and {target_vocab_size} entries"
            )
        self.source_vocab_size, self.target_vocab_size = source_vocab_size, target_vocab_size
        self.source = nn.Parameter(torch.empty(source_vocab_size, size))
        self.target = None if tie == "all" else nn.Parameter(torch.empty(target_vocab_size, size))
        self.softmax = nn.Parameter(torch.empty(target_vocab_size, size)) if tie == "none" else None
        self.bias = nn.Parameter(torch.empty(size))

    def reset_parameters(self, init_range: float) -> None:
        """Everything by the initializer, the bias too; to Zero a table goes from width V to E, the bias from E to E."""
        for parameter in self.parameters():
            as_initializer(init_range).weight_(parameter, fan_in=parameter.size(0), fan_out=parameter.size(-1))

    @property
    def target_table(self) -> Tensor:
        """[V_target, E]"""
        return self.source if self.target is None else self.target

    @property
    def softmax_table(self) -> Tensor:
        """[V_target, E]"""
        return self.target_table if self.softmax is None else self.softmax

    def use_softmax_table(self, table: Tensor) -> None:
        """Compare features with this table [V_target, E] from now on, whatever the embeddings share."""
        self._parameters.pop("softmax", None)
        self.softmax = table  # type: ignore[assignment]

    def embed_source(self, ids: Tensor) -> Tensor:
        """ids [...] -> [..., E]"""
        return F.embedding(ids, self.source) + self.bias

    def embed_target(self, ids: Tensor) -> Tensor:
        """ids [...] -> [..., E]"""
        return F.embedding(ids, self.target_table) + self.bias

    def zeros(self, rows: int) -> Tensor:
        """What the decoder reads before the first word [rows, E]."""
        return self.bias.new_zeros(rows, self.bias.numel())

    def logits(self, features: Tensor) -> Tensor:
        """features [..., E] -> [..., V_target]"""
        return F.linear(features, self.softmax_table)


class InitialStates(nn.Module):
    """The packed initial state of each decoder layer: a linear map of what the encoder read last."""

    def __init__(self, input_size: int, state_sizes: list[int], *, tanh: bool, layer_norm: bool) -> None:
        super().__init__()
        self.maps = nn.ModuleList(Linear([input_size], size, normalize=layer_norm) for size in state_sizes)
        self.tanh = tanh

    def forward(self, last: Tensor) -> list[Tensor]:
        """last [B, width] -> for each decoder layer [B, P]."""
        packed = []
        for linear_map in self.maps:
            state = linear_map(last)
            packed.append(torch.tanh(state) if self.tanh else state)
        return packed


class Readout(nn.Module):
    """Features [..., E] that are compared with the softmax table."""

    def forward(self, *pieces: Tensor) -> Tensor:
        """From what the decoder put out; without a layer of its own the first piece [..., E]."""
        return pieces[0]


class TanhReadout(Readout):
    """dropout(tanh(W pieces + b)).

    `joined`: the pieces are concatenated before the linear map, so that with layer norm too there is
    one weight and one layer norm; otherwise each piece then has its own.
    """

    def __init__(self, inputs: list[int], size: int, *, joined: bool, layer_norm: bool, dropout: float) -> None:
        super().__init__()
        self.joined = joined
        self.linear = Linear([sum(inputs)] if joined else inputs, size, normalize=layer_norm)
        self.dropout = Dropout(dropout)

    def forward(self, *pieces: Tensor) -> Tensor:
        if self.joined:
            pieces = (torch.cat(pieces, -1),)
        return self.dropout(torch.tanh(self.linear(*pieces)))


class OutputWords(NamedTuple):
    """U words, of which each of B sentences has its own; a search calls them by their places."""

    ids: Tensor  # [U]
    table: Tensor  # [U, E], their rows of the softmax table, which may be an Int8Matrix
    forbidden: Tensor  # [B, U], true where a word is not the sentence's

    def keep(self, sentences: Tensor) -> OutputWords:
        """Only the sentences [B']."""
        return self._replace(forbidden=self.forbidden.index_select(0, sentences))

    def logits(self, features: Tensor) -> Tensor:
        """Of features [B * K, E], [B * K, U]; what is forbidden has probability 0."""
        logits = F.linear(features, self.table)
        by_sentence = logits.view(len(self.forbidden), -1, logits.shape[1])
        by_sentence.masked_fill_(self.forbidden.unsqueeze(1), -math.inf)
        return logits

    def best(self, features: Tensor, choice: Choice) -> BestWords:
        """The best places of features [B * K, E]."""
        return best_words(self.logits(features), choice)
