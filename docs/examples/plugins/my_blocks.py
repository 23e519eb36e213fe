"""An architecture: blocks of a recurrent unit, attention and a feed-forward layer (plugins.md)."""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from nmt.models import (
    Bidirectional,
    Decoder,
    DecoderLayer,
    Dropout,
    Embeddings,
    Encoder,
    EncoderOutput,
    InitialStates,
    Readout,
    Seq2Seq,
    cell_maker,
    initializer,
)
from nmt.registry import MODELS


class Memory(NamedTuple):  # what the decoder attends to, for B sentences of S words
    outputs: Tensor  # [B, S, E]
    padding: Tensor  # [B, S], true where there is no word

    def keep(self, sentences):  # only the sentences [B']
        return Memory(*(part.index_select(0, sentences) for part in self))


class FeedForward(nn.Sequential):
    def __init__(self, size, width):
        super().__init__(nn.LayerNorm(size), nn.Linear(size, width), nn.ReLU(), nn.Linear(width, size))


class BlockEncoder(Encoder):
    def __init__(self, make_cell, size, width):
        super().__init__()
        self.norm, self.rnn = nn.LayerNorm(size), Bidirectional(make_cell, size)
        self.output_size, self.last_size = size, self.rnn.last_size
        self.out, self.feed_forward = nn.Linear(self.rnn.output_size, size), FeedForward(size, width)

    def forward(self, x, mask):  # [B, S, E], [B, S]
        outputs, last = self.rnn(self.norm(x), mask)
        x = x + self.out(outputs)
        return EncoderOutput(x + self.feed_forward(x), last)


class Block(DecoderLayer):
    def __init__(self, make_cell, size, width, heads, dropout):
        super().__init__()
        self.norm, self.cell = nn.LayerNorm(size), make_cell(size)
        self.state_size = self.cell.state_size
        self.out, self.dropout = nn.Linear(self.cell.hidden_size, size), Dropout(dropout)
        self.query_norm = nn.LayerNorm(size)
        self.attention = nn.MultiheadAttention(size, heads, batch_first=True)
        self.feed_forward = FeedForward(size, width)

    def prepare(self, memory, mask):  # once for each source, [B, S, E] and [B, S]
        return Memory(memory, ~mask)

    def unpack_state(self, packed):  # [B, state_size] -> what the cell begins with
        return self.cell.unpack_state(packed)

    def above(self, x, hidden, memory):  # all that follows the cell: [B, Q, E], [B, Q, H] -> [B, Q, E]
        x = x + self.dropout(self.out(hidden))
        query = self.query_norm(x)
        found, _ = self.attention(
            query, memory.outputs, memory.outputs, key_padding_mask=memory.padding, need_weights=False
        )
        x = x + found
        return x + self.feed_forward(x)


class BlockDecoder(Decoder):
    def sequence(self, x, memories, states, mask):  # training: all words at once, [B, T, E]
        for layer, memory, state in zip(self.layers, memories, states, strict=True):
            hidden, _ = layer.cell.for_batch(x).layer(layer.norm(x), state, mask)
            x = layer.above(x, hidden, memory)
        return (x,)

    def step(self, x, memories, states):  # search: the next word of N rows, [N, E], the K of a sentence side by side
        after = []
        for layer, memory, state in zip(self.layers, memories, states, strict=True):
            state = layer.cell.search_step(layer.cell.project(layer.norm(x)), state)
            rows = x.view(len(memory.outputs), -1, x.size(-1))  # [B, K, E]
            hidden = layer.cell.output(state).view(*rows.shape[:2], -1)
            x = layer.above(rows, hidden, memory).view_as(x)
            after.append(state)
        return (x,), tuple(after)


@MODELS.register("blocks")
class Blocks(Seq2Seq):
    """Blocks of a recurrent unit, attention and a feed-forward layer, each added to its input."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        heads: int = 4
        """Heads of the attention; must divide embedding_size."""
        feed_forward: int = 512
        """Width of the feed-forward layers."""

    @classmethod
    def check(cls, config):
        heads = cls.Options(**config.architecture_options).heads
        if config.embedding_size % heads:
            return [("architecture_options.heads", f"{heads} must divide embedding_size ({config.embedding_size})")]
        return []

    @classmethod
    def from_config(cls, config, source_vocab_size, target_vocab_size):
        options, size = cls.Options(**config.architecture_options), config.embedding_size
        encoder = BlockEncoder(cell_maker(config, "encoder"), size, options.feed_forward)
        make_cell = cell_maker(config, "decoder")
        decoder = BlockDecoder(
            Block(make_cell, size, options.feed_forward, options.heads, config.dropout)
            for _ in range(config.decoder_layers)
        )
        return cls(
            Embeddings(source_vocab_size, target_vocab_size, size=size, tie=config.tie_embeddings),
            encoder=encoder,
            initial_states=InitialStates(encoder.last_size, decoder.state_sizes, tanh=False, layer_norm=False),
            decoder=decoder,
            readout=Readout(),
            dropout=config.dropout,
            init_range=initializer(config),
        )
