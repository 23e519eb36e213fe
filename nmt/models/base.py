"""The encoder-decoder common to all architectures: embeddings, encoder, initial states, decoder, readout."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.cells import reorder_state
from nmt.errors import ConfigError, refused
from nmt.models.decoder import Decoder, Memories, Pieces, States, Weights
from nmt.models.encoder import Encoder
from nmt.models.parts import Dropout, Embeddings, InitialStates, OutputWords, Readout, initialize
from nmt.ops.dropout import among
from nmt.ops.linear_cross_entropy import Losses, linear_cross_entropy
from nmt.ops.matrices.best_words import BestWords, Choice, best_of_product
from nmt.ops.recurrence import traced
from nmt.registry import NoOptions

if TYPE_CHECKING:
    from nmt.config.schema import ModelConfig
    from nmt.models.inference import Stored

PAD = 0

Normalization = Literal["token", "sentence", "batch"]


class Encoded(NamedTuple):
    """B encoded sentences of S' positions."""

    memory: Tensor  # [B, S', M]
    mask: Tensor  # [B, S'], true at words
    initial: States
    """a state of B rows for each decoder layer"""


class SourceAttention(NamedTuple):
    """What each of the T target words of B sentences was attending to when it was predicted."""

    layers: Weights
    """[B, G, T, S] of each attention of the decoder, lowest layer and level first, each with G heads"""
    mean: Tensor  # [B, T, S], over all of them; rows of words add up to 1


class Outline(NamedTuple):
    """A short description of a configured model."""

    encoder_layers: int
    decoder_layers: int
    width: int
    """What a schedule such as `noam` calls the width of the model."""
    mixing: str
    """Its recurrent units, and what else mixes words in their place."""


class DecodingState(NamedTuple):
    """Where a search stands: N = B * K rows of recurrent states, sentence-major, over the memory of B sentences."""

    memories: Memories
    states: States

    @property
    def rows(self) -> int:
        """N"""
        return len(self.states[0][0])

    def reorder(self, rows: Tensor) -> DecodingState:
        """The states of rows [N'] in this order; the memory stays, so a row must stay in its sentence."""
        return self._replace(states=tuple(reorder_state(state, rows) for state in self.states))

    def expand(self, k: int) -> DecodingState:
        """Each row k times, one below the other; the memory is not copied."""
        rows = torch.arange(self.rows, device=self.states[0][0].device)
        return self.reorder(rows.repeat_interleave(k))

    def keep(self, sentences: Tensor) -> DecodingState:
        """Only the sentences [B'], with all their rows; the others leave the batch."""
        first = next(memory for memory in self.memories if memory is not None)
        beams = self.rows // first[0].size(0)
        rows = sentences.unsqueeze(1) * beams + torch.arange(beams, device=sentences.device)
        memories = tuple(None if memory is None else memory.keep(sentences) for memory in self.memories)
        return self._replace(memories=memories).reorder(rows.flatten())


def drop_padding_columns(ids: Tensor) -> Tensor:
    """ids [B, T] without the columns that are padding in all rows; the first column is always kept.

    A graph has its sizes from elsewhere than values, so all columns stay in it.
    """
    if traced():
        return ids
    used = (ids != PAD).any(0)
    used[0] = True
    return ids if bool(used.all()) else ids[:, used]


def loss_weights(target: Tensor, *, normalization: Normalization) -> Tensor:
    """Weights [B, T] in fp64 with which the losses of the words of target [B, T] add up to the training loss.

    `token`: mean over the target words of the batch. `sentence`, and `batch`, which differ where an update has several
    batches: mean over sentences of each sentence's mean over its words, as in the original system. Raises ConfigError
    for another normalization.
    """
    words = (target != PAD).double()
    if normalization == "token":
        return words / words.sum().clamp(min=1)
    if normalization in ("sentence", "batch"):
        return words / words.sum(1, keepdim=True).clamp(min=1) / len(target)
    raise ConfigError(refused("normalization", normalization, ("batch", "sentence", "token"), problem="is not known"))


