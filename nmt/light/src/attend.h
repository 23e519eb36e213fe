/* One query of an attention over S positions, head by head; as nmt/ops/attention/native.c.
   A score that is NaN or infinite makes all weights of its head NaN. */

#ifndef NMT_ATTEND_H
#define NMT_ATTEND_H

#include "vectors.h"

/* From scores a[S] to weights, and y[D] = what they find among the values. */
INLINE void weigh(float *a, const float *values, i64 vs, i64 S, float *restrict y, i64 D) {
    float top = -INFINITY, bad = 0.0f;
    for (i64 s = 0; s < S; s++) {
        top = a[s] > top ? a[s] : top;
        bad += a[s] - a[s]; /* 0, or NaN where a score is NaN or infinite */
    }
#pragma omp simd
    for (i64 s = 0; s < S; s++) a[s] = fast_exp(a[s] - top) + bad;
    const float total = sum_of(a, S);
    for (i64 j = 0; j < D; j++) y[j] = 0.0f;
    for (i64 s = 0; s < S; s++) {
        const float share = a[s] /= total, *restrict v = values + s * vs;
        if (share == 0.0f) continue;
#pragma omp simd
        for (i64 j = 0; j < D; j++) y[j] += share * v[j];
    }
}

/* Until the scores are known, y has the powers of the query. */
static void attend_additive(const float *q, const float *keys, i64 ks, const float *values, i64 vs, const float *weight,
                            i64 heads, i64 n, i64 S, float *y, float *weights, float *scratch) {
    const i64 D = n / heads;
    for (i64 g = 0; g < heads; g++, q += D, keys += D, values += D, y += D) {
        float *a = (weights ? weights : scratch) + g * S;
#pragma omp simd
        for (i64 j = 0; j < D; j++) {
            float x = q[j] < -35.0f ? -35.0f : q[j]; /* NaN stays */
            y[j] = fast_exp(-2.0f * (x > 35.0f ? 35.0f : x));
        }
        for (i64 s = 0; s < S; s++) {
            const float *k = keys + s * ks;
            float sum;
            SUM_OF_VECTORS(sum, D,
                           load_some(weight + j, D - j) / (load_some(y + j, D - j) * load_some(k + j, D - j) + 1.0f));
            a[s] = 2.0f * sum;
        }
        weigh(a, values, vs, S, y, D);
    }
}

static void attend_dot(const float *q, const float *keys, i64 ks, const float *values, i64 vs, i64 heads, i64 n, i64 S,
                       float *y, float *weights, float *scratch) {
    const i64 D = n / heads;
    const float scale = 1.0f / sqrtf((float)D);
    for (i64 g = 0; g < heads; g++, q += D, keys += D, values += D, y += D) {
        float *a = (weights ? weights : scratch) + g * S;
        for (i64 s = 0; s < S; s++) {
            const float *k = keys + s * ks;
            float sum;
            SUM_OF_VECTORS(sum, D, load_some(q + j, D - j) * load_some(k + j, D - j));
            a[s] = sum * scale;
        }
        weigh(a, values, vs, S, y, D);
    }
}

#endif
