"""Translation in eager PyTorch, of the modules of torch.nn: what a model of nmt is compared with in training.

`eager_model` makes the peer of a configuration: blocks of self-attention for the architecture `transformer`, else an
RNNsearch of nn.GRU or nn.LSTM with a conditional cell. Widths, layers, shared tables and dropout are the
configuration's. Attention weights are not dropped, because then PyTorch has no fast kernel.

As a program, one case of bench_train: updates with the batches of a configuration, bf16 by autocast, Adam in one
kernel, clipping. `keep`: glibc keeps large blocks, as in nmt-train; `as-is`: as a user's program runs.

    python scripts/eager_model.py CONFIG.yaml RUN WARM_UP UPDATES keep|as-is
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
import torch.nn.functional as F
from bench_peer import USERS_ENVIRONMENT
from bench_train_case import read
from torch import Tensor, nn

from nmt.system import keep_large_blocks

PAD = 0


class EagerModel(nn.Module):
    """Tables of embeddings, dropout, and the output layer for all words of a batch at once."""

    def __init__(self, source_words: int, target_words: int, *, width: int, tie: str, dropout: float) -> None:
        super().__init__()
        self.source = nn.Embedding(source_words, width)
        self.target = self.source if tie == "all" else nn.Embedding(target_words, width)
        self.output = nn.Linear(width, target_words, bias=False)
        if tie != "none":
            self.output.weight = self.target.weight
        self.dropout = nn.Dropout(dropout)

    def features(self, source: Tensor, before: Tensor) -> Tensor:
        """What the output layer reads [B, T, E], of the ids source [B, S] and the words before each word [B, T]."""
        raise NotImplementedError

    def loss(self, source: Tensor, target: Tensor, *, label_smoothing: float) -> Tensor:
        """The mean over the words of the target [B, T]."""
        logits = self.output(self.features(source, F.pad(target[:, :-1], (1, 0))))
        return F.cross_entropy(
            logits.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=label_smoothing
        )


class EagerBlocks(EagerModel):
    """nn.TransformerEncoder and nn.TransformerDecoder, normalised before each part, with sinusoids."""

    def __init__(self, source_words: int, target_words: int, model: Any) -> None:
        width, options = model.embedding_size, model.architecture_options
        super().__init__(source_words, target_words, width=width, tie=model.tie_embeddings, dropout=model.dropout)
        given: dict[str, Any] = {"dropout": model.dropout, "batch_first": True, "norm_first": True}
        layer = nn.TransformerEncoderLayer(width, options["heads"], options["encoder_feed_forward"], **given)
        self.encoder = nn.TransformerEncoder(
            layer, options["encoder_layers"], nn.LayerNorm(width), enable_nested_tensor=False
        )
        other = nn.TransformerDecoderLayer(width, options["heads"], options["decoder_feed_forward"], **given)
        self.decoder = nn.TransformerDecoder(other, options["decoder_layers"], nn.LayerNorm(width))
        for module in self.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
        rates = torch.exp(torch.arange(width // 2) * (-math.log(10_000) / (width // 2)))
        angles = torch.arange(512)[:, None] * rates
        self.register_buffer("places", torch.cat([angles.sin(), angles.cos()], 1), persistent=False)

    def features(self, source: Tensor, before: Tensor) -> Tensor:
        padding, mask = source == PAD, nn.Transformer.generate_square_subsequent_mask(before.size(1))
        memory = self.encoder(self._words(self.source(source)), src_key_padding_mask=padding)
        words = self._words(self.target(before))
        return self.decoder(words, memory, tgt_mask=mask, tgt_is_causal=True, memory_key_padding_mask=padding)

    def _words(self, embedded: Tensor) -> Tensor:
        places: Tensor = self.get_buffer("places")[: embedded.size(1)]
        return self.dropout(embedded * math.sqrt(embedded.size(-1)) + places)


class EagerRNN(EagerModel):
    """An encoder in both directions, additive attention, two cells a step in a loop over the target."""

    def __init__(self, source_words: int, target_words: int, model: Any) -> None:
        width, hidden, each = model.embedding_size, model.hidden_size, model.encoder_hidden_size or model.hidden_size
        super().__init__(source_words, target_words, width=width, tie=model.tie_embeddings, dropout=model.dropout)
        is_lstm = model.cell == "lstm"
        layer, cell = (nn.LSTM, nn.LSTMCell) if is_lstm else (nn.GRU, nn.GRUCell)
        self.is_lstm = is_lstm
        self.encoder = layer(width, each, batch_first=True, bidirectional=True)
        self.first = nn.Linear(each, hidden)
        self.lower, self.higher = cell(width, hidden), cell(2 * each, hidden)
        self.query, self.keys = nn.Linear(hidden, hidden), nn.Linear(2 * each, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)
        self.readout = nn.Linear(hidden + width + 2 * each, width)

    def features(self, source: Tensor, before: Tensor) -> Tensor:
        memory = self.encoder(self.dropout(self.source(source)))[0]
        keys, padding = self.keys(memory), source == PAD
        words = self.dropout(self.target(before))
        h = torch.tanh(self.first(memory[:, 0, memory.size(-1) // 2 :]))
        state = (h, torch.zeros_like(h)) if self.is_lstm else h
        states, contexts = [], []
        for word in words.unbind(1):
            state = self.lower(word, state)
            query = self.query(state[0] if self.is_lstm else state)
            scores = self.score(torch.tanh(query.unsqueeze(1) + keys)).squeeze(-1)
            weights = scores.masked_fill(padding, -math.inf).softmax(-1)
            context = torch.bmm(weights.unsqueeze(1).to(memory.dtype), memory).squeeze(1)
            state = self.higher(context, state)
            states.append(state[0] if self.is_lstm else state)
            contexts.append(context)
        joined = torch.cat([torch.stack(states, 1), words, torch.stack(contexts, 1)], -1)
        return self.dropout(torch.tanh(self.readout(joined)))


def eager_model(source_words: int, target_words: int, model: Any) -> EagerModel:
    """The peer of the section `model` of a configuration, for vocabularies of these sizes."""
    kind = EagerBlocks if model.architecture == "transformer" else EagerRNN
    return kind(source_words, target_words, model)


def measure(config_file: str, run: str, *, warm_up: int, updates: int) -> dict[str, Any]:
    """The fields of bench_train_case that are not about parts of nmt."""
    config, tokenizer, groups = read(config_file, run)
    torch.manual_seed(1)
    model = eager_model(tokenizer.source_size, tokenizer.target_size, config.model)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.training.lr, fused=True)
    casts: Callable[[], Any] = contextlib.nullcontext
    if config.training.precision == "bf16":
        casts = lambda: torch.autocast("cpu", torch.bfloat16)  # noqa: E731
    rates, tokens = [], 0
    mark = time.process_time()
    for number in range(warm_up + updates):
        if number == warm_up:
            mark = time.process_time()
        started = time.perf_counter()
        group = next(groups)
        optimizer.zero_grad(set_to_none=True)
        for batch in group.batches:
            with casts():
                loss = model.loss(batch.source, batch.target, label_smoothing=config.training.label_smoothing)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.training.clip_norm)
        optimizer.step()
        if number >= warm_up:
            tokens += group.target_tokens
            rates.append(group.target_tokens / (time.perf_counter() - started))
    return {
        "target_tokens_per_cpu_second": tokens / (time.process_time() - mark),
        "target_tokens_per_second": statistics.median(rates),
        "target_tokens": tokens / updates,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "precision": config.training.precision,
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    os.environ.clear()  # of what nmt sets for itself
    os.environ.update(USERS_ENVIRONMENT)
    if sys.argv[5] == "keep":
        keep_large_blocks()
    print(json.dumps(measure(sys.argv[1], sys.argv[2], warm_up=int(sys.argv[3]), updates=int(sys.argv[4]))))
