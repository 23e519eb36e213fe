/* Scaled dot-product attention of N = B Q queries over S positions of B sentences, in G heads of D values; no gradient.

   weights = softmax(scale q k' + penalty), found = weights v.
   query row n at n qn, keys and values [B, G, S, D], penalty [B, S]; weights [N, G, S] fp32, found [N, G D]. */

#include "simd.h"

/* Positions at padding, which the softmax would make exactly zero, are not computed. */
#define DEAD(penalty) ((penalty) < -1e7f)

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
            float q[D], sum[D];
#pragma omp simd
            for (i64 j = 0; j < D; j++) q[j] = scale * LOAD(query[n * qn + g * D + j]);
            float top = -INFINITY, total = 0.0f, bad = 0.0f;
            for (i64 s = 0; s < S; s++) {
                if (live && DEAD(pen[s])) continue;
                float score = 0.0f;
#pragma omp simd reduction(+ : score)
                for (i64 j = 0; j < D; j++) score += q[j] * LOAD(k[s * D + j]);
                a[s] = score + pen[s];
                top = a[s] > top ? a[s] : top;
                bad += a[s] - a[s]; /* 0, or NaN where a score is NaN or infinite */
            }
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
            for (i64 j = 0; j < D; j++) found[n * G * D + g * D + j] = STORE(sum[j]);
        }
    }
}
