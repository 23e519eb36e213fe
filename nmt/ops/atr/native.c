/* ATR: q = u + b, i = sigmoid(p + q) or 1 - f, f = sigmoid(p - q) or 1 - i, h = i p + f h', with a tanh on p or on h
   if asked. First one channel, for the training kernels and the engine. */

#include "../native/simd.h"

#define ATR_STATE 1     /* tanh on the new state */
#define ATR_CANDIDATE 2 /* tanh on the p that i gates */

#define ATR_COUPLED 1       /* i = 1 - f */
#define ATR_COUPLED_INPUT 2 /* f = 1 - i */

INLINE float atr_step(float p, float q, float h, int activation, int gates) {
    float f = gates == ATR_COUPLED_INPUT ? 1.0f - sigmoid(p + q) : sigmoid(p - q);
    float i = gates == ATR_COUPLED ? 1.0f - f : sigmoid(p + q);
    float y = i * (activation == ATR_CANDIDATE ? fast_tanh(p) : p) + f * h;
    return activation == ATR_STATE ? fast_tanh(y) : y;
}

/* A loop for each choice of options, as `Unit.code` has it, so that none of them decides anything inside. */
#define ATR_CHOOSE(code, row, ...)                                    \
    switch (code) {                                                   \
    case 0: row(__VA_ARGS__, 0, 0); break;                            \
    case 1: row(__VA_ARGS__, ATR_STATE, 0); break;                    \
    case 2: row(__VA_ARGS__, ATR_CANDIDATE, 0); break;                \
    case 3: row(__VA_ARGS__, 0, ATR_COUPLED); break;                  \
    case 4: row(__VA_ARGS__, ATR_STATE, ATR_COUPLED); break;          \
    case 5: row(__VA_ARGS__, ATR_CANDIDATE, ATR_COUPLED); break;      \
    case 6: row(__VA_ARGS__, 0, ATR_COUPLED_INPUT); break;            \
    case 7: row(__VA_ARGS__, ATR_STATE, ATR_COUPLED_INPUT); break;    \
    case 8: row(__VA_ARGS__, ATR_CANDIDATE, ATR_COUPLED_INPUT); break;\
    }

#ifndef UNIT_LOOPS /* the engine has loops of its own */

/* One time step: rows of x (p) have stride xb; u [B, H], the product of h' with the recurrent matrix, is contiguous, and
   normalised if there is a scale; states are fp32 [1, B, H], their rows have stride sb. Rows whose mask is 0 keep their
   state. */

INLINE void NAME(atr_row)(const T *restrict x, const float *restrict q, const float *h, float *new, T *rounded, i64 H,
                          int activation, int gates) {
#pragma omp simd
    for (i64 j = 0; j < H; j++) {
        float y = atr_step(LOAD(x[j]), q[j], h[j], activation, gates);
        new[j] = y, rounded[j] = STORE(y);
    }
}

API void NAME(atr_forward)(const T *x, i64 xb, const T *u, const float *bias, const float *OPTIONAL scale,
                           const float *OPTIONAL offset, const uint8_t *OPTIONAL mask, i64 mb, const float *before,
                           i64 bp, float *after, i64 ap, T *out, i64 sb, i64 B, i64 H, i64 code, i64 threads) {
    (void)bp, (void)ap; /* for units with more than one state */
    PARALLEL_FOR(B * H)
    for (i64 b = 0; b < B; b++) {
        const float *h = before + b * sb;
        float *new = after + b * sb;
        T *rounded = out + b * sb;
        if (mask && !mask[b * mb]) {
            for (i64 j = 0; j < H; j++) new[j] = h[j], rounded[j] = STORE(h[j]);
            continue;
        }
        float q[H];
        NAME(product_row)(u + b * H, bias, scale, offset, H, H, q);
        ATR_CHOOSE(code, NAME(atr_row), x + b * xb, q, h, new, rounded, H)
    }
}

/* `sums` is first q and finally its gradient. */
INLINE void NAME(atr_gradient_row)(const T *restrict x, float *restrict sums, const float *restrict h,
                                   const float *restrict new, float *restrict d, T *restrict dx, i64 H, int activation,
                                   int gates) {
#pragma omp simd
    for (i64 j = 0; j < H; j++) {
        float p = LOAD(x[j]), q = sums[j];
        float f = gates == ATR_COUPLED_INPUT ? 1.0f - sigmoid(p + q) : sigmoid(p - q);
        float i = gates == ATR_COUPLED ? 1.0f - f : sigmoid(p + q);
        float candidate = activation == ATR_CANDIDATE ? fast_tanh(p) : p;
        float g = activation == ATR_STATE ? d[j] * (1.0f - new[j] * new[j]) : d[j];
        float di = g * (gates == ATR_COUPLED_INPUT ? candidate - h[j] : candidate) * i * (1.0f - i);
        float df = g * (gates == ATR_COUPLED ? h[j] - candidate : h[j]) * f * (1.0f - f);
        if (gates == ATR_COUPLED) di = 0.0f;
        if (gates == ATR_COUPLED_INPUT) df = 0.0f;
        float dc = activation == ATR_CANDIDATE ? g * i * (1.0f - candidate * candidate) : g * i;
        dx[j] = STORE(dc + di + df), sums[j] = di - df;
        d[j] = g * f;
    }
}

/* `dh` [1, B, H] fp32 is first the gradient of the new state and finally the gradient of the old state, without its part
   through u; the gradient of u is written to du [B, H], that of q, if there is a norm, to dq; `dout`, if any, is added
   first. */
API void NAME(atr_backward)(const T *x, i64 xb, const T *u, const float *bias, const float *OPTIONAL scale,
                            const float *OPTIONAL offset, const uint8_t *OPTIONAL mask, i64 mb, const float *before,
                            i64 bp, const float *after, i64 ap, i64 sb, const T *OPTIONAL dout, i64 ob, float *dh,
                            T *dx, i64 db, T *du, T *OPTIONAL dq, i64 B, i64 H, i64 code, i64 threads) {
    (void)bp, (void)ap;
    PARALLEL_FOR(B * H)
    for (i64 b = 0; b < B; b++) {
        float *restrict d = dh + b * H;
        if (dout) NAME(add_row)(d, dout + b * ob, H);
        if (mask && !mask[b * mb]) {
            for (i64 j = 0; j < H; j++) dx[b * db + j] = du[b * H + j] = STORE(0.0f);
            for (i64 j = 0; dq && j < H; j++) dq[b * H + j] = STORE(0.0f);
            continue;
        }
        float sums[H];
        NAME(product_row)(u + b * H, bias, scale, offset, H, H, sums);
        ATR_CHOOSE(code, NAME(atr_gradient_row), x + b * xb, sums, before + b * sb, after + b * sb, d, dx + b * db, H)
        NAME(product_row_gradient)(u + b * H, scale, H, H, sums, du + b * H);
        if (dq)
            for (i64 j = 0; j < H; j++) dq[b * H + j] = STORE(sums[j]);
    }
}

#endif
