"""classifier: bidirectional layers over one text, or over two with attention between them, and scores of labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.cells import Cell
from nmt.limits import DEEPEST
from nmt.models.base import PAD, Outline
from nmt.models.build import cell_maker, initializer, units_without_dropout
from nmt.models.decoder import AttentionRNN
from nmt.models.encoder import Bidirectional, EncoderOutput, MakeCell
from nmt.models.parts import Dropout, InitialStates, Linear, initialize
from nmt.ops.recurrence import at_least_fp32
from nmt.other_tasks.table import Table
from nmt.registry import MODELS

if TYPE_CHECKING:
    from nmt.config.schema import ModelConfig

FIRST_LABEL = 1
"""The id of the first label; 0 is padding, which is never a label."""

PoolingKind = Literal["attention", "max", "mean", "last"]


@dataclass(frozen=True, kw_only=True)
class ClassifierOptions:
    """Options of the architecture `classifier`. `model.hidden_size` is the width of each direction of its layers."""

    labels: list[str] = field(default_factory=list)
    """Names of the labels, two or more; required."""
    attention: Literal["word_by_word", "aligned"] | None = None
    """How two texts are compared: `word_by_word` or `aligned`
    ([classification.md](classification.md#attention-between-two-texts)); `null`: there is one text."""
    layers: int = 1
    """Bidirectional layers over a text; with `word_by_word` over the first."""
    upper_layers: int = 1
    """With two texts: bidirectional layers over the attention's result for each."""
    pooling: PoolingKind = "attention"
    """What is taken of all words: `attention`, `max`, `mean`, or the `last` states."""
    input_dropout: float | None = None
    """Dropout of the embeddings; `null`: `model.dropout`, as after each layer and before the labels."""

    def __post_init__(self) -> None:
        if len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels: each label may be given once, not {', '.join(self.labels)}")
        if any(not label or label != label.strip() or "\t" in label or "\n" in label for label in self.labels):
            raise ValueError("labels: a label must not be empty, contain a tab, or begin or end with a space")
        for name in ("layers", "upper_layers"):
            if not 1 <= getattr(self, name) <= DEEPEST:
                raise ValueError(f"{name}: must be from 1 to {DEEPEST}, not {getattr(self, name)}")
        if self.input_dropout is not None and not 0 <= self.input_dropout < 1:
            raise ValueError(f"input_dropout: must be at least 0 and less than 1, not {self.input_dropout:g}")


@dataclass(frozen=True)
class Texts:
    """B texts, or pairs of texts, as ids with the end symbol, padded with 0 at the right."""

    first: Tensor
    """[B, S]"""
    second: Tensor | None = None
    """[B, T]"""

    def pinned(self) -> Texts:
        """The same in memory from which a GPU can copy by itself."""
        return self._with(Tensor.pin_memory)

    def to(self, device: torch.device) -> Texts:
        """The same on a device."""
        return self._with(lambda part: part.to(device, non_blocking=True))

    def __getitem__(self, rows: slice) -> Texts:
        """Some of them."""
        return self._with(lambda part: part[rows])

    def _with(self, change: Callable[[Tensor], Tensor]) -> Texts:
        return Texts(change(self.first), None if self.second is None else change(self.second))


class Stack(nn.Module):
    """Stacked bidirectional layers, with dropout after each; each of `texts` texts has its own masks."""

    def __init__(self, make_cell: MakeCell, width: int, *, layers: int, dropout: float, texts: int = 1) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(layers):
            self.layers.append(Bidirectional(make_cell, width))
            width = cast("Bidirectional", self.layers[-1]).output_size
        self.output_size = width
        self.dropouts = nn.ModuleList(nn.ModuleList(Dropout(dropout) for _ in range(layers)) for _ in range(texts))

    def forward(self, x: Tensor, mask: Tensor, *, text: int = 0) -> EncoderOutput:
        """x [B, S, D], mask [B, S], of the text of that number -> outputs [B, S, 2H] and last states [B, 2H]."""
        last = x
        for layer, dropout in zip(self.layers, cast("nn.ModuleList", self.dropouts[text]), strict=True):
            outputs, last = layer(x, mask)
            x = dropout(outputs)
        return EncoderOutput(x, last)


class Pooling(nn.Module):
    """One vector of all words of a text."""

    def __init__(self, kind: PoolingKind, size: int, *, hidden_size: int) -> None:
        super().__init__()
        self.kind = kind
        if kind == "attention":
            self.inner = Linear([size], hidden_size)
            self.score = Linear([hidden_size], 1, bias=False)

    def forward(self, read: EncoderOutput, mask: Tensor) -> Tensor:
        """Outputs [B, S, D], last states [B, D], mask [B, S] with a word in each row -> [B, D]."""
        x = at_least_fp32(read.outputs)
        if self.kind == "last":
            return read.last
        if self.kind == "max":
            return x.masked_fill(~mask.unsqueeze(2), -torch.inf).amax(1)
        if self.kind == "mean":
            return (x * mask.unsqueeze(2)).sum(1) / mask.sum(1, keepdim=True)
        scores = at_least_fp32(self.score(torch.tanh(self.inner(read.outputs)))).squeeze(2)
        weights = scores.masked_fill(~mask, -torch.inf).softmax(1)
        return (weights.unsqueeze(1) @ x).squeeze(1)


class WordByWord(nn.Module):
    """The second text is read by a recurrent unit that attends to the first at each word.

    Y are the outputs of bidirectional layers over the first text, r their last states, and x_t the words of the second:

        h_0 = tanh(W r + b)
        s_t = unit(x_t, h_{t-1})
        a_t = softmax_j(w . tanh(W_q s_t + b_q + W_m y_j)), c_t = sum_j a_tj y_j
        h_t = unit'(c_t, s_t)

    So h_t carries on what was attended to before, as r_t does in Rocktaeschel et al. (ICLR 2016).
    """

    def __init__(self, config: ModelConfig, make_cell: MakeCell, *, layers: int) -> None:
        super().__init__()
        self.first = Stack(make_cell, config.embedding_size, layers=layers, dropout=config.dropout)
        width = self.first.output_size
        self.second = AttentionRNN(make_cell, config.embedding_size, width, layer_norm=config.layer_norm)
        cell = self.second.lower
        self.initial = InitialStates(width, [cell.state_size], tanh=True, layer_norm=config.layer_norm)
        self.dropout = Dropout(config.dropout)
        self.output_sizes = [width, cell.hidden_size]

    def forward(self, texts: Sequence[Tensor], masks: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Embedded texts [B, S, E] and [B, T, E], with masks -> Y [B, S, 2H] and h [B, T, H]."""
        read, last = self.first(texts[0], masks[0])
        state = self.second.lower.unpack_state(self.initial(last)[0])
        memory = self.second.prepare(read, masks[0])
        return read, self.dropout(self.second.sequence(texts[1], memory, state, masks[1]).outputs)


class Aligned(nn.Module):
    """Each word is compared with its most similar words in the other text.

    a_i and b_j are the outputs of the same bidirectional layers over both texts (Chen et al., ACL 2017, after the
    attention of Parikh et al., EMNLP 2016):

        e_ij = a_i . b_j, a'_i = sum_j softmax_j(e_ij) b_j, b'_j = sum_i softmax_i(e_ij) a_i
        m_i = relu(W [a_i; a'_i; a_i - a'_i; a_i * a'_i] + b), and the same of b_j
    """

    def __init__(self, config: ModelConfig, make_cell: MakeCell, *, layers: int) -> None:
        super().__init__()
        self.both = Stack(make_cell, config.embedding_size, layers=layers, dropout=config.dropout, texts=2)
        width = self.both.output_size
        self.compare = Linear([width] * 4, config.hidden_size)
        self.dropouts = nn.ModuleList(Dropout(config.dropout) for _ in range(2))
        self.output_sizes = [config.hidden_size]

    def forward(self, texts: Sequence[Tensor], masks: Sequence[Tensor]) -> list[Tensor]:
        """Embedded texts [B, S, E] and [B, T, E], with masks -> m [B, S, H] and [B, T, H]."""
        a, b = (self.both(x, mask, text=i).outputs for i, (x, mask) in enumerate(zip(texts, masks, strict=True)))
        likeness = at_least_fp32(a @ b.transpose(1, 2))  # [B, S, T]
        found = []
        for own, other, scores, mask, dropout in (
            (a, b, likeness, masks[1], self.dropouts[0]),
            (b, a, likeness.transpose(1, 2), masks[0], self.dropouts[1]),
        ):
            weights = scores.masked_fill(~mask.unsqueeze(1), -torch.inf).softmax(2)
            aligned = weights.to(other.dtype) @ other
            found.append(dropout(F.relu(self.compare(own, aligned, own - aligned, own * aligned))))
        return found


COMPARISONS: dict[str, type[WordByWord] | type[Aligned]] = {"word_by_word": WordByWord, "aligned": Aligned}


class Tower(nn.Module):
    """Bidirectional layers and a vector of what they put out."""

    def __init__(self, stack: Stack, pooling: Pooling) -> None:
        super().__init__()
        self.stack, self.pooling = stack, pooling

    def forward(self, x: Tensor, mask: Tensor, *, text: int = 0) -> Tensor:
        """x [B, S, D], mask [B, S] -> [B, 2H]."""
        return cast("Tensor", self.pooling(self.stack(x, mask, text=text), mask))


@MODELS.register("classifier")
class Classifier(nn.Module):
    """Embeddings, bidirectional layers, attention between two texts, one vector of each text, scores of labels.

    Letters: B texts or pairs of S and T words, K labels. Ids are int64, each text has its end symbol, and padding is 0,
    at the right. The ids of labels [B, 1] begin with FIRST_LABEL.
    """

    tasks: ClassVar[tuple[str, ...]] = ("classification",)
    Options: ClassVar[type] = ClassifierOptions
    int8_encoder: ClassVar[bool] = False

    def __init__(
        self,
        words: Table,
        comparison: WordByWord | Aligned | None,
        towers: Sequence[Tower],
        *,
        labels: int,
        dropouts: tuple[float, float],
    ) -> None:
        """`towers`: one of both texts, or one of each. `labels` K. `dropouts`: of embeddings, and before the labels."""
        super().__init__()
        self.texts = 1 if comparison is None else 2
        self.words = words
        self.input_dropouts = nn.ModuleList(Dropout(dropouts[0]) for _ in range(self.texts))
        self.comparison = comparison
        self.towers = nn.ModuleList(towers)
        self.dropout = Dropout(dropouts[1])
        self.output = Linear([self.texts * towers[0].stack.output_size], labels)

    @classmethod
    def check(cls, config: ModelConfig) -> list[tuple[str, str]]:
        """What does not fit together in the section `model`, as (key, message)."""
        problems = units_without_dropout(config, {config.cell})
        options = ClassifierOptions(**config.architecture_options)
        if options.attention is None and options.upper_layers != ClassifierOptions().upper_layers:
            problems.append(("architecture_options.upper_layers", "has no effect without attention, or with one text"))
        return problems

    @classmethod
    def outline(cls, config: ModelConfig) -> Outline:
        """Layers, width and units that the section `model` describes."""
        options = ClassifierOptions(**config.architecture_options)
        layers = options.layers if options.attention is None else options.layers + options.upper_layers
        return Outline(layers, 0, config.hidden_size, config.cell)

    @classmethod
    def from_config(cls, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> Classifier:
        """Build the model that the section `model` describes, freshly initialised; both sizes are the vocabulary's."""
        options = ClassifierOptions(**config.architecture_options)
        make_cell = cell_maker(config, "encoder")

        def tower(width: int, layers: int, texts: int = 1) -> Tower:
            stack = Stack(make_cell, width, layers=layers, dropout=config.dropout, texts=texts)
            return Tower(stack, Pooling(options.pooling, stack.output_size, hidden_size=config.hidden_size))

        comparison, towers = None, []
        if options.attention is None:
            towers = [tower(config.embedding_size, options.layers)]
        else:
            comparison = COMPARISONS[options.attention](config, make_cell, layers=options.layers)
            sizes = comparison.output_sizes
            towers = [tower(width, options.upper_layers, 2 // len(sizes)) for width in sizes]
        first = config.dropout if options.input_dropout is None else options.input_dropout
        model = cls(
            Table(source_vocab_size, config.embedding_size),
            comparison,
            towers,
            labels=len(options.labels),
            dropouts=(first, config.dropout),
        )
        initialize(model, initializer(config))
        return model

    @property
    def source_vocab_size(self) -> int:
        """Entries of the vocabulary."""
        return len(self.words.weight)

    @property
    def target_vocab_size(self) -> int:
        """The same, as there is one vocabulary."""
        return self.source_vocab_size

    @property
    def tables(self) -> list[nn.Parameter]:
        """Those of embeddings."""
        return [self.words.weight]

    @property
    def cells(self) -> list[Cell[Any]]:
        """The units of all layers, lowest first."""
        return [module for module in self.modules() if isinstance(module, Cell)]

    def scores(self, texts: Texts) -> Tensor:
        """Score of each label [B, K], before the softmax; in fp32 at least."""
        given = [texts.first] if texts.second is None else [texts.first, texts.second]
        assert len(given) == self.texts, "as many texts as the model compares"
        masks = [ids != PAD for ids in given]
        read = [dropout(self.words(ids)) for ids, dropout in zip(given, self.input_dropouts, strict=True)]
        if self.comparison is not None:
            read = self.comparison(read, masks)
        pooled = []
        for number, (x, mask) in enumerate(zip(read, masks, strict=True)):
            tower, place = (self.towers[number], 0) if len(self.towers) == self.texts else (self.towers[0], number)
            pooled.append(tower(x, mask, text=place))
        return at_least_fp32(self.output(self.dropout(torch.cat(pooled, -1))))

    @torch.no_grad()
    def token_losses(self, source: Texts, target: Tensor) -> Tensor:
        """Negative log-probabilities of the labels [B, 1], in nats: [B, 1]."""
        return F.cross_entropy(self.scores(source), target[:, 0] - FIRST_LABEL, reduction="none").unsqueeze(1)

    @torch.no_grad()
    def probabilities(self, texts: Texts) -> Tensor:
        """Log-probability of each label [B, K]."""
        return self.scores(texts).softmax(1)
