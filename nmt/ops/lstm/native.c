/* LSTM: c = sigmoid(i) tanh(g) + sigmoid(f) c', h = sigmoid(o) tanh(c), with `activation` 1 sigmoid(o) c, with 2 sigmoid(o) sigmoid(c); i, f, o and g are x + u + b.
   First one channel, for the training kernels and the engine. */

#include "../native/simd.h"

INLINE float lstm_memory(float i, float f, float g, float c) { return sigmoid(i) * fast_tanh(g) + sigmoid(f) * c; }
INLINE float lstm_output(float o, float c, int activation) {
    return sigmoid(o) * (activation == 0 ? fast_tanh(c) : activation == 1 ? c : sigmoid(c));
}

#ifndef UNIT_LOOPS /* the engine has loops of its own */

/* One time step: rows of x (i, f, o, g) have stride xb; u [B, 4H], the product of h' with the recurrent matrix, is
   contiguous, and with a scale normalised, i, f and o together and g alone; states are fp32 [2, B, H], h and c, with
   stride bp or ap between them and sb between rows. Rows whose mask is 0 keep their state. */

API void NAME(lstm_forward)(const T *x, i64 xb, const T *u, const float *bias, const float *OPTIONAL scale,
                            const float *OPTIONAL offset, const uint8_t *OPTIONAL mask, i64 mb, const float *before,
                            i64 bp, float *after, i64 ap, T *out, i64 sb, i64 B, i64 H, i64 code, i64 threads) {
    (void)code; /* of options that it does not have */
    PARALLEL_FOR(B * H)
    for (i64 b = 0; b < B; b++) {
        const T *restrict xi = x + b * xb, *restrict xf = xi + H, *restrict xo = xf + H, *restrict xg = xo + H;
        float q[4 * H], *restrict qi = q, *restrict qf = qi + H, *restrict qo = qf + H, *restrict qg = qo + H;
        const float *h = before + b * sb, *c = h + bp;
        float *new_h = after + b * sb, *new_c = new_h + ap;
        T *rounded = out + b * sb;
        if (mask && !mask[b * mb]) {
            for (i64 j = 0; j < H; j++) new_h[j] = h[j], new_c[j] = c[j], rounded[j] = STORE(h[j]);
            continue;
        }
        NAME(product_row)(u + b * 4 * H, bias, scale, offset, 3 * H, 4 * H, q);
#pragma omp simd
        for (i64 j = 0; j < H; j++) {
            float i = LOAD(xi[j]) + qi[j], f = LOAD(xf[j]) + qf[j], o = LOAD(xo[j]) + qo[j], g = LOAD(xg[j]) + qg[j];
            float memory = lstm_memory(i, f, g, c[j]), y = lstm_output(o, memory, 0);
            new_c[j] = memory, new_h[j] = y, rounded[j] = STORE(y);
        }
    }
}

/* `dh` [2, B, H] fp32, of h and c, is first the gradient of the new state; `dout`, if any, is added to that of h. Finally
   it is the gradient of the old state, without the part through u; the gradient of u is written to du [B, 4H], that of
   its norm, if there is one, is the same as dx. */
API void NAME(lstm_backward)(const T *x, i64 xb, const T *u, const float *bias, const float *OPTIONAL scale,
                             const float *OPTIONAL offset, const uint8_t *OPTIONAL mask, i64 mb, const float *before,
                             i64 bp, const float *after, i64 ap, i64 sb, const T *OPTIONAL dout, i64 ob, float *dh,
                             T *dx, i64 db, T *du, T *OPTIONAL dq, i64 B, i64 H, i64 code, i64 threads) {
    (void)code, (void)dq;
    PARALLEL_FOR(B * H)
    for (i64 b = 0; b < B; b++) {
        const T *restrict xi = x + b * xb, *restrict xf = xi + H, *restrict xo = xf + H, *restrict xg = xo + H;
        float q[4 * H], *restrict qi = q, *restrict qf = qi + H, *restrict qo = qf + H, *restrict qg = qo + H;
        const float *restrict c = before + bp + b * sb, *restrict new = after + ap + b * sb;
        float *restrict d = dh + b * H, *restrict dm = d + B * H;
        T *restrict dxi = dx + b * db, *restrict dxf = dxi + H, *restrict dxo = dxf + H, *restrict dxg = dxo + H;
        if (dout) NAME(add_row)(d, dout + b * ob, H);
        if (mask && !mask[b * mb]) {
            for (i64 j = 0; j < 4 * H; j++) dxi[j] = du[b * 4 * H + j] = STORE(0.0f);
            continue;
        }
        NAME(product_row)(u + b * 4 * H, bias, scale, offset, 3 * H, 4 * H, q);
#pragma omp simd
        for (i64 j = 0; j < H; j++) {
            float i = sigmoid(LOAD(xi[j]) + qi[j]), f = sigmoid(LOAD(xf[j]) + qf[j]);
            float o = sigmoid(LOAD(xo[j]) + qo[j]), g = fast_tanh(LOAD(xg[j]) + qg[j]);
            float y = fast_tanh(new[j]), m = dm[j] + d[j] * o * (1.0f - y * y);
            qi[j] = m * g * i * (1.0f - i), qf[j] = m * c[j] * f * (1.0f - f);
            qo[j] = d[j] * y * o * (1.0f - o), qg[j] = m * i * (1.0f - g * g);
            dxi[j] = STORE(qi[j]), dxf[j] = STORE(qf[j]), dxo[j] = STORE(qo[j]), dxg[j] = STORE(qg[j]);
            d[j] = 0.0f, dm[j] = m * f;
        }
        NAME(product_row_gradient)(u + b * 4 * H, scale, 3 * H, 4 * H, q, du + b * 4 * H);
    }
}

#endif
