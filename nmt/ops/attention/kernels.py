"""The Triton kernels of additive attention: nothing of the size queries x source x width is ever stored.

Forward, and the gradients of the query, belong into a loop over target positions: a program has one query of one
head and the whole source row; FACTOR times the query is added to the keys. The gradients of keys and weight are
sums over all queries: they are formed once, when the loop is over, by programs that keep their part of the keys in
registers and run through the queries.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nmt.ops.triton_tools import sigmoid

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803 - inside kernels constants are in capitals, and sizes as in their shapes


@triton.jit(do_not_specialize=["Q", "S", "sp_b", "sa_b", "sa_g", "sa_q"])
def attention_forward_kernel(
    p_query, p_keys, p_values, p_penalty, p_weight, p_context, p_weights,
    sq_b, sq_g, sq_q, sk_b, sk_g, sk_s, sv_b, sv_g, sv_s, sp_b, sc_b, sc_q, sa_b, sa_g, sa_q,
    G, Q, S, W, V,
    FACTOR: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_W: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """query [B, G, Q, W], keys [B, G, S, W], values [B, G, S, V], penalty [B, S] -> context [B, Q, G * V] and
    weights [B, G, Q, S]; grid (B * G * Q), the queries of a sentence side by side so that they share the caches."""
    i_q = (tl.program_id(0) % Q).to(tl.int64)
    i_g = (tl.program_id(0) // Q) % G
    i_b = (tl.program_id(0) // (Q * G)).to(tl.int64)
    s = tl.arange(0, BLOCK_S)
    real = s < S
    p_query += i_b * sq_b + i_g * sq_g + i_q * sq_q
    p_keys += i_b * sk_b + i_g * sk_g
    p_values += i_b * sv_b + i_g * sv_g
    score = tl.load(p_penalty + i_b * sp_b + s, mask=real, other=float("-inf"))
    for w0 in tl.range(0, W, BLOCK_W, num_stages=3):
        w = w0 + tl.arange(0, BLOCK_W)
        query = FACTOR * tl.load(p_query + w, mask=w < W, other=0.0).to(tl.float32)
        weight = 2.0 * tl.load(p_weight + w, mask=w < W, other=0.0).to(tl.float32)
        within = real[:, None] & (w < W)[None, :]
        keys = tl.load(p_keys + s[:, None] * sk_s + w[None, :], mask=within, other=0.0).to(tl.float32)
        score += tl.sum(sigmoid(keys + query[None, :]) * weight[None, :], 1)
    weights = tl.exp2((score - tl.max(score, 0)) * 1.4426950408889634)
    weights = weights / tl.sum(weights, 0)
    tl.store(p_weights + i_b * sa_b + i_g * sa_g + i_q * sa_q + s, weights, mask=real)
    for v0 in tl.range(0, V, BLOCK_V, num_stages=3):
        v = v0 + tl.arange(0, BLOCK_V)
        within = real[:, None] & (v < V)[None, :]
        values = tl.load(p_values + s[:, None] * sv_s + v[None, :], mask=within, other=0.0).to(tl.float32)
        context = tl.sum(weights[:, None] * values, 0)
        p = p_context + i_b * sc_b + i_q * sc_q + i_g * V + v
        tl.store(p, context.to(p_context.dtype.element_ty), mask=v < V)


@triton.jit(do_not_specialize=["Q", "S", "sa_b", "sa_g", "sa_q", "sd_b", "sd_g", "sd_q"])
def attention_query_backward_kernel(
    p_query, p_keys, p_values, p_weight, p_weights, p_dcontext, p_dweights, p_dscores, p_dquery,
    sq_b, sq_g, sq_q, sk_b, sk_g, sk_s, sv_b, sv_g, sv_s, sc_b, sc_q, sa_b, sa_g, sa_q, sd_b, sd_g, sd_q,
    sdq_b, sdq_g, sdq_q,
    G, Q, S, W, V,
    FACTOR: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_W: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """Gradients of scores [B, G, Q, S] and query; dweights, contiguous, may be None. Grid as forward."""
    i_q = (tl.program_id(0) % Q).to(tl.int64)
    i_g = (tl.program_id(0) // Q) % G
    i_b = (tl.program_id(0) // (Q * G)).to(tl.int64)
    s = tl.arange(0, BLOCK_S)
    real = s < S
    p_query += i_b * sq_b + i_g * sq_g + i_q * sq_q
    p_dquery += i_b * sdq_b + i_g * sdq_g + i_q * sdq_q
    p_keys += i_b * sk_b + i_g * sk_g
    p_values += i_b * sv_b + i_g * sv_g
    p_dcontext += i_b * sc_b + i_q * sc_q + i_g * V
    if p_dweights is None:
        d_weights = tl.zeros([BLOCK_S], tl.float32)
    else:
        d_weights = tl.load(p_dweights + ((i_b * G + i_g) * Q + i_q) * S + s, mask=real, other=0.0)
    for v0 in tl.range(0, V, BLOCK_V, num_stages=3):
        v = v0 + tl.arange(0, BLOCK_V)
        d_context = tl.load(p_dcontext + v, mask=v < V, other=0.0).to(tl.float32)
        within = real[:, None] & (v < V)[None, :]
        values = tl.load(p_values + s[:, None] * sv_s + v[None, :], mask=within, other=0.0).to(tl.float32)
        d_weights += tl.sum(values * d_context[None, :], 1)
    weights = tl.load(p_weights + i_b * sa_b + i_g * sa_g + i_q * sa_q + s, mask=real, other=0.0)
    d_scores = weights * (d_weights - tl.sum(weights * d_weights, 0))
    tl.store(p_dscores + i_b * sd_b + i_g * sd_g + i_q * sd_q + s, d_scores, mask=real)
    for w0 in tl.range(0, W, BLOCK_W, num_stages=3):
        w = w0 + tl.arange(0, BLOCK_W)
        query = FACTOR * tl.load(p_query + w, mask=w < W, other=0.0).to(tl.float32)
        weight = 2.0 * tl.load(p_weight + w, mask=w < W, other=0.0).to(tl.float32)
        within = real[:, None] & (w < W)[None, :]
        keys = tl.load(p_keys + s[:, None] * sk_s + w[None, :], mask=within, other=0.0).to(tl.float32)
        hidden = sigmoid(keys + query[None, :])
        d_query = tl.sum(d_scores[:, None] * (hidden * (1.0 - hidden)), 0) * weight * FACTOR
        tl.store(p_dquery + w, d_query.to(p_dquery.dtype.element_ty), mask=w < W)


@triton.jit(do_not_specialize=["Q", "S", "sa_b", "sa_g", "sa_q"])
def attention_memory_backward_kernel(
    p_query, p_keys, p_weight, p_dscores, p_dkeys, p_dweight,
    sq_b, sq_g, sq_q, sk_b, sk_g, sk_s, sa_b, sa_g, sa_q,
    G, Q, S, W,
    FACTOR: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Gradients of the keys, contiguous, and parts [B * G, blocks of S, W] of that of the weight, of all queries;
    dscores [B, G, Q, S]; grid (B * G, blocks of S, blocks of W)."""
    i_g = tl.program_id(0) % G
    i_b = (tl.program_id(0) // G).to(tl.int64)
    s = tl.program_id(1) * BLOCK_S + tl.arange(0, BLOCK_S)
    w = tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W)
    within = (s < S)[:, None] & (w < W)[None, :]
    p_query += i_b * sq_b + i_g * sq_g
    p_dscores += i_b * sa_b + i_g * sa_g
    sq_q = tl.cast(sq_q, tl.int64)  # in a loop over time, where a step is a whole batch
    sa_q = tl.cast(sa_q, tl.int64)
    p = p_keys + i_b * sk_b + i_g * sk_g + s[:, None] * sk_s + w[None, :]
    keys = tl.load(p, mask=within, other=0.0).to(tl.float32)
    d_keys = tl.zeros([BLOCK_S, BLOCK_W], tl.float32)
    d_weight = tl.zeros([BLOCK_S, BLOCK_W], tl.float32)
    for i_q in tl.range(0, Q, num_stages=4):
        query = FACTOR * tl.load(p_query + i_q * sq_q + w, mask=w < W, other=0.0).to(tl.float32)
        d_scores = tl.load(p_dscores + i_q * sa_q + s, mask=s < S, other=0.0)
        hidden = sigmoid(keys + query[None, :])
        d_keys += d_scores[:, None] * (hidden * (1.0 - hidden))
        d_weight += d_scores[:, None] * (2.0 * hidden - 1.0)  # the scores' gradients of a query sum to zero
    weight = 2.0 * tl.load(p_weight + w, mask=w < W, other=0.0).to(tl.float32)
    i_row = tl.program_id(0).to(tl.int64)
    p = p_dkeys + (i_row * S + s[:, None]) * W + w[None, :]
    tl.store(p, (d_keys * weight[None, :]).to(p_dkeys.dtype.element_ty), mask=within)
    p = p_dweight + (i_row * tl.num_programs(1) + tl.program_id(1)) * W + w
    tl.store(p, tl.sum(d_weight, 0), mask=w < W)
