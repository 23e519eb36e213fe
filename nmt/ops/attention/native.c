/* Additive attention of N = B Q queries over S positions of B sentences, G heads of D = M / G values.

   score_s = 2 sum_j w_j sigmoid(2 q_j + k_sj) + penalty_s, where k is twice the key of the equation (see __init__.py);
   weights = softmax(score); context = sum_s weights_s v_s.
   keys and values [B, G, S, D], penalty [B, S]; query row n at n qn; weights and their gradients [N, G, S] fp32.

   sigmoid(2q + k) = 1 / (1 + e^-2q e^-k): the powers of the keys, fp32, are computed once for all queries and those of
   a query once for all positions, so that a product and a quotient replace an exponential. With 2q within +-LIMIT the
   power of a query is finite; if the power of a key is 0 or infinite, the absolute sum is more than 17, and the sigmoid
   is 0 or 1 to the last digit of a float in both ways. For larger queries exponentials of the sums are computed. */

#include "simd.h"

#define LIMIT 70.0f

/* Positions at padding, which the softmax would make exactly zero, are not computed. */
#define DEAD(penalty) ((penalty) < -1e7f)

/* powers[i] = e^-(scale x[i]) */
API void NAME(attention_powers)(const T *x, float scale, float *powers, i64 n, i64 threads) {
    PARALLEL_FOR(n)
    for (i64 start = 0; start < n; start += PARALLEL_FROM) {
        i64 end = n - start < PARALLEL_FROM ? n : start + PARALLEL_FROM;
#pragma omp simd
        for (i64 i = start; i < end; i++) powers[i] = fast_exp(-scale * LOAD(x[i]));
    }
}

/* The powers of 2q and whether they may be used. */
INLINE int NAME(query_powers)(const T *restrict q, float *restrict powers, i64 D) {
    float largest = 0.0f;
#pragma omp simd reduction(max : largest)
    for (i64 j = 0; j < D; j++) {
        float x = 2.0f * LOAD(q[j]), size = x < 0.0f ? -x : x;
        powers[j] = fast_exp(-x);
        largest = size > largest ? size : largest;
    }
    return largest <= LIMIT;
}

/* The scores a [S], of which `top` is the largest, become weights, their softmax: 0 at padding if any position is
   `live`, and NaN if `bad` is. out [D] = the sum of the values v [S, D] by these. */
INLINE void NAME(weighted_sum)(float *restrict a, float top, float bad, i64 live, const float *restrict pen,
                               const T *restrict v, T *restrict out, i64 S, i64 D) {
    float total = 0.0f, sum[D];
    for (i64 s = 0; s < S; s++) {
        a[s] = live && DEAD(pen[s]) ? 0.0f : fast_exp(a[s] - top) + bad;
        total += a[s];
    }
    for (i64 j = 0; j < D; j++) sum[j] = 0.0f;
    for (i64 s = 0; s < S; s++) {
        float share = a[s] /= total;
        if (share == 0.0f) continue;
#pragma omp simd
        for (i64 j = 0; j < D; j++) sum[j] += share * LOAD(v[s * D + j]);
    }
#pragma omp simd
    for (i64 j = 0; j < D; j++) out[j] = STORE(sum[j]);
}

