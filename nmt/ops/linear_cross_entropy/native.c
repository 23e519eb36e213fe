/* Label-smoothed cross entropy of N rows x [N, V] of logits with stride xn:

   loss = lse(x) - confidence x_target - rest sum(x) + constant

   If nll [N] is given, the negative log-likelihood lse(x) - x_target is written to it. If weights [N] are given, the
   logits are replaced by the gradient of the loss times the weight: weight (softmax(x) - rest), minus weight confidence
   at the target. Because confidence + V rest = 1, all x can be taken relative to the largest.
   Each thread has V floats on its stack, see __init__.py. */

#include "simd.h"

API void NAME(cross_entropy_step)(T *logits, i64 xn, const i64 *targets, const float *OPTIONAL weights, float *losses,
                                  float *OPTIONAL nll, i64 N, i64 V, float confidence, float rest, float constant,
                                  i64 threads) {
    PARALLEL_FOR(N * V)
    for (i64 n = 0; n < N; n++) {
        T *restrict x = logits + n * xn;
        float top = -INFINITY, total = 0.0f, sum = 0.0f, powers[V];
#pragma omp simd reduction(max : top)
        for (i64 j = 0; j < V; j++) {
            float value = LOAD(x[j]);
            top = value > top ? value : top;
        }
#pragma omp simd reduction(+ : total, sum)
        for (i64 j = 0; j < V; j++) {
            float value = LOAD(x[j]) - top;
            powers[j] = fast_exp(value);
            total += powers[j];
            sum += value;
        }
        float gold = LOAD(x[targets[n]]) - top;
        /* without smoothing an infinite sum must not count */
        losses[n] = logf(total) - confidence * gold - (rest ? rest * sum : 0.0f) + constant;
        if (nll) nll[n] = logf(total) - gold;
        if (!weights) continue;
        float weight = weights[n], scale = weight / total, shift = weight * rest;
#pragma omp simd
        for (i64 j = 0; j < V; j++) x[j] = STORE(powers[j] * scale - shift);
        x[targets[n]] = STORE(powers[targets[n]] * scale - shift - weight * confidence);
    }
}
