/* One step of each unit for one row, from the equations of the training kernels. */

#ifndef NMT_UNITS_H
#define NMT_UNITS_H

#include "vectors.h"

#define UNIT_LOOPS "../../light/src/unit_row.h"
#include "../../ops/atr/native.c"
#include "../../ops/gru/native.c"
#include "../../ops/lstm/native.c"
#include "../../ops/scan/lrn.c"
#include "../../ops/scan/olrn.c"
#include "../../ops/scan/sru.c"
#include "../../ops/scan/ssru.c"
#include "../../ops/scan/min_gru.c"
#include "../../ops/scan/min_lstm.c"

#define UNIT_ROW(name)                                                                                    \
    static void name(const float *x, const float *before, const float *u, const float *const v[4], int p, \
                     float *after, i64 H)

INLINE void atr_channels(const float *x, const float *before, const float *u, const float *bias, float *after, i64 H,
                         int activation, int gates) {
#pragma omp simd
    for (i64 j = 0; j < H; j++) after[j] = atr_step(x[j], u[j] + bias[j], before[j], activation, gates);
}

UNIT_ROW(atr_row) {
#ifdef __wasm__ /* where code has to be fetched, one loop does all that is rare */
    if (p) atr_channels(x, before, u, v[0], after, H, p % 3, p / 3);
    else atr_channels(x, before, u, v[0], after, H, 0, 0);
#else
    ATR_CHOOSE(p, atr_channels, x, before, u, v[0], after, H)
#endif
}

UNIT_ROW(rnn_row) {
    const float *bias = v[0];
    (void)before;
    if (p)
#pragma omp simd
        for (i64 j = 0; j < H; j++) {
            float y = x[j] + u[j] + bias[j];
            after[j] = y < 0.0f ? 0.0f : y; /* NaN stays */
        }
    else
#pragma omp simd
        for (i64 j = 0; j < H; j++) after[j] = fast_tanh(x[j] + u[j] + bias[j]);
}

UNIT_ROW(gru_reset_row) {
    const float *bias = v[0];
    (void)p;
#pragma omp simd
    for (i64 j = 0; j < H; j++) after[j] = gru_gate(x[H + j], u[H + j], bias[H + j]) * before[j];
}

/* The reset gate before the matrix, or after it. */
UNIT_ROW(gru_row) {
    const float *bias = v[0], *candidate_bias = v[1];
    if (p)
#pragma omp simd
        for (i64 j = 0; j < H; j++) {
            float z = gru_gate(x[j], u[j], bias[j]), r = gru_gate(x[H + j], u[H + j], bias[H + j]);
            float g = fast_tanh(x[2 * H + j] + r * (u[2 * H + j] + candidate_bias[j]));
            after[j] = gru_step(z, g, before[j]);
        }
    else
#pragma omp simd
        for (i64 j = 0; j < H; j++) {
            float z = gru_gate(x[j], u[j], bias[j]);
            after[j] = gru_step(z, gru_candidate(x[2 * H + j], u[2 * H + j], candidate_bias[j]), before[j]);
        }
}

INLINE void lstm_channels(const float *x, const float *before, const float *u, const float *const v[4], float *after,
                          i64 H, const int linear, const int peepholes, const float with) {
    const float *b = v[0], *pi = v[1], *pf = v[2], *po = v[3];
#pragma omp simd
    for (i64 j = 0; j < H; j++) {
        const float c = before[H + j];
        float i = x[j] + u[j] + b[j], f = x[H + j] + u[H + j] + b[H + j];
        float o = x[2 * H + j] + u[2 * H + j] + b[2 * H + j], g = x[3 * H + j] + u[3 * H + j] + b[3 * H + j];
        if (peepholes) i += with * pi[j] * c, f += with * pf[j] * c;
        float memory = lstm_memory(i, f, g, c);
        if (peepholes) o += with * po[j] * memory;
        after[H + j] = memory;
        after[j] = lstm_output(o, memory, linear);
    }
}

UNIT_ROW(lstm_row) {
#ifdef __wasm__ /* one loop, in which peepholes that are not there have no weight */
    const float *const vectors[4] = {v[0], v[1] ? v[1] : v[0], v[1] ? v[2] : v[0], v[1] ? v[3] : v[0]};
    lstm_channels(x, before, u, vectors, after, H, p != 0, 1, v[1] ? 1.0f : 0.0f);
#else
    const float *const vectors[4] = {v[0], v[1], v[2], v[3]};
    switch (2 * (v[1] != 0) + (p != 0)) {
    case 0: lstm_channels(x, before, u, vectors, after, H, 0, 0, 0.0f); break;
    case 1: lstm_channels(x, before, u, vectors, after, H, 1, 0, 0.0f); break;
    case 2: lstm_channels(x, before, u, vectors, after, H, 0, 1, 1.0f); break;
    case 3: lstm_channels(x, before, u, vectors, after, H, 1, 1, 1.0f); break;
    }
#endif
}

#undef UNIT_ROW
#endif