API void NAME(attention_forward)(const T *query, i64 qn, const T *keys, const float *powers, const T *values,
                                 const float *penalty, const float *w, float *weights, i64 wn, T *context, i64 cn,
                                 i64 N, i64 Q, i64 G, i64 S, i64 D, i64 threads) {
    PARALLEL_FOR(N * G * S * D)
    for (i64 n = 0; n < N; n++)
        for (i64 g = 0; g < G; g++) {
            i64 b = n / Q;
            const T *restrict q = query + n * qn + g * D;
            const T *restrict k = keys + (b * G + g) * S * D, *restrict v = values + (b * G + g) * S * D;
            const float *restrict kp = powers + (b * G + g) * S * D;
            float qp[D];
            int small = NAME(query_powers)(q, qp, D);
            const float *pen = penalty + b * S;
            float *a = weights + n * wn + g * S;
            i64 live = 0;
            for (i64 s = 0; s < S; s++) live += !DEAD(pen[s]);
            float top = -INFINITY, bad = 0.0f;
            for (i64 s = 0; s < S; s++) {
                if (live && DEAD(pen[s])) continue;
                float score = 0.0f;
                if (small)
#pragma omp simd reduction(+ : score)
                    for (i64 j = 0; j < D; j++) score += w[j] / (1.0f + qp[j] * kp[s * D + j]);
                else
#pragma omp simd reduction(+ : score)
                    for (i64 j = 0; j < D; j++) score += w[j] * sigmoid(2.0f * LOAD(q[j]) + LOAD(k[s * D + j]));
                a[s] = 2.0f * score + pen[s];
                top = a[s] > top ? a[s] : top;
                bad += a[s] - a[s]; /* 0, or NaN where a score is NaN or infinite */
            }
            NAME(weighted_sum)(a, top, bad, live, pen, v, context + n * cn + g * D, S, D);
        }
}

/* From the gradients of the contexts and of the weights [N, G, S]: those of the scores, which `attention_memory` needs,
   and of the query. */
API void NAME(attention_query)(const T *query, i64 qn, const T *keys, const float *powers, const T *values,
                               const float *w, const float *weights, i64 wn, const T *dcontext, i64 cn,
                               const float *OPTIONAL dweights, float *dscores, T *dquery, i64 dn, i64 N, i64 Q, i64 G,
                               i64 S, i64 D, i64 threads) {
    PARALLEL_FOR(N * G * S * D)
    for (i64 n = 0; n < N; n++)
        for (i64 g = 0; g < G; g++) {
            i64 b = n / Q;
            const T *restrict q = query + n * qn + g * D, *restrict dc = dcontext + n * cn + g * D;
            const T *restrict k = keys + (b * G + g) * S * D, *restrict v = values + (b * G + g) * S * D;
            const float *restrict kp = powers + (b * G + g) * S * D;
            float qp[D];
            int small = NAME(query_powers)(q, qp, D);
            const float *a = weights + n * wn + g * S;
            float *de = dscores + n * wn + g * S;
            float mean = 0.0f;
            for (i64 s = 0; s < S; s++) {
                float da = dweights ? dweights[(n * G + g) * S + s] : 0.0f;
                if (a[s] != 0.0f)
#pragma omp simd reduction(+ : da)
                    for (i64 j = 0; j < D; j++) da += LOAD(dc[j]) * LOAD(v[s * D + j]);
                de[s] = da;
                mean += a[s] * da;
            }
            float sum[D];
            for (i64 j = 0; j < D; j++) sum[j] = 0.0f;
            for (i64 s = 0; s < S; s++) {
                float d = a[s] * (de[s] - mean);
                de[s] = d;
                if (d == 0.0f) continue;
                if (small)
#pragma omp simd
                    for (i64 j = 0; j < D; j++) {
                        float y = 1.0f / (1.0f + qp[j] * kp[s * D + j]);
                        sum[j] += d * (y - y * y);
                    }
                else
#pragma omp simd
                    for (i64 j = 0; j < D; j++) {
                        float y = sigmoid(2.0f * LOAD(q[j]) + LOAD(k[s * D + j]));
                        sum[j] += d * (y - y * y);
                    }
            }
            T *restrict dq = dquery + n * dn + g * D;
#pragma omp simd
            for (i64 j = 0; j < D; j++) dq[j] = STORE(4.0f * w[j] * sum[j]);
        }
}

/* After all `steps` queries of each sentence: the gradients of keys, values and, for each sentence, of w [B, D].
   Step t of sentence b is at t qt + b qb (queries and their powers, and contexts with ct, cb) and t wt + b wb
   (weights). `small` says whether the powers of all queries may be used. */
