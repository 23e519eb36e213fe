"""language_model: recurrent layers above each other that predict the next word of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.cells import Cell, as_initializer
from nmt.limits import DEEPEST, WIDEST
from nmt.models.base import PAD, Outline
from nmt.models.build import check_dropouts, units_without_dropout, within
from nmt.models.parts import Dropout, Linear
from nmt.ops.dropout import of_parameters
from nmt.ops.linear_cross_entropy import Losses, linear_cross_entropy
from nmt.ops.recurrence import at_least_fp32
from nmt.registry import CELLS, MODELS

if TYPE_CHECKING:
    from nmt.config.schema import ModelConfig

TABLES = 0.1
"""Range of the values that tables of words start from."""
States = tuple[Any, ...]
"""The state of each layer, lowest first, of B rows."""


@dataclass(frozen=True, kw_only=True)
class LanguageModelOptions:
    """Options of the architecture `language_model`.

    Layers have the width `model.hidden_size`, but the last one: see `last_size`.
    """

    layers: int = 3
    """Recurrent layers."""
    cells: list[str] | None = None
    """The unit of each layer, lowest first; `null`: `model.cell`."""
    last_size: int | None = None
    """Width of the last layer; another one needs a mixture of softmaxes; `null`: `model.embedding_size`."""
    softmaxes: int = 1
    """Above 1: a mixture of this many softmaxes, each with its own tanh layer (Yang et al., ICLR 2018)."""
    input_dropout: float | None = None
    hidden_dropout: float | None = None
    output_dropout: float | None = None
    mixture_dropout: float | None = None
    """Dropout, the same for a whole row, of embeddings, between layers, of the last states, and of what each of several
    softmaxes sees; `null`: `model.dropout`."""
    embedding_dropout: float = 0.0
    """Share of the vocabulary whose embeddings are zero in a batch."""
    weight_dropout: float = 0.0
    """Dropout of recurrent matrices, the same at all words of a batch (Merity et al., ICLR 2018)."""

    def __post_init__(self) -> None:
        within("layers", self.layers, 1, DEEPEST)
        for name in ("last_size", "softmaxes"):
            within(name, getattr(self, name), 1, WIDEST)
        if self.cells is not None and len(self.cells) != self.layers:
            raise ValueError(f"cells: {len(self.cells)} units for {self.layers} layers")
        if self.hidden_dropout is not None and self.layers == 1:
            raise ValueError("hidden_dropout: has no effect with one layer")
        if self.mixture_dropout is not None and self.softmaxes == 1:
            raise ValueError("mixture_dropout: has no effect without a mixture of softmaxes")
        check_dropouts(self)


class Run(NamedTuple):
    """What a pass over B rows of T words found."""

    features: Tensor
    """[B, T, L], the states of the last layer as the softmax sees them: after dropout"""
    raw: Tensor
    """[B, T, L], the same before it"""
    states: States
    """after the last word"""


class LockedDropout(nn.Module):
    """Dropout of x [B, T, W] whose mask is the same at all T places of a row (Gal and Ghahramani, NIPS 2016)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.dropout = Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, T, W] -> the same shape."""
        if not self.training or self.dropout.p == 0:
            return x
        return x * self.dropout(x.new_ones(x.size(0), 1, x.size(2)))


class WordTables(nn.Module):
    """Embeddings [V, E], and the table [V, E] of the softmax, where that is another."""

    def __init__(self, vocab_size: int, size: int, *, tied: bool, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(vocab_size, size))
        self.softmax = None if tied else nn.Parameter(torch.empty(vocab_size, size))
        self.dropout = Dropout(dropout)

    def reset_parameters(self, init_range: Any) -> None:
        """Both uniform in +-TABLES."""
        for table in self.parameters():
            nn.init.uniform_(table, -TABLES, TABLES)

    @property
    def softmax_table(self) -> Tensor:
        """[V, E]"""
        return self.embedding if self.softmax is None else self.softmax

    def forward(self, words: Tensor) -> Tensor:
        """Ids [...] -> [..., E]; in training some words of the vocabulary are zero."""
        table: Tensor = self.embedding
        if self.training and self.dropout.p:
            with of_parameters():
                table = table * self.dropout(table.new_ones(len(table), 1))
        return F.embedding(words, table)


class Mixture(nn.Module):
    """K features for each state, and how much each of them counts."""

    def __init__(self, size: int, features: int, count: int, dropout: float) -> None:
        super().__init__()
        self.prior = nn.Parameter(torch.empty(count, size))
        self.latent = Linear([size], count * features)
        self.dropout = LockedDropout(dropout)
        self.count = count

    def reset_parameters(self, init_range: Any) -> None:
        """Matrices by the initializer."""
        as_initializer(init_range).weight_(self.prior, fan_in=self.prior.size(1), fan_out=self.prior.size(0))
        self.latent.reset_parameters(init_range)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """States [B, T, L] -> log-priors [B, T, K] and features [B, T, K, E]."""
        features = self.dropout(torch.tanh(self.latent(states)))
        return F.log_softmax(at_least_fp32(F.linear(states, self.prior)), -1), features.unflatten(-1, (self.count, -1))


@MODELS.register("language_model")
class LanguageModel(nn.Module):
    """Embeddings, recurrent layers, and one softmax or a mixture of several.

    Letters: B rows of text, T words each, V words of the vocabulary, E `embedding_size`, L width of the last layer.
    The dropouts are those of AWD-LSTM (Merity et al., ICLR 2018). Ids are int64, padded with 0 at the right.
    """

    tasks: ClassVar[tuple[str, ...]] = ("language_model",)
    Options: ClassVar[type] = LanguageModelOptions
    int8_encoder: ClassVar[bool] = False

    def __init__(
        self,
        vocab_size: int,
        cells: Sequence[Cell[Any]],
        *,
        embedding_size: int,
        tied: bool,
        options: LanguageModelOptions,
        dropout: float,
    ) -> None:
        """Layers `cells`, each of which reads the output of the layer below."""
        super().__init__()

        def chosen(value: float | None) -> float:
            return dropout if value is None else value

        self.words = WordTables(vocab_size, embedding_size, tied=tied, dropout=options.embedding_dropout)
        self.input_dropout = LockedDropout(chosen(options.input_dropout))
        self.layers = nn.ModuleList(cells)
        self.hidden_dropouts = nn.ModuleList(LockedDropout(chosen(options.hidden_dropout)) for _ in cells[1:])
        self.output_dropout = LockedDropout(chosen(options.output_dropout))
        last = cells[-1].hidden_size
        self.mixture = (
            Mixture(last, embedding_size, options.softmaxes, chosen(options.mixture_dropout))
            if options.softmaxes > 1
            else None
        )

    @classmethod
    def check(cls, config: ModelConfig) -> list[tuple[str, str]]:
        """What does not fit together in the section `model`, as (key, message)."""
        options, problems = LanguageModelOptions(**config.architecture_options), []
        last = options.last_size or config.embedding_size
        if options.softmaxes == 1 and last != config.embedding_size:
            message = f"{last} is not model.embedding_size ({config.embedding_size}); only with softmaxes above 1"
            problems.append(("architecture_options.last_size", message))
        for name in dict.fromkeys(options.cells or []):
            if name not in CELLS.names():
                problems.append(("architecture_options.cells", CELLS.unknown(name)))
        names = dict.fromkeys(options.cells or [config.cell])
        for name in names:
            known = name in CELLS.names()
            if options.weight_dropout and known and not getattr(CELLS.get(name), "recurrent_weights", False):
                message = f"the unit '{name}' has no recurrent matrix; set it to 0.0"
                problems.append(("architecture_options.weight_dropout", message))
        problems += units_without_dropout(config, names)
        return problems

    @classmethod
    def without_cell(cls, config: ModelConfig) -> str | None:
        """Why `model.cell` has no effect; None where a layer has that unit."""
        cells = LanguageModelOptions(**config.architecture_options).cells
        return (
            None if cells is None or config.cell in cells else "architecture_options.cells has the unit of each layer"
        )

    @classmethod
    def outline(cls, config: ModelConfig) -> Outline:
        """Layers, width and units that the section `model` describes."""
        options = LanguageModelOptions(**config.architecture_options)
        return Outline(0, options.layers, config.hidden_size, ", ".join(dict.fromkeys(options.cells or [config.cell])))

    @classmethod
    def from_config(cls, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> LanguageModel:
        """Build the model that the section `model` describes, freshly initialised."""
        options = LanguageModelOptions(**config.architecture_options)
        widths = [config.hidden_size] * (options.layers - 1) + [options.last_size or config.embedding_size]
        names = options.cells or [config.cell] * options.layers
        cells = []
        for name, below, width in zip(names, [config.embedding_size, *widths], widths, strict=False):
            unit = CELLS.get(name)
            own = config.cell_options if name == config.cell else {}
            cell = unit(below, width, layer_norm=config.layer_norm, options=unit.Options(**own))
            cell.recurrent_dropout, cell.weight_dropout = config.recurrent_dropout, options.weight_dropout
            cells.append(cell)
        model = cls(
            target_vocab_size,
            cells,
            embedding_size=config.embedding_size,
            tied=config.tie_embeddings != "none",
            options=options,
            dropout=config.dropout,
        )
        model.reset_parameters()
        return model

    def reset_parameters(self) -> None:
        """Tables uniform in +-TABLES, layers in +-1 / sqrt(their width), as in AWD-LSTM."""
        for cell in self.cells:
            cell.reset_parameters(cell.hidden_size**-0.5)
        for part in (self.words, self.mixture):
            if part is not None:
                part.reset_parameters(TABLES)

    @property
    def source_vocab_size(self) -> int:
        """V"""
        return len(self.words.embedding)

    @property
    def target_vocab_size(self) -> int:
        """V"""
        return len(self.words.embedding)

    @property
    def softmax_table(self) -> Tensor:
        """[V, E]"""
        return self.words.softmax_table

    @property
    def tables(self) -> list[nn.Parameter]:
        """Those of embeddings, and of the softmax."""
        return list(self.words.parameters())

    @property
    def cells(self) -> list[Cell[Any]]:
        """The layers, lowest first."""
        return cast("list[Cell[Any]]", list(self.layers))

    def run(self, words: Tensor, states: States | None = None) -> Run:
        """Read words [B, T] after `states`, or from the beginning."""
        x, after = self.input_dropout(self.words(words)), list[Any]()
        before = (None,) * len(self.layers) if states is None else states
        for place, (cell, state) in enumerate(zip(self.cells, before, strict=True)):
            if place:
                x = self.hidden_dropouts[place - 1](x)
            x, last = cell.for_batch(x).layer(x, state)
            after.append(last)
        return Run(self.output_dropout(x), x, tuple(after))

    def losses(self, features: Tensor, targets: Tensor, *, weights: Tensor) -> Losses:
        """The sum of the losses of `targets` [B, T] times `weights` [B, T], a scalar; the losses [N] of its N words.

        `features` [B, T, L] come from a run over the words before. There is no loss at padding of the target.
        """
        words = (targets != PAD).flatten().nonzero().squeeze(1)
        chosen, weights = targets.flatten()[words], weights.flatten()[words]
        if self.mixture is None:
            rows = features.flatten(0, 1)[words]
            return linear_cross_entropy(rows, self.softmax_table, targets=chosen, weights=weights)
        priors, latent = self.mixture(features)
        return mixture_losses(
            priors.flatten(0, 1)[words], latent.flatten(0, 1)[words], self.softmax_table, chosen, weights
        )

    @torch.no_grad()
    def token_losses(self, source: Tensor, target: Tensor, *, words: Tensor | None = None) -> Tensor:
        """Negative log-likelihoods [B, T] of target [B, T] after source [B, T], from the beginning; 0 at padding."""
        found = self.losses(self.run(source).features, target, weights=torch.ones_like(target, dtype=torch.float32))
        places = (target != PAD).flatten().nonzero().squeeze(1)
        return found.nll.new_zeros(target.numel()).index_copy(0, places, found.nll).view(target.shape)

    @torch.no_grad()
    def step(self, words: Tensor, states: States | None) -> tuple[Tensor, States]:
        """Log-probabilities [N, V] of the word after `words` [N], and the states after them."""
        found = self.run(words.unsqueeze(1), states)
        return self.log_probabilities(found.features)[:, 0], found.states

    def log_probabilities(self, features: Tensor) -> Tensor:
        """Of every word of the vocabulary [B, T, V], in fp32 at least."""
        if self.mixture is None:
            return F.log_softmax(at_least_fp32(F.linear(features, self.softmax_table)), -1)
        priors, latent = self.mixture(features)
        each = F.log_softmax(at_least_fp32(F.linear(latent, self.softmax_table)), -1)  # [B, T, K, V]
        return torch.logsumexp(priors.unsqueeze(-1) + each, -2)


def mixture_losses(priors: Tensor, features: Tensor, table: Tensor, targets: Tensor, weights: Tensor) -> Losses:
    """`linear_cross_entropy` of a mixture of K softmaxes: log-priors [N, K], features [N, K, E], table [V, E].

    -log p = -logsumexp_k(prior_k + log p_k). Its gradient is that of -sum_k r_k (prior_k + log p_k), where r_k is the
    share of softmax k in p, taken as a constant. So the logits [N K, V] are never all in memory: a first pass finds the
    log p_k, a second one is weighted with r_k.
    """
    count = priors.size(1)
    rows, repeated = features.flatten(0, 1), targets.repeat_interleave(count)
    with torch.no_grad():
        found = linear_cross_entropy(rows, table, targets=repeated, weights=rows.new_ones((), dtype=torch.float32))
        joint = priors - found.nll.view(-1, count)  # [N, K]
        nll = -torch.logsumexp(joint, -1)
        shares = torch.exp(joint + nll.unsqueeze(-1))
    weights = weights.to(nll.dtype)
    weighted = shares * weights.unsqueeze(-1)
    words = linear_cross_entropy(rows, table, targets=repeated, weights=weighted.flatten()).total
    surrogate = words - (weighted * priors).sum()
    return Losses((nll * weights).sum() + surrogate - surrogate.detach(), nll, nll)
