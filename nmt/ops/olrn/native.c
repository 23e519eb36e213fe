/* oLRN: i = sigmoid(p + h'), f = sigmoid(q - h'), c = i r + f h', or the tanh of it, h = sigmoid(s - c) c.

   x [B, T, 4H] has p, q, r, s at x + b xb + t xt; states are fp32. Row b of `before` and `after` stands at b sb + t st:
   the state that step t starts from, and the one it ends with. Rows whose mask is 0 keep their state. */

#include "simd.h"

INLINE void NAME(olrn_row)(const T *restrict p, const float *h, float *new, T *narrow, i64 H, int squash) {
    const T *restrict q = p + H, *restrict r = q + H, *restrict s = r + H;
#pragma omp simd
    for (i64 j = 0; j < H; j++) {
        float c = sigmoid(LOAD(p[j]) + h[j]) * LOAD(r[j]) + sigmoid(LOAD(q[j]) - h[j]) * h[j];
        if (squash) c = fast_tanh(c);
        float y = sigmoid(LOAD(s[j]) - c) * c;
        new[j] = y, narrow[j] = STORE(y);
    }
}

API void NAME(olrn_forward)(const T *x, i64 xb, i64 xt, const uint8_t *mask, i64 mb, i64 mt, const float *before,
                            float *after, T *out, i64 sb, i64 st, i64 B, i64 steps, i64 H, i64 reverse, i64 squash,
                            i64 threads) {
    PARALLEL_FOR(B * steps * H)
    for (i64 b = 0; b < B; b++)
        for (i64 k = 0; k < steps; k++) {
            i64 t = reverse ? steps - 1 - k : k, at = b * sb + t * st;
            const float *h = before + at;
            float *new = after + at;
            T *narrow = out + at;
            if (mask && !mask[b * mb + t * mt])
                for (i64 j = 0; j < H; j++) new[j] = h[j], narrow[j] = STORE(h[j]);
            else if (squash)
                NAME(olrn_row)(x + b * xb + t * xt, h, new, narrow, H, 1);
            else
                NAME(olrn_row)(x + b * xb + t * xt, h, new, narrow, H, 0);
        }
}

INLINE void NAME(olrn_gradient_row)(const T *restrict p, const float *restrict h, float *restrict d, T *restrict dp,
                                    i64 H, int squash) {
    const T *restrict q = p + H, *restrict r = q + H, *restrict s = r + H;
    T *restrict dq = dp + H, *restrict dr = dq + H, *restrict ds = dr + H;
#pragma omp simd
    for (i64 j = 0; j < H; j++) {
        float i = sigmoid(LOAD(p[j]) + h[j]), f = sigmoid(LOAD(q[j]) - h[j]);
        float c = i * LOAD(r[j]) + f * h[j];
        if (squash) c = fast_tanh(c);
        float o = sigmoid(LOAD(s[j]) - c), gate = d[j] * c * o * (1.0f - o);
        float g = d[j] * o - gate;
        if (squash) g *= 1.0f - c * c;
        float di = g * LOAD(r[j]) * i * (1.0f - i), df = g * h[j] * f * (1.0f - f);
        dp[j] = STORE(di), dq[j] = STORE(df), dr[j] = STORE(g * i), ds[j] = STORE(gate);
        d[j] = g * f + di - df;
    }
}

/* `dh` [B, H] fp32 comes in as the gradient of the last state and leaves as that of the first; `dout`, if any, is
   added at each step. dx [B, T, 4H] stands as x does, with strides of its own. */
API void NAME(olrn_backward)(const T *x, i64 xb, i64 xt, const uint8_t *mask, i64 mb, i64 mt, const float *before,
                             const float *after, i64 sb, i64 st, const T *dout, i64 ob, i64 ot, float *dh, T *dx,
                             i64 db, i64 dt, i64 B, i64 steps, i64 H, i64 reverse, i64 squash, i64 threads) {
    (void)after;
    PARALLEL_FOR(B * steps * H)
    for (i64 b = 0; b < B; b++)
        for (i64 k = 0; k < steps; k++) {
            i64 t = reverse ? k : steps - 1 - k;
            const T *p = x + b * xb + t * xt;
            const float *h = before + b * sb + t * st;
            float *restrict d = dh + b * H;
            T *dp = dx + b * db + t * dt;
            if (dout) {
                const T *restrict add = dout + b * ob + t * ot;
#pragma omp simd
                for (i64 j = 0; j < H; j++) d[j] += LOAD(add[j]);
            }
            if (mask && !mask[b * mb + t * mt])
                for (i64 j = 0; j < 4 * H; j++) dp[j] = STORE(0.0f);
            else if (squash)
                NAME(olrn_gradient_row)(p, h, d, dp, H, 1);
            else
                NAME(olrn_gradient_row)(p, h, d, dp, H, 0);
        }
}
