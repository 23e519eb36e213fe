/* LSTM, see step.h: i, f, o and g are x + u + b.

   One time step: rows of x (i, f, o, g) have stride xb; u [B, 4H], the product of h' with the recurrent matrix, is
   contiguous; states are fp32, their rows have stride sb. Rows whose mask is 0 keep their state. */

#include "step.h"

API void NAME(lstm_forward)(const T *x, i64 xb, const T *u, const float *bias, const uint8_t *OPTIONAL mask, i64 mb,
                            const float *h_before, const float *c_before, float *h_after, float *c_after, T *out,
                            i64 sb, i64 B, i64 H, i64 threads) {
    PARALLEL_FOR(B * H)
    for (i64 b = 0; b < B; b++) {
        const T *restrict xi = x + b * xb, *restrict xf = xi + H, *restrict xo = xf + H, *restrict xg = xo + H;
        const T *restrict ui = u + b * 4 * H, *restrict uf = ui + H, *restrict uo = uf + H, *restrict ug = uo + H;
        const float *restrict bf = bias + H, *restrict bo = bf + H, *restrict bg = bo + H;
        const float *h = h_before + b * sb, *c = c_before + b * sb;
        float *new_h = h_after + b * sb, *new_c = c_after + b * sb;
        T *rounded = out + b * sb;
        if (mask && !mask[b * mb]) {
            for (i64 j = 0; j < H; j++) new_h[j] = h[j], new_c[j] = c[j], rounded[j] = STORE(h[j]);
            continue;
        }
#pragma omp simd
        for (i64 j = 0; j < H; j++) {
            float i = LOAD(xi[j]) + LOAD(ui[j]) + bias[j], f = LOAD(xf[j]) + LOAD(uf[j]) + bf[j];
            float o = LOAD(xo[j]) + LOAD(uo[j]) + bo[j], g = LOAD(xg[j]) + LOAD(ug[j]) + bg[j];
            float memory = lstm_memory(i, f, g, c[j]), y = lstm_output(o, memory, 0);
            new_c[j] = memory, new_h[j] = y, rounded[j] = STORE(y);
        }
    }
}

/* `dh` and `dc` [B, H] fp32 are first the gradients of the new state; `dout`, if any, is added to dh. Finally they are
   the gradients of the old state, without the part through u; the gradient of u is written to du [B, 4H] and to dx. */
API void NAME(lstm_backward)(const T *x, i64 xb, const T *u, const float *bias, const uint8_t *OPTIONAL mask, i64 mb,
                             const float *c_before, const float *c_after, i64 sb, const T *OPTIONAL dout, i64 ob,
                             float *dh, float *dc, T *dx, i64 db, T *du, i64 B, i64 H, i64 threads) {
    PARALLEL_FOR(B * H)
    for (i64 b = 0; b < B; b++) {
        const T *restrict xi = x + b * xb, *restrict xf = xi + H, *restrict xo = xf + H, *restrict xg = xo + H;
        const T *restrict ui = u + b * 4 * H, *restrict uf = ui + H, *restrict uo = uf + H, *restrict ug = uo + H;
        const float *restrict bf = bias + H, *restrict bo = bf + H, *restrict bg = bo + H;
        const float *restrict c = c_before + b * sb, *restrict new = c_after + b * sb;
        float *restrict d = dh + b * H, *restrict dm = dc + b * H;
        T *restrict dxi = dx + b * db, *restrict dxf = dxi + H, *restrict dxo = dxf + H, *restrict dxg = dxo + H;
        T *restrict dui = du + b * 4 * H, *restrict duf = dui + H, *restrict duo = duf + H, *restrict dug = duo + H;
        if (dout) {
            const T *restrict add = dout + b * ob;
#pragma omp simd
            for (i64 j = 0; j < H; j++) d[j] += LOAD(add[j]);
        }
        if (mask && !mask[b * mb]) {
            for (i64 j = 0; j < 4 * H; j++) dxi[j] = dui[j] = STORE(0.0f);
            continue;
        }
#pragma omp simd
        for (i64 j = 0; j < H; j++) {
            float i = sigmoid(LOAD(xi[j]) + LOAD(ui[j]) + bias[j]), f = sigmoid(LOAD(xf[j]) + LOAD(uf[j]) + bf[j]);
            float o = sigmoid(LOAD(xo[j]) + LOAD(uo[j]) + bo[j]), g = fast_tanh(LOAD(xg[j]) + LOAD(ug[j]) + bg[j]);
            float y = fast_tanh(new[j]), m = dm[j] + d[j] * o * (1.0f - y * y);
            dxi[j] = dui[j] = STORE(m * g * i * (1.0f - i));
            dxf[j] = duf[j] = STORE(m * c[j] * f * (1.0f - f));
            dxo[j] = duo[j] = STORE(d[j] * y * o * (1.0f - o));
            dxg[j] = dug[j] = STORE(m * i * (1.0f - g * g));
            d[j] = 0.0f, dm[j] = m * f;
        }
    }
}
