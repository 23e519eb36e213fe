/* LRN: i = sigmoid(p + h'), f = sigmoid(q - h'), h = i r + f h', and the tanh of it if asked.

   x [B, T, 3H] has p, q, r at x + b xb + t xt; states are fp32. Row b of `before` and `after` stands at b sb + t st:
   the state that step t starts from, and the one it ends with. Rows whose mask is 0 keep their state. */

#include "simd.h"

API void NAME(lrn_forward)(const T *x, i64 xb, i64 xt, const uint8_t *mask, i64 mb, i64 mt, const float *before,
                           float *after, T *out, i64 sb, i64 st, i64 B, i64 steps, i64 H, i64 reverse, i64 squash,
                           i64 threads) {
    PARALLEL_FOR(B * steps * H)
    for (i64 b = 0; b < B; b++)
        for (i64 k = 0; k < steps; k++) {
            i64 t = reverse ? steps - 1 - k : k, at = b * sb + t * st;
            const T *restrict p = x + b * xb + t * xt, *restrict q = p + H, *restrict r = q + H;
            const float *h = before + at;
            float *new = after + at;
            T *narrow = out + at;
            if (mask && !mask[b * mb + t * mt]) {
                for (i64 j = 0; j < H; j++) new[j] = h[j], narrow[j] = STORE(h[j]);
                continue;
            }
            if (squash)
#pragma omp simd
                for (i64 j = 0; j < H; j++) {
                    float y = fast_tanh(sigmoid(LOAD(p[j]) + h[j]) * LOAD(r[j]) + sigmoid(LOAD(q[j]) - h[j]) * h[j]);
                    new[j] = y, narrow[j] = STORE(y);
                }
            else
#pragma omp simd
                for (i64 j = 0; j < H; j++) {
                    float y = sigmoid(LOAD(p[j]) + h[j]) * LOAD(r[j]) + sigmoid(LOAD(q[j]) - h[j]) * h[j];
                    new[j] = y, narrow[j] = STORE(y);
                }
        }
}

/* `dh` [B, H] fp32 comes in as the gradient of the last state and leaves as that of the first; `dout`, if any, is
   added at each step. dx [B, T, 3H] stands as x does, with strides of its own. */
API void NAME(lrn_backward)(const T *x, i64 xb, i64 xt, const uint8_t *mask, i64 mb, i64 mt, const float *before,
                            const float *after, i64 sb, i64 st, const T *dout, i64 ob, i64 ot, float *dh, T *dx, i64 db,
                            i64 dt, i64 B, i64 steps, i64 H, i64 reverse, i64 squash, i64 threads) {
    PARALLEL_FOR(B * steps * H)
    for (i64 b = 0; b < B; b++)
        for (i64 k = 0; k < steps; k++) {
            i64 t = reverse ? k : steps - 1 - k, at = b * sb + t * st;
            const T *restrict p = x + b * xb + t * xt, *restrict q = p + H, *restrict r = q + H;
            const float *restrict h = before + at, *restrict new = after + at;
            const T *restrict add = dout + b * ob + t * ot;
            float *restrict d = dh + b * H;
            T *restrict dp = dx + b * db + t * dt, *restrict dq = dp + H, *restrict dr = dq + H;
            if (dout)
#pragma omp simd
                for (i64 j = 0; j < H; j++) d[j] += LOAD(add[j]);
            if (mask && !mask[b * mb + t * mt]) {
                for (i64 j = 0; j < 3 * H; j++) dp[j] = STORE(0.0f);
                continue;
            }
#pragma omp simd
            for (i64 j = 0; j < H; j++) {
                float i = sigmoid(LOAD(p[j]) + h[j]), f = sigmoid(LOAD(q[j]) - h[j]);
                float g = squash ? d[j] * (1.0f - new[j] * new[j]) : d[j];
                float di = g * LOAD(r[j]) * i * (1.0f - i), df = g * h[j] * f * (1.0f - f);
                dp[j] = STORE(di), dq[j] = STORE(df), dr[j] = STORE(g * i);
                d[j] = g * f + di - df;
            }
        }
}
