"""Marian's model in numpy, in float64, written from its equations: what the models of nmt are compared with."""

from __future__ import annotations

import math

import numpy as np

from nmt.marian.foreign import Foreign

Array = np.ndarray


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


class Reference:
    """One sentence at a time; ids are the model's own."""

    def __init__(self, foreign: Foreign) -> None:
        self.shape, self.form = foreign.shape, foreign.form
        self.epsilon = 1e-6 if foreign.form == "marian" else 1e-5
        self.p = {name: foreign.weights.array(name).astype(np.float64) for name in foreign.weights.values}

    def positions(self, count: int) -> Array:
        half = self.shape.width // 2
        last = half - 1 if self.form == "marian" else half
        angles = np.arange(count)[:, None] * 10000.0 ** (-np.arange(half) / last)
        return np.concatenate([np.sin(angles), np.cos(angles)], 1)

    def product(self, x: Array, name: str) -> Array:
        return x @ self.p[name.format("W")] + self.p[name.format("b")]

    def norm(self, x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self.epsilon)
        return scaled * self.p[f"{name}_ln_scale"] + self.p[f"{name}_ln_bias"]

    def attend(self, name: str, x: Array, memory: Array, *, causal: bool) -> Array:
        heads = self.shape.heads

        def split(y: Array) -> Array:
            return y.reshape(len(y), heads, -1).transpose(1, 0, 2)

        q, k, v = (
            split(self.product(x, f"{name}_{{}}q")),
            *(split(self.product(memory, f"{name}_{{}}{c}")) for c in "kv"),
        )
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        if causal:
            scores = np.where(np.tri(len(x), dtype=bool), scores, -1e8)
        found = (softmax(scores) @ v).transpose(1, 0, 2).reshape(len(x), -1)
        return self.norm(x + self.product(found, f"{name}_{{}}o"), f"{name}_Wo")

    def feed_forward(self, name: str, x: Array) -> Array:
        inner = self.product(x, f"{name}_{{}}1")
        inner = {"relu": np.maximum(inner, 0), "swish": inner * sigmoid(inner)}[self.shape.activation]
        return self.norm(x + self.product(inner, f"{name}_{{}}2"), f"{name}_ffn")

    def unit(self, name: str, x: Array) -> Array:
        gates, candidates = sigmoid(self.product(x, f"{name}_{{}}f")), x @ self.p[f"{name}_W"]
        state, out = np.zeros(x.shape[1]), []
        for gate, candidate in zip(gates, candidates, strict=True):
            state = gate * state + (1 - gate) * candidate
            out.append(np.maximum(state, 0))
        return self.norm(x + np.array(out), f"{name}_ffn")

    def logits(self, source: Array, target: Array) -> Array:
        """Of each word of target [T], given those before it and source [S], which ends in the end symbol: [T, V]."""
        source_table, target_table, output = (self.p[name] for name in self.shape.tables)
        x = source_table[source] * math.sqrt(self.shape.width) + self.positions(len(source))
        for i in range(1, self.shape.encoder_layers + 1):
            x = self.attend(f"encoder_l{i}_self", x, x, causal=False)
            x = self.feed_forward(f"encoder_l{i}_ffn", x)
        memory = x
        before = np.concatenate([np.zeros((1, self.shape.width)), target_table[target[:-1]]])
        y = before * math.sqrt(self.shape.width) + self.positions(len(target))
        for i in range(1, self.shape.decoder_layers + 1):
            name = f"decoder_l{i}"
            y = self.unit(f"{name}_rnn", y) if self.shape.unit else self.attend(f"{name}_self", y, y, causal=True)
            y = self.attend(f"{name}_context", y, memory, causal=False)
            y = self.feed_forward(f"{name}_ffn", y)
        return y @ output.T + self.p["decoder_ff_logit_out_b"]