def _at_words(values: Tensor, words: Tensor, *, like: Tensor) -> Tensor:
    """`values` [N] at the places `words` [N] of ids [B, T], 0 at the others: [B, T]."""
    return values.new_zeros(like.numel()).index_copy(0, words, values).view(like.shape)


class Seq2Seq(nn.Module):
    """Everything the trainer, the search and the evaluation call; the parts make the architecture.

    Shapes: B sentences, S and T padded source and target lengths, E embedding, V target vocabulary.
    Ids are int64, sentences end with the end symbol and are padded with 0 at the right. Dropout is
    active in train() mode, as in any torch module.
    """

    Options: ClassVar[type] = NoOptions
    """Frozen dataclass of the architecture's options, against which `model.architecture_options` is checked."""
    tasks: ClassVar[tuple[str, ...]] = ("translation",)
    """What it is trained for, as the key `task` has it."""
    variable_scope: str = ""
    """First part of the names of this model's variables in the original system; see `nmt.zero.weights`."""
    int8_encoder: ClassVar[bool] = False
    """Whether with int8 the matrices of the encoder are converted, too, not only those that each step reads."""
    stored: Stored | None = None
    """Of a model from an exported folder: how its weights were stored there."""

    def __init__(
        self,
        embeddings: Embeddings,
        *,
        encoder: Encoder,
        initial_states: InitialStates,
        decoder: Decoder,
        readout: Readout,
        dropout: float,
        init_range: float,
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.encoder = encoder
        self.initial_states = initial_states
        self.decoder = decoder
        self.readout = readout
        self.source_dropout = Dropout(dropout)
        self.target_dropout = Dropout(dropout)
        initialize(self, init_range)

    @classmethod
    def check(cls, config: ModelConfig) -> list[tuple[str, str]]:
        """What does not fit together in the section `model`, as (key, message)."""
        return []

    @classmethod
    def outline(cls, config: ModelConfig) -> Outline:
        """Layers, width and units that the section `model` describes."""
        return Outline(config.encoder_layers, config.decoder_layers, config.hidden_size, config.describe_units())

    @classmethod
    def from_config(cls, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> Seq2Seq:
        """Build the model that the section `model` describes, freshly initialised."""
        raise NotImplementedError

    @property
    def source_vocab_size(self) -> int:
        return self.embeddings.source_vocab_size

    @property
    def target_vocab_size(self) -> int:
        return self.embeddings.target_vocab_size

    @property
    def tables(self) -> list[nn.Parameter]:
        """Those of words, and what belongs to them: their rows are words' own."""
        return list(self.embeddings.parameters())

    def encode(self, source: Tensor, *, tight: bool = False, begun: Tensor | None = None) -> Encoded:
        """Encode source [B, S]; columns of only padding are dropped, which leaves S'.

        `tight`: there are none; else a GPU must be queried. `begun`: words [B] read where the decoder begins (all).
        """
        source = source if tight else drop_padding_columns(source)
        mask = source != PAD
        more = {} if begun is None else {"begun": begun}
        memory, last = self.encoder(self.source_dropout(self.embeddings.embed_source(source)), mask, **more)
        return Encoded(memory, mask, self.decoder.unpack_states(self.initial_states(last)))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits [B, T', V] of each target word given those before it; T' without columns of padding alone."""
        decoded = self.decoder.sequence(*self.decoder_inputs(source, drop_padding_columns(target)))
        return self.embeddings.logits(self.readout(*decoded))

    @torch.no_grad()
    def token_losses(
        self, source: Tensor, target: Tensor, *, label_smoothing: float = 0.0, words: Tensor | None = None
    ) -> Tensor:
        """Losses [B, T'] of the target words in nats, 0 at padding, without a gradient.

        `words`: see `weighted_loss`.
        """
        weights = torch.ones(target.shape, device=target.device)
        return self.weighted_loss(source, target, weights=weights, label_smoothing=label_smoothing, words=words).losses

    def weighted_loss(
        self,
        source: Tensor,
        target: Tensor,
        *,
        weights: Tensor,
        label_smoothing: float = 0.0,
        words: Tensor | None = None,
    ) -> Losses:
        """The sum of the losses of the target words times `weights` [B, T], a scalar to differentiate; losses and nll.

        Both are [B, T'] as in `token_losses`; nll are the negative log-likelihoods without smoothing.

        Readout and softmax, the largest part of the work, run on the words only, and the logits are never all in
        memory. `words` [N] are the places of the words in `target`, counted row by row, of ids without a column of only
        padding, as in batches of a corpus. Without them a GPU must be queried for the places, which waits for it.
        """
        tight = words is not None
        if words is None:
            weights = weights[target != PAD]  # [N]
            target = drop_padding_columns(target)
            words = (target != PAD).flatten().nonzero().squeeze(1)  # [N]
        else:
            weights = weights.flatten().index_select(0, words)
        found = linear_cross_entropy(
            self.word_features(source, target, words=words, tight=tight),
            self.embeddings.softmax_table,
            targets=target.flatten().index_select(0, words),
            weights=weights,
            label_smoothing=label_smoothing,
        )
        losses = _at_words(found.losses, words, like=target)
        nll = losses if found.nll is found.losses else _at_words(found.nll, words, like=target)
        return Losses(found.total, losses, nll)

    def word_features(
        self, source: Tensor, target: Tensor, *, words: Tensor, tight: bool = True, visible: Tensor | None = None
    ) -> Tensor:
        """What the softmax table is compared with for the words at the places `words` [N] of the target: [N, E].

        `tight`: see `encode`. `visible` [B, T, S]: what of the source each word of the target may depend on, the same
        or more from word to word; by default all.
        """
        decoded = self.decoder.sequence(*self.decoder_inputs(source, target, tight=tight, visible=visible))
        return self.read_words(decoded, words, length=target.size(1))

    def attending_word_features(self, source: Tensor, target: Tensor, *, words: Tensor) -> tuple[Tensor, Weights]:
        """The same, tight, and the weights [B, G, T, S] of each attention, with gradients."""
        decoded, weights = self.decoder.attending_sequence(*self.decoder_inputs(source, target, tight=True))
        return self.read_words(decoded, words, length=target.size(1)), weights

    def read_words(self, decoded: Pieces, words: Tensor, *, length: int) -> Tensor:
        """What the softmax table is compared with, of the words at the places `words` [N] of [B, length]: [N, E]."""
        pieces = [piece.flatten(0, 1).index_select(0, words) for piece in decoded]
        with among(words, length=length):
            return self.readout(*pieces)

    def loss(
        self,
        source: Tensor,
        target: Tensor,
        *,
        label_smoothing: float = 0.0,
        normalization: Normalization = "token",
    ) -> Tensor:
        """Training loss, a scalar in nats; see `loss_weights`."""
        weights = loss_weights(target, normalization=normalization)
        return self.weighted_loss(source, target, weights=weights, label_smoothing=label_smoothing).total

    def score(self, source: Tensor, target: Tensor) -> Tensor:
        """Mean negative log-probability [B] of the words of each target; lower is better."""
        return self.token_losses(source, target).sum(1) / (target != PAD).sum(1).clamp(min=1)

    @property
    def tells_attention(self) -> bool:
        """Whether `attention` and `attending_step` are available; a plugin's decoder may have neither."""
        return self.decoder.tells_attention

    @torch.no_grad()
    def attention(self, source: Tensor, target: Tensor) -> SourceAttention:
        """The attention of each word of target [B, T] to source [B, S], given the words before it.

        Columns of only padding are left out, which leaves T' and S'. Weights at padding of the target have no meaning.
        Raises ConfigError for a plugin's decoder that does not report them.
        """
        inputs = self.decoder_inputs(source, drop_padding_columns(target))
        weights = self.decoder.attending_sequence(*inputs)[1]
        return SourceAttention(weights, torch.cat(weights, 1).mean(1))

    def start(self, source: Tensor) -> DecodingState:
        """The state before the first word, one row for each sentence of source [B, S]."""
        memory, mask, initial = self.encode(source)
        return DecodingState(self.decoder.prepare(memory, mask), initial)

    def step(
        self, tokens: Tensor | None, state: DecodingState, words: OutputWords | None = None
    ) -> tuple[Tensor, DecodingState]:
        """Logits [N, V] of the next word after `tokens` [N], the last words of the N rows of `state`.

        None in place of the tokens is the start of the sentences: the decoder reads a zero vector.
        Among `words` only, if there are any [N, U]; then tokens are places in them.
        """
        features, state = self.features(tokens if tokens is None or words is None else words.ids[tokens], state)
        return self.logits(features, words), state

    def best(
        self, tokens: Tensor | None, state: DecodingState, choice: Choice, words: OutputWords | None = None
    ) -> tuple[BestWords, DecodingState]:
        """Like `step`, but with the result of `choice` instead of the logits; with `words`, results are places among
        them."""
        if words is None:
            features, state = self.features(tokens, state)
            return best_of_product(features, self.embeddings.softmax_table, choice), state
        features, state = self.features(None if tokens is None else words.ids[tokens], state)
        return words.best(features, choice), state

    def attending_step(
        self, tokens: Tensor | None, state: DecodingState, words: OutputWords | None = None
    ) -> tuple[Tensor, Tensor, DecodingState]:
        """Like `step`, with the attention [N, S'] used to predict the next word between logits and state.

        It is the mean over all heads of all attentions, and adds up to 1.
        """
        ids = tokens if tokens is None or words is None else words.ids[tokens]
        features, weights, state = self.attending_features(ids, state)
        return self.logits(features, words), weights, state

    def among(self, ids: Tensor, forbidden: Tensor) -> OutputWords:
        """The words `ids` [U]; `forbidden` [B, U] marks those that a sentence must not use."""
        return OutputWords(ids, self.embeddings.softmax_table.index_select(0, ids), forbidden)

    def features(self, tokens: Tensor | None, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """As `step`, but what the output layer reads [N, E] instead of the logits."""
        x = self.embeddings.zeros(state.rows) if tokens is None else self.embeddings.embed_target(tokens)
        pieces, states = self.decoder.step(self.target_dropout(x), state.memories, state.states)
        return self.readout(*pieces), state._replace(states=states)

    def attending_features(self, tokens: Tensor | None, state: DecodingState) -> tuple[Tensor, Tensor, DecodingState]:
        """As `attending_step`, but what the output layer reads [N, E] instead of the logits."""
        pieces, weights, state = self.attending(tokens, state)
        return self.readout(*pieces), torch.cat(weights, 1).mean(1).flatten(0, 1), state

    def attending(self, tokens: Tensor | None, state: DecodingState) -> tuple[Pieces, Weights, DecodingState]:
        """As `attending_step`, but what the readout takes, and the weights [B, G, K, S'] of each attention."""
        x = self.embeddings.zeros(state.rows) if tokens is None else self.embeddings.embed_target(tokens)
        pieces, states, weights = self.decoder.attending_step(self.target_dropout(x), state.memories, state.states)
        return pieces, weights, state._replace(states=states)

    def logits(self, features: Tensor, words: OutputWords | None = None) -> Tensor:
        """Of `features` [N, E], [N, V], or [N, U] of words."""
        return self.embeddings.logits(features) if words is None else words.logits(features)

    def decoder_inputs(
        self, source: Tensor, target: Tensor, *, tight: bool = False, visible: Tensor | None = None
    ) -> tuple[Tensor, Memories, States, Tensor]:
        """What a decoder runs over: the words before each target word, memories, first states, and where words are."""
        memory, mask, initial = self.encode(
            source, tight=tight, begun=None if visible is None else visible[:, 0].sum(1)
        )
        mask = mask if visible is None else visible
        x = F.pad(self.embeddings.embed_target(target[:, :-1]), (0, 0, 1, 0))  # the first input is zero
        return self.target_dropout(x), self.decoder.prepare(memory, mask), initial, target != PAD
