/* GRU: z, r = sigmoid(x_zr + u + b), g = tanh(x_h + v + d), h = z h' + (1 - z) g. First one channel, for the training
   kernels and the engine. */

#include "../native/simd.h"

INLINE float gru_gate(float x, float u, float bias) { return sigmoid(x + u + bias); }
INLINE float gru_candidate(float x, float v, float bias) { return fast_tanh(x + v + bias); }
INLINE float gru_step(float z, float g, float h) { return g + z * (h - g); }

#ifndef UNIT_LOOPS /* the engine has loops of its own */

/* The reset gate before the product. One time step: rows of x (x_z, x_r, x_h) have stride xb; u [B, 2H] and v [B, H] are
   the products of h' and of r h' with the recurrent matrices, each normalised if it has a scale; states are fp32, their
   rows have stride sb. Rows whose mask is 0 keep their state. */

/* r h', the operand of the candidate's matrix; 0 in rows whose mask is 0. */
API void NAME(gru_reset)(const T *x, i64 xb, const T *u, const float *bias, const float *OPTIONAL scale,
                         const float *OPTIONAL offset, const uint8_t *OPTIONAL mask, i64 mb, const float *before, i64 sb,
                         T *reset, i64 B, i64 H, i64 threads) {
    PARALLEL_FOR(B * H)
    for (i64 b = 0; b < B; b++) {
        const T *restrict xr = x + b * xb + H;
        const float *restrict h = before + b * sb;
        T *restrict rh = reset + b * H;
        float q[2 * H];
        if (mask && !mask[b * mb]) {
            for (i64 j = 0; j < H; j++) rh[j] = STORE(0.0f);
            continue;
        }
        NAME(product_row)(u + b * 2 * H, bias, scale, offset, 2 * H, 2 * H, q);
#pragma omp simd
        for (i64 j = 0; j < H; j++) rh[j] = STORE(gru_gate(LOAD(xr[j]), q[H + j], 0.0f) * h[j]);
    }
}

API void NAME(gru_forward)(const T *x, i64 xb, const T *u, const float *bias, const float *OPTIONAL scale,
                           const float *OPTIONAL offset, const T *v, const float *candidate_bias,
                           const float *OPTIONAL candidate_scale, const float *OPTIONAL candidate_offset,
                           const uint8_t *OPTIONAL mask, i64 mb, const float *before, float *after, T *out, i64 sb,
                           i64 B, i64 H, i64 threads) {
    PARALLEL_FOR(B * H)
    for (i64 b = 0; b < B; b++) {
        const T *restrict xz = x + b * xb, *restrict xh = xz + 2 * H;
        float q[2 * H], c[H];
        const float *h = before + b * sb;
        float *new = after + b * sb;
        T *rounded = out + b * sb;
        if (mask && !mask[b * mb]) {
            for (i64 j = 0; j < H; j++) new[j] = h[j], rounded[j] = STORE(h[j]);
            continue;
        }
        NAME(product_row)(u + b * 2 * H, bias, scale, offset, 2 * H, 2 * H, q);
        NAME(product_row)(v + b * H, candidate_bias, candidate_scale, candidate_offset, H, H, c);
#pragma omp simd
        for (i64 j = 0; j < H; j++) {
            float z = gru_gate(LOAD(xz[j]), q[j], 0.0f), g = gru_candidate(LOAD(xh[j]), c[j], 0.0f);
            float y = gru_step(z, g, h[j]);
            new[j] = y, rounded[j] = STORE(y);
        }
    }
}

/* First half of the gradient: `dh` [B, H] fp32 is first the gradient of the new state, to which `dout`, if any, is
   added, and finally the gradient of h' through z h' only. Also writes the parts of x_z and x_h in dx, which are those of
   the norms, and dv [B, H]. */
API void NAME(gru_backward)(const T *x, i64 xb, const T *u, const float *bias, const float *OPTIONAL scale,
                            const float *OPTIONAL offset, const T *v, const float *candidate_bias,
                            const float *OPTIONAL candidate_scale, const float *OPTIONAL candidate_offset,
                            const uint8_t *OPTIONAL mask, i64 mb, const float *before, i64 sb, const T *OPTIONAL dout,
                            i64 ob, float *dh, T *dx, i64 db, T *dv, i64 B, i64 H, i64 threads) {
    PARALLEL_FOR(B * H)
    for (i64 b = 0; b < B; b++) {
        const T *restrict xz = x + b * xb, *restrict xh = xz + 2 * H;
        const float *restrict h = before + b * sb;
        float *restrict d = dh + b * H, q[2 * H], c[H];
        T *restrict dxz = dx + b * db, *restrict dxh = dxz + 2 * H;
        if (dout) NAME(add_row)(d, dout + b * ob, H);
        if (mask && !mask[b * mb]) {
            for (i64 j = 0; j < H; j++) dxz[j] = dxh[j] = dv[b * H + j] = STORE(0.0f);
            continue;
        }
        NAME(product_row)(u + b * 2 * H, bias, scale, offset, 2 * H, 2 * H, q);
        NAME(product_row)(v + b * H, candidate_bias, candidate_scale, candidate_offset, H, H, c);
#pragma omp simd
        for (i64 j = 0; j < H; j++) {
            float z = gru_gate(LOAD(xz[j]), q[j], 0.0f), g = gru_candidate(LOAD(xh[j]), c[j], 0.0f);
            c[j] = d[j] * (1.0f - z) * (1.0f - g * g);
            dxz[j] = STORE(d[j] * (h[j] - g) * z * (1.0f - z)), dxh[j] = STORE(c[j]);
            d[j] *= z;
        }
        NAME(product_row_gradient)(v + b * H, candidate_scale, H, H, c, dv + b * H);
    }
}

/* Second half, from the gradient `dreset` [B, H] of r h': writes the part of x_r in dx and du [B, 2H], and adds the
   gradient of h' through r h' to `dh`. */
API void NAME(gru_backward_reset)(const T *x, i64 xb, const T *u, const float *bias, const float *OPTIONAL scale,
                                  const float *OPTIONAL offset, const uint8_t *OPTIONAL mask, i64 mb,
                                  const float *before, i64 sb, const T *dreset, float *dh, T *dx, i64 db, T *du, i64 B,
                                  i64 H, i64 threads) {
    PARALLEL_FOR(B * H)
    for (i64 b = 0; b < B; b++) {
        const T *restrict xr = x + b * xb + H, *restrict drh = dreset + b * H;
        const float *restrict h = before + b * sb;
        float *restrict d = dh + b * H, q[2 * H];
        T *restrict dxz = dx + b * db, *restrict dxr = dxz + H;
        if (mask && !mask[b * mb]) {
            for (i64 j = 0; j < H; j++) dxr[j] = du[b * 2 * H + j] = du[b * 2 * H + H + j] = STORE(0.0f);
            continue;
        }
        NAME(product_row)(u + b * 2 * H, bias, scale, offset, 2 * H, 2 * H, q);
#pragma omp simd
        for (i64 j = 0; j < H; j++) {
            float r = gru_gate(LOAD(xr[j]), q[H + j], 0.0f), g = LOAD(drh[j]);
            q[j] = LOAD(dxz[j]), q[H + j] = g * h[j] * r * (1.0f - r);
            dxr[j] = STORE(q[H + j]);
            d[j] += g * r;
        }
        NAME(product_row_gradient)(u + b * 2 * H, scale, 2 * H, 2 * H, q, du + b * 2 * H);
    }
}

#endif