API void NAME(attention_memory)(const T *query, const float *qpowers, i64 qb, i64 qt, const T *keys,
                                const float *powers, i64 small, const float *w, const float *weights,
                                const float *dscores, i64 wb, i64 wt, const T *dcontext, i64 cb, i64 ct, T *dkeys,
                                T *dvalues, float *dw, i64 B, i64 steps, i64 G, i64 S, i64 D, i64 threads) {
    PARALLEL_FOR(B * steps * G * S * D)
    for (i64 b = 0; b < B; b++) {
        float *restrict total = dw + b * D;
        for (i64 j = 0; j < D; j++) total[j] = 0.0f;
        for (i64 g = 0; g < G; g++)
            for (i64 s = 0; s < S; s++) {
                i64 at = ((b * G + g) * S + s) * D;
                const T *restrict k = keys + at;
                const float *restrict kp = powers + at;
                float sum[D], mix[D];
                for (i64 j = 0; j < D; j++) sum[j] = mix[j] = 0.0f;
                for (i64 t = 0; t < steps; t++) {
                    const T *restrict q = query + b * qb + t * qt + g * D;
                    const float *restrict qp = qpowers + b * qb + t * qt + g * D;
                    const T *restrict dc = dcontext + b * cb + t * ct + g * D;
                    i64 weight = b * wb + t * wt + g * S + s;
                    float d = dscores[weight], a = weights[weight];
                    if (a == 0.0f) continue;
                    if (small)
#pragma omp simd
                        for (i64 j = 0; j < D; j++) {
                            float y = 1.0f / (1.0f + qp[j] * kp[j]);
                            sum[j] += d * (y - y * y);
                            total[j] += d * y;
                            mix[j] += a * LOAD(dc[j]);
                        }
                    else
#pragma omp simd
                        for (i64 j = 0; j < D; j++) {
                            float y = sigmoid(2.0f * LOAD(q[j]) + LOAD(k[j]));
                            sum[j] += d * (y - y * y);
                            total[j] += d * y;
                            mix[j] += a * LOAD(dc[j]);
                        }
                }
                T *restrict dk = dkeys + at, *restrict dv = dvalues + at;
#pragma omp simd
                for (i64 j = 0; j < D; j++) dk[j] = STORE(2.0f * w[j] * sum[j]), dv[j] = STORE(mix[j]);
            }
        for (i64 j = 0; j < D; j++) total[j] *= 2.0f;
    }
}

/* Scaled dot-product attention, without a gradient: weights = softmax(scale q k' + penalty), found = weights v.
   query row n at n qn, keys and values [B, G, S, D], penalty [B, S]; weights [N, G, S] fp32, found [N, G D]. */
API void NAME(dot_attention)(const T *query, i64 qn, const T *keys, const T *values, const float *penalty, float scale,
                             float *weights, T *found, i64 N, i64 Q, i64 G, i64 S, i64 D, i64 threads) {
    PARALLEL_FOR(N * G * S * D)
    for (i64 n = 0; n < N; n++) {
        i64 b = n / Q;
        const float *restrict pen = penalty + b * S;
        i64 live = 0;
        for (i64 s = 0; s < S; s++) live += !DEAD(pen[s]);
        for (i64 g = 0; g < G; g++) {
            const T *restrict k = keys + (b * G + g) * S * D, *restrict v = values + (b * G + g) * S * D;
            float *restrict a = weights + (n * G + g) * S;
            float q[D];
#pragma omp simd
            for (i64 j = 0; j < D; j++) q[j] = scale * LOAD(query[n * qn + g * D + j]);
            float top = -INFINITY, bad = 0.0f;
            for (i64 s = 0; s < S; s++) {
                if (live && DEAD(pen[s])) continue;
                float score = 0.0f;
#pragma omp simd reduction(+ : score)
                for (i64 j = 0; j < D; j++) score += q[j] * LOAD(k[s * D + j]);
                a[s] = score + pen[s];
                top = a[s] > top ? a[s] : top;
                bad += a[s] - a[s]; /* 0, or NaN where a score is NaN or infinite */
            }
            NAME(weighted_sum)(a, top, bad, live, pen, v, found + n * G * D + g * D, S, D);
        }
    }
}

#undef DEAD
#undef LIMIT
