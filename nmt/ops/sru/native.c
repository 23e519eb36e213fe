/* SRU: f = sigmoid(x_f + v_f c'), c = f c' + (1 - f) x_c, r = sigmoid(x_r + v_r c'), h = r c + (1 - r) x_h.

   x [B, T, 4H] has x_r, x_f, x_c, x_h at x + b xb + t xt; states are fp32. Row b of what is before and after stands at
   b sb + t st: the state that step t starts from, and the one it ends with. Rows whose mask is 0 keep their state. */

#include "simd.h"

API void NAME(sru_forward)(const T *x, i64 xb, i64 xt, const float *vf, const float *vr, const uint8_t *mask, i64 mb,
                           i64 mt, const float *h_before, const float *c_before, float *h_after, float *c_after, T *out,
                           i64 sb, i64 st, i64 B, i64 steps, i64 H, i64 reverse, i64 threads) {
    PARALLEL_FOR(B * steps * H)
    for (i64 b = 0; b < B; b++)
        for (i64 k = 0; k < steps; k++) {
            i64 t = reverse ? steps - 1 - k : k, at = b * sb + t * st;
            const T *restrict xr = x + b * xb + t * xt, *restrict xf = xr + H, *restrict xc = xf + H;
            const T *restrict xh = xc + H;
            const float *h = h_before + at, *c = c_before + at;
            float *new_h = h_after + at, *new_c = c_after + at;
            T *narrow = out + at;
            if (mask && !mask[b * mb + t * mt]) {
                for (i64 j = 0; j < H; j++) new_h[j] = h[j], new_c[j] = c[j], narrow[j] = STORE(h[j]);
                continue;
            }
#pragma omp simd
            for (i64 j = 0; j < H; j++) {
                float f = sigmoid(LOAD(xf[j]) + vf[j] * c[j]), r = sigmoid(LOAD(xr[j]) + vr[j] * c[j]);
                float memory = LOAD(xc[j]) + f * (c[j] - LOAD(xc[j]));
                float y = LOAD(xh[j]) + r * (memory - LOAD(xh[j]));
                new_c[j] = memory, new_h[j] = y, narrow[j] = STORE(y);
            }
        }
}

/* `dh` and `dc` [B, H] fp32 come in as the gradients of the last state and leave as those of the first; `dout`, if
   any, is added to dh at each step. dx [B, T, 4H] stands as x does, with strides of its own. To dv [B, 2H] fp32 is
   added what v_f and v_r get in each row, so that their sum does not depend on the number of threads. */
API void NAME(sru_backward)(const T *x, i64 xb, i64 xt, const float *vf, const float *vr, const uint8_t *mask, i64 mb,
                            i64 mt, const float *c_before, const float *c_after, i64 sb, i64 st, const T *dout, i64 ob,
                            i64 ot, float *dh, float *dc, T *dx, i64 db, i64 dt, float *dv, i64 B, i64 steps, i64 H,
                            i64 reverse, i64 threads) {
    PARALLEL_FOR(B * steps * H)
    for (i64 b = 0; b < B; b++)
        for (i64 k = 0; k < steps; k++) {
            i64 t = reverse ? k : steps - 1 - k, at = b * sb + t * st;
            const T *restrict xr = x + b * xb + t * xt, *restrict xf = xr + H, *restrict xc = xf + H;
            const T *restrict xh = xc + H;
            const float *restrict c = c_before + at, *restrict new = c_after + at;
            float *restrict d = dh + b * H, *restrict dm = dc + b * H;
            float *restrict dvf = dv + b * 2 * H, *restrict dvr = dvf + H;
            T *restrict dxr = dx + b * db + t * dt, *restrict dxf = dxr + H, *restrict dxc = dxf + H;
            T *restrict dxh = dxc + H;
            if (dout) {
                const T *restrict add = dout + b * ob + t * ot;
#pragma omp simd
                for (i64 j = 0; j < H; j++) d[j] += LOAD(add[j]);
            }
            if (mask && !mask[b * mb + t * mt]) {
                for (i64 j = 0; j < 4 * H; j++) dxr[j] = STORE(0.0f);
                continue;
            }
#pragma omp simd
            for (i64 j = 0; j < H; j++) {
                float f = sigmoid(LOAD(xf[j]) + vf[j] * c[j]), r = sigmoid(LOAD(xr[j]) + vr[j] * c[j]);
                float dr = d[j] * (new[j] - LOAD(xh[j])) * r * (1.0f - r), m = dm[j] + d[j] * r;
                float df = m * (c[j] - LOAD(xc[j])) * f * (1.0f - f);
                dxr[j] = STORE(dr), dxf[j] = STORE(df);
                dxc[j] = STORE(m * (1.0f - f)), dxh[j] = STORE(d[j] * (1.0f - r));
                dvf[j] += df * c[j], dvr[j] += dr * c[j];
                d[j] = 0.0f, dm[j] = m * f + df * vf[j] + dr * vr[j];
            }
        }
}
