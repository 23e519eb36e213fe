"""Transformer-Tiny of docs/results.md, built of the modules of torch.nn, and its search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD, UNK, BOS, EOS = range(4)
LONGEST = 100
"""Pieces of a sentence: a longer source is cut, and a search ends there."""
POSITIONS = 512
"""Rows of the table of positions. More than LONGEST, because CTranslate2 cuts no source."""


class Transformer(nn.Module):
    """Pre-norm Transformer; one table of embeddings for source, target and output; sinusoidal positions."""

    positions: Tensor

    def __init__(
        self, pieces: int, *, width: int = 128, layers: int = 4, heads: int = 4, inner: int = 256, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(pieces, width)
        self.bias = nn.Parameter(torch.zeros(pieces))
        self.dropout = nn.Dropout(dropout)
        of_layer: dict[str, Any] = {"dim_feedforward": inner, "dropout": dropout}
        of_layer |= {"batch_first": True, "norm_first": True}
        encoder = nn.TransformerEncoderLayer(width, heads, **of_layer)
        self.encoder = nn.TransformerEncoder(encoder, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        decoder = nn.TransformerDecoderLayer(width, heads, **of_layer)
        self.decoder = nn.TransformerDecoder(decoder, layers, nn.LayerNorm(width))
        rates = torch.exp(torch.arange(width // 2) * -(math.log(10000) / (width // 2 - 1)))
        angles = torch.arange(POSITIONS)[:, None] * rates
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], 1))
        self._initialize()

    def _initialize(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        nn.init.normal_(self.embedding.weight, std=self.embedding.embedding_dim**-0.5)
        for module in self.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0  # of attention weights: with it, PyTorch has no fast kernel for CPUs

    def _embed(self, ids: Tensor) -> Tensor:
        scaled = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(scaled + self.positions[: ids.shape[1]])

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """States [B, S, D] of the source ids [B, S], and where these are padding [B, S]."""
        padding = source == PAD
        return self.encoder(self._embed(source), src_key_padding_mask=padding), padding

    def decode(self, prefix: Tensor, states: Tensor, padding: Tensor) -> Tensor:
        """States [B, T, D] after each token of the prefix [B, T], which begins with BOS; the others are of `encode`."""
        mask = nn.Transformer.generate_square_subsequent_mask(prefix.shape[1])
        return self.decoder(
            self._embed(prefix), states, tgt_mask=mask, tgt_is_causal=True, memory_key_padding_mask=padding
        )

    def logits(self, states: Tensor) -> Tensor:
        """Of all pieces [..., V], from decoder states [..., D]."""
        return F.linear(states, self.embedding.weight, self.bias)


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """Rows of ids as a tensor [B, T]."""
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


@torch.inference_mode()
def translate(model: Transformer, sources: Sequence[Sequence[int]], *, beam: int, batch: int = 64) -> list[list[int]]:
    """The translation of each source, ids without EOS, in the order of the sources; a beam of 1 is greedy search."""
    model.eval()
    order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
    found: list[list[int]] = [[] for _ in sources]
    for start in range(0, len(order), batch):
        places = order[start : start + batch]
        for place, ids in zip(places, _search(model, padded([sources[i] for i in places]), beam), strict=True):
            found[place] = ids
    return found


def _search(model: Transformer, source: Tensor, beam: int) -> list[list[int]]:
    """Beam search without a cache: a step computes the whole prefix again, which is slow and short.

    A sentence is finished when `beam` hypotheses are; the one with the largest mean log-probability is taken.
    """
    states, padding = model.encode(source)
    finished: list[list[tuple[float, list[int]]]] = [[] for _ in source]
    rows = list(range(len(source)))  # that are not finished
    prefixes = source.new_full((len(source), beam, 1), BOS)
    scores = torch.full((len(source), beam), -math.inf)
    scores[:, 0] = 0.0
    for length in range(1, LONGEST + 1):
        alive = [x[rows].repeat_interleave(beam, 0) for x in (states, padding)]
        last = model.decode(prefixes.flatten(0, 1), *alive)[:, -1]
        steps = model.logits(last).log_softmax(-1).unflatten(0, (len(rows), beam))
        size = steps.shape[-1]
        values, places = (scores[..., None] + steps).flatten(1).topk(2 * beam)
        pieces, parents = places % size, places // size
        candidates = torch.cat([_chosen(prefixes, parents), pieces[..., None]], -1)
        is_end = pieces == EOS
        for row, place in is_end[:, :beam].nonzero().tolist():
            finished[rows[row]].append((values[row, place].item() / length, candidates[row, place, 1:-1].tolist()))
        scores, kept = values.masked_fill(is_end, -math.inf).topk(beam)
        prefixes = _chosen(candidates, kept)
        left = [row for row, number in enumerate(rows) if len(finished[number]) < beam]
        rows, prefixes, scores = [rows[row] for row in left], prefixes[left], scores[left]
        if not rows:
            break
    for number, (best, *_) in zip(rows, prefixes.tolist(), strict=True):
        finished[number] = finished[number] or [(0.0, best[1:])]
    return [max(hypotheses)[1] for hypotheses in finished]


def _chosen(hypotheses: Tensor, places: Tensor) -> Tensor:
    """Of the hypotheses [B, N, T] of each sentence those at `places` [B, K]."""
    return hypotheses.gather(1, places[..., None].expand(-1, -1, hypotheses.shape[-1]))
