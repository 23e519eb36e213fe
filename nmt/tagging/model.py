"""Taggers: a recurrent encoder of words, scores of their labels, and a random field over a sentence's labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.cells import Cell, as_initializer
from nmt.limits import DEEPEST, WIDEST
from nmt.models.base import PAD, Outline
from nmt.models.build import cell_maker, check_dropouts, initializer, units_without_dropout, within
from nmt.models.encoder import Bidirectional
from nmt.models.parts import Dropout, Linear, initialize
from nmt.ops.recurrence import at_least_fp32
from nmt.other_tasks.table import Table
from nmt.registry import MODELS

if TYPE_CHECKING:
    from nmt.config.schema import ModelConfig


class LinearChain(nn.Module):
    """Scores of label sequences: of each label at its word, of each pair of neighbours, of the first and the last.

    Letters: B sentences of T words, padded at the right, K labels, which are numbered from 0. Everything is computed
    in the type of the scores; the only loop is over time.
    """

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.empty(labels, labels))
        """[K, K], from the label of the row to that of the column"""
        self.first = nn.Parameter(torch.empty(labels))
        self.last = nn.Parameter(torch.empty(labels))

    def reset_parameters(self, init_range: Any) -> None:
        """Pairs by the initializer, ends 0."""
        as_initializer(init_range).matrix_(self.transitions)
        nn.init.zeros_(self.first)
        nn.init.zeros_(self.last)

    def losses(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Negative log-probabilities [B] of labels [B, T] by scores [B, T, K]; mask [B, T] is true at words.

        Each sentence has a word at least. Labels at padding are not looked at, but must be from 0 to K - 1.
        """
        return self.log_partition(scores, mask) - self.score(scores, labels, mask)

    def score(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """The sum of the scores of labels [B, T]: [B]."""
        at_words = scores.gather(2, labels.unsqueeze(2)).squeeze(2) * mask
        between = self.transitions[labels[:, :-1], labels[:, 1:]] * mask[:, 1:]
        end = labels.gather(1, mask.sum(1, keepdim=True) - 1).squeeze(1)
        return at_words.sum(1) + between.sum(1) + self.first[labels[:, 0]] + self.last[end]

    def log_partition(self, scores: Tensor, mask: Tensor) -> Tensor:
        """The logarithm [B] of the sum over all sequences of exp of their score: the forward algorithm."""
        transitions = self.transitions.to(scores.dtype)
        alpha = scores[:, 0] + self.first
        for t in range(1, scores.size(1)):
            new = torch.logsumexp(alpha.unsqueeze(2) + transitions, 1) + scores[:, t]
            alpha = torch.where(mask[:, t : t + 1], new, alpha)
        return torch.logsumexp(alpha + self.last, 1)

    @torch.no_grad()
    def best(self, scores: Tensor, mask: Tensor) -> Tensor:
        """The labels [B, T] whose sequence has the highest score (Viterbi); 0 at padding."""
        count, length, _ = scores.shape
        stay = torch.arange(scores.size(2), device=scores.device).expand(count, -1)
        best, before = scores[:, 0] + self.first, []
        for t in range(1, length):
            found, from_label = (best.unsqueeze(2) + self.transitions).max(1)
            live = mask[:, t : t + 1]
            best = torch.where(live, found + scores[:, t], best)
            before.append(torch.where(live, from_label, stay))
        label = (best + self.last).argmax(1, keepdim=True)
        labels = [label]
        for pointers in reversed(before):
            label = pointers.gather(1, label)
            labels.append(label)
        return torch.cat(labels[::-1], 1) * mask


FIRST_LABEL = 3
"""The id of the first label; ids before it are special symbols, which are never labels."""
NO_NEIGHBOUR = 2
"""The id of the pair that a character at the edge of a sentence makes with what is not there: the end symbol."""


@dataclass(frozen=True, kw_only=True)
class TaggerOptions:
    """Options of the architecture `tagger`. `model.hidden_size` is the width of each direction of its layers."""

    layers: int = 1
    """Bidirectional layers."""
    crf: bool = True
    """A conditional random field over the labels of a sentence; otherwise a softmax for each."""
    character_size: int = 25
    character_hidden_size: int = 25
    """Task `tagging`: widths of the embeddings of characters (0: none), and of each direction of the layer that reads
    them."""
    bigram_size: int = 50
    """Task `segmentation`, with bigrams: width of the embeddings of pairs of neighbouring characters."""
    input_dropout: float | None = None
    """Dropout of what the first layer reads; `null`: `model.dropout`, as after each layer."""

    def __post_init__(self) -> None:
        within("layers", self.layers, 1, DEEPEST)
        within("character_size", self.character_size, 0, WIDEST)
        for name in ("character_hidden_size", "bigram_size"):
            within(name, getattr(self, name), 1, WIDEST)
        if not self.character_size and self.character_hidden_size != TaggerOptions.character_hidden_size:
            raise ValueError("character_hidden_size: has no effect with character_size: 0")
        check_dropouts(self)


@dataclass(frozen=True)
class Sentences:
    """What is read of B sentences of T tokens, as ids, padded with 0 at the right."""

    words: Tensor
    """[B, T]"""
    forms: Tensor | None = None
    """[B, T], the row of each word in `letters`; at padding row 0, which is padding, too"""
    letters: Tensor | None = None
    """[W, C], the characters of the different words"""
    bigrams: Tensor | None = None
    """[B, T], the pair that each character makes with the next one"""

    def pinned(self) -> Sentences:
        """The same in memory from which a GPU can copy by itself."""
        return self._with(Tensor.pin_memory)

    def to(self, device: torch.device) -> Sentences:
        """The same on a device."""
        return self._with(lambda part: part.to(device, non_blocking=True))

    def _with(self, change: Callable[[Tensor], Tensor]) -> Sentences:
        parts = (self.forms, self.letters, self.bigrams)
        return Sentences(change(self.words), *(None if part is None else change(part) for part in parts))

    def __getitem__(self, rows: slice) -> Sentences:
        """Some of the sentences."""
        forms, bigrams = (None if part is None else part[rows] for part in (self.forms, self.bigrams))
        return Sentences(self.words[rows], forms, self.letters, bigrams)


class Letters(nn.Module):
    """What the characters of a word say of it: the last states of a bidirectional layer."""

    def __init__(self, entries: int, size: int, layer: Bidirectional) -> None:
        super().__init__()
        self.table, self.layer = Table(entries, size), layer
        self.output_size = layer.last_size

    def forward(self, forms: Tensor, letters: Tensor) -> Tensor:
        """`Sentences.forms` [B, T] and `letters` [W, C] -> [B, T, 2H]; each different word is read once."""
        return F.embedding(forms, self.layer(self.table(letters), letters != PAD).last)


@MODELS.register("tagger")
class Tagger(nn.Module):
    """Embeddings of words and of their parts, bidirectional layers, scores of labels.

    Letters: B sentences of T words, K labels. Ids are int64, padded with 0 at the right; labels begin with FIRST_LABEL.
    """

    tasks: ClassVar[tuple[str, ...]] = ("tagging", "segmentation")
    Options: ClassVar[type] = TaggerOptions
    int8_encoder: ClassVar[bool] = False

    def __init__(
        self,
        words: Table,
        layers: list[Bidirectional],
        *,
        labels: int,
        letters: Letters | None,
        bigrams: Table | None,
        crf: bool,
        dropouts: tuple[float, float],
    ) -> None:
        """`labels` K. `dropouts`: before the first layer, and after each."""
        super().__init__()
        self.words, self.letters, self.bigrams = words, letters, bigrams
        self.input_dropout = Dropout(dropouts[0])
        self.layers = nn.ModuleList(layers)
        self.dropouts = nn.ModuleList(Dropout(dropouts[1]) for _ in layers)
        self.output = Linear([layers[-1].output_size], labels)
        self.crf = LinearChain(labels) if crf else None

    @classmethod
    def check(cls, config: ModelConfig) -> list[tuple[str, str]]:
        """What does not fit together in the section `model`, as (key, message)."""
        return units_without_dropout(config, {config.cell})

    @classmethod
    def outline(cls, config: ModelConfig) -> Outline:
        """Layers, width and units that the section `model` describes."""
        return Outline(TaggerOptions(**config.architecture_options).layers, 0, config.hidden_size, config.cell)

    @classmethod
    def from_config(
        cls, config: ModelConfig, source_vocab_size: int, target_vocab_size: int, characters: int = 0, bigrams: int = 0
    ) -> Tagger:
        """Build the model that the section `model` describes, freshly initialised.

        `characters` and `bigrams`: entries of these vocabularies; 0 for none.
        """
        options = TaggerOptions(**config.architecture_options)
        letters, pairs, width = None, None, config.embedding_size
        if characters and options.character_size:
            make = cell_maker(config, "encoder", width=options.character_hidden_size)
            layer = Bidirectional(make, options.character_size)
            for cell in (layer.forward_rnn, layer.backward_rnn):
                cell.recurrent_dropout = 0.0  # rows are words of several sentences, which have no masks of their own
            letters = Letters(characters, options.character_size, layer)
            width += letters.output_size
        if bigrams:
            pairs = Table(bigrams, options.bigram_size)
            width += 2 * options.bigram_size
        layers = []
        for _ in range(options.layers):
            layers.append(Bidirectional(cell_maker(config, "encoder"), width))
            width = layers[-1].output_size
        first = config.dropout if options.input_dropout is None else options.input_dropout
        model = cls(
            Table(source_vocab_size, config.embedding_size),
            layers,
            labels=target_vocab_size - FIRST_LABEL,
            letters=letters,
            bigrams=pairs,
            crf=options.crf,
            dropouts=(first, config.dropout),
        )
        initialize(model, initializer(config))
        return model

    @property
    def source_vocab_size(self) -> int:
        """Entries of the vocabulary of words, or characters."""
        return len(self.words.weight)

    @property
    def target_vocab_size(self) -> int:
        """Entries of the vocabulary of labels, special symbols included."""
        return self.output.weights[0].size(0) + FIRST_LABEL

    @property
    def tables(self) -> list[nn.Parameter]:
        """Those of embeddings."""
        parts = (self.words, self.bigrams, None if self.letters is None else self.letters.table)
        return [part.weight for part in parts if part is not None]

    @property
    def cells(self) -> list[Cell[Any]]:
        """The units of all layers, lowest first."""
        return [module for module in self.modules() if isinstance(module, Cell)]

    def scores(self, sentences: Sentences) -> Tensor:
        """Of each label at each word [B, T, K], before the random field or the softmax; in fp32 at least."""
        mask = sentences.words != PAD
        read = [self.words(sentences.words)]
        if self.letters is not None:
            assert sentences.forms is not None and sentences.letters is not None, "the tokenizer has them"
            read.append(self.letters(sentences.forms, sentences.letters))
        if self.bigrams is not None:
            assert sentences.bigrams is not None, "the tokenizer has them"
            after = self.bigrams(sentences.bigrams)
            before = self.bigrams(F.pad(sentences.bigrams[:, :-1], (1, 0), value=NO_NEIGHBOUR))
            read += [before, after]
        x = self.input_dropout(read[0] if len(read) == 1 else torch.cat([part.to(read[0].dtype) for part in read], -1))
        for layer, dropout in zip(cast("list[Bidirectional]", list(self.layers)), self.dropouts, strict=True):
            x = dropout(layer(x, mask).outputs)
        return at_least_fp32(self.output(x))

    def losses(self, sentences: Sentences, labels: Tensor) -> Tensor:
        """Negative log-probabilities of the labels [B, T] of each sentence, in nats: [B].

        Each sentence has a word at least, and each of its words a label from FIRST_LABEL on.
        """
        scores, mask = self.scores(sentences), sentences.words != PAD
        chosen = (labels - FIRST_LABEL).clamp(min=0)
        if self.crf is not None:
            return self.crf.losses(scores, chosen, mask)
        log_p = F.log_softmax(scores, -1).gather(2, chosen.unsqueeze(2)).squeeze(2)
        return -(log_p * mask).sum(1)

    @torch.no_grad()
    def token_losses(self, source: Sentences, target: Tensor) -> Tensor:
        """`losses`, without a gradient."""
        return self.losses(source, target)

    @torch.no_grad()
    def best(self, sentences: Sentences) -> Tensor:
        """The most probable labels [B, T], with a random field as a sequence, else independently; 0 at padding."""
        scores, mask = self.scores(sentences), sentences.words != PAD
        found = scores.argmax(2) if self.crf is None else self.crf.best(scores, mask)
        return (found + FIRST_LABEL) * mask
