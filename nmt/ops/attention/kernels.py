"""The Triton kernels of additive attention: no tensor of size queries x source x width is ever stored.

The forward pass and the gradients of the query run in a loop over target positions: a program has one query of one
head and the whole source row; FACTOR times the query is added to the keys. The gradients of keys and weight are
sums over all queries: they are computed once, after the loop, by programs that keep their part of the keys in
registers and iterate over the queries.

B sentences, G heads, Q queries of each sentence in rows N = B * Q, S source positions; W and V are the widths of keys
and values in a head. Heads lie side by side in a row: query [N, G * W], context [N, G * V], weights [N, G * S].
"""

from __future__ import annotations

import triton
import triton.language as tl

from nmt.ops.triton_tools import LOG2_E, load_row, sigmoid, store_row

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803 - inside kernels constants are in capitals, and sizes as in their shapes


@triton.jit
def _own(G, Q):
    """Sentence, head and row of this program; the queries of a sentence are side by side and share the caches."""
    i_b = tl.program_id(0) // (Q * G)
    i_row = i_b * Q + tl.program_id(0) % Q
    return i_b.to(tl.int64), (tl.program_id(0) // Q) % G, i_row.to(tl.int64)


@triton.jit
def _tile(p, s, S, step, o, width):
    """Rows s, `step` apart, and columns o, fp32; zeros beyond S and width."""
    within = (s < S)[:, None] & (o < width)[None, :]
    return tl.load(p + s[:, None] * step + o[None, :], mask=within, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["Q", "S", "sp", "sa"])
def attention_forward_kernel(
    p_query, p_keys, p_values, p_penalty, p_weight, p_context, p_weights,
    sq, sk_b, sk_g, sk_s, sv_b, sv_g, sv_s, sp, sc, sa, G, Q, S, W, V,
    FACTOR: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_W: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """From query, keys [B, G, S, W], values [B, G, S, V], penalty [B, S] to context and weights; grid (B * G * Q)."""
    i_b, i_g, i_row = _own(G, Q)
    s = tl.arange(0, BLOCK_S)
    p_query += i_row * sq + i_g * W
    p_keys += i_b * sk_b + i_g * sk_g
    p_values += i_b * sv_b + i_g * sv_g
    p_context += i_row * sc + i_g * V
    score = tl.load(p_penalty + i_b * sp + s, mask=s < S, other=float("-inf"))
    for w0 in tl.range(0, W, BLOCK_W, num_stages=3):
        w = w0 + tl.arange(0, BLOCK_W)
        query = FACTOR * load_row(p_query, w, W)
        weight = 2.0 * load_row(p_weight, w, W)
        keys = _tile(p_keys, s, S, sk_s, w, W)
        score += tl.sum(sigmoid(keys + query[None, :]) * weight[None, :], 1)
    weights = tl.exp2((score - tl.max(score, 0)) * LOG2_E)
    weights = weights / tl.sum(weights, 0)
    store_row(p_weights + i_row * sa + i_g * S, weights, s, S)
    for v0 in tl.range(0, V, BLOCK_V, num_stages=3):
        v = v0 + tl.arange(0, BLOCK_V)
        store_row(p_context, tl.sum(weights[:, None] * _tile(p_values, s, S, sv_s, v, V), 0), v, V)


@triton.jit(do_not_specialize=["Q", "S", "sa", "sd"])
def attention_query_backward_kernel(
    p_query, p_keys, p_values, p_weight, p_weights, p_dcontext, p_dweights, p_dscores, p_dquery,
    sq, sk_b, sk_g, sk_s, sv_b, sv_g, sv_s, sc, sa, sd, sdq, G, Q, S, W, V,
    FACTOR: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_W: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """Gradients of scores, as the weights, and query; dweights, contiguous, may be None. Grid as forward."""
    i_b, i_g, i_row = _own(G, Q)
    s = tl.arange(0, BLOCK_S)
    p_query += i_row * sq + i_g * W
    p_dquery += i_row * sdq + i_g * W
    p_keys += i_b * sk_b + i_g * sk_g
    p_values += i_b * sv_b + i_g * sv_g
    p_dcontext += i_row * sc + i_g * V
    if p_dweights is None:
        d_weights = tl.zeros([BLOCK_S], tl.float32)
    else:
        d_weights = load_row(p_dweights + (i_row * G + i_g) * S, s, S)
    for v0 in tl.range(0, V, BLOCK_V, num_stages=3):
        v = v0 + tl.arange(0, BLOCK_V)
        d_weights += tl.sum(_tile(p_values, s, S, sv_s, v, V) * load_row(p_dcontext, v, V)[None, :], 1)
    weights = load_row(p_weights + i_row * sa + i_g * S, s, S)
    d_scores = weights * (d_weights - tl.sum(weights * d_weights, 0))
    store_row(p_dscores + i_row * sd + i_g * S, d_scores, s, S)
    for w0 in tl.range(0, W, BLOCK_W, num_stages=3):
        w = w0 + tl.arange(0, BLOCK_W)
        query = FACTOR * load_row(p_query, w, W)
        weight = 2.0 * load_row(p_weight, w, W)
        hidden = sigmoid(_tile(p_keys, s, S, sk_s, w, W) + query[None, :])
        d_query = tl.sum(d_scores[:, None] * (hidden * (1.0 - hidden)), 0) * weight * FACTOR
        store_row(p_dquery, d_query, w, W)


@triton.jit(do_not_specialize=["Q", "S", "sa_b", "sa_q"])
def attention_memory_backward_kernel(
    p_query, p_keys, p_weight, p_dscores, p_dkeys, p_dweight,
    sq_q, sq_b, sk_b, sk_g, sk_s, sa_q, sa_b, G, Q, S, W,
    FACTOR: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Over all queries, gradients of the keys, contiguous, and parts [B * G, blocks of S, W] of the weight's gradient;
    query [Q, B, G * W], dscores [Q, B, G * S]; grid (B * G, blocks of S, blocks of W)."""
    i_g = tl.program_id(0) % G
    i_b = (tl.program_id(0) // G).to(tl.int64)
    s = tl.program_id(1) * BLOCK_S + tl.arange(0, BLOCK_S)
    w = tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W)
    p_query += i_b * sq_b + i_g * W
    p_dscores += i_b * sa_b + i_g * S
    sq_q = tl.cast(sq_q, tl.int64)  # after a loop over time a query's stride is a whole batch
    sa_q = tl.cast(sa_q, tl.int64)
    keys = _tile(p_keys + i_b * sk_b + i_g * sk_g, s, S, sk_s, w, W)
    d_keys = tl.zeros([BLOCK_S, BLOCK_W], tl.float32)
    d_weight = tl.zeros([BLOCK_S, BLOCK_W], tl.float32)
    for i_q in tl.range(0, Q, num_stages=4):
        query = FACTOR * load_row(p_query + i_q * sq_q, w, W)
        d_scores = load_row(p_dscores + i_q * sa_q, s, S)
        hidden = sigmoid(keys + query[None, :])
        d_keys += d_scores[:, None] * (hidden * (1.0 - hidden))
        d_weight += d_scores[:, None] * (2.0 * hidden - 1.0)  # the scores' gradients of a query sum to zero
    weight = 2.0 * load_row(p_weight, w, W)
    i_row = tl.program_id(0).to(tl.int64)
    p = p_dkeys + (i_row * S + s[:, None]) * W + w[None, :]
    tl.store(p, (d_keys * weight[None, :]).to(p_dkeys.dtype.element_ty), mask=(s < S)[:, None] & (w < W)[None, :])
    store_row(p_dweight + (i_row * tl.num_programs(1) + tl.program_id(1)) * W, tl.sum(d_weight, 0), w, W)
