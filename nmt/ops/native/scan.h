/* A unit whose steps need no matrix product, over time. Include this file at the end of the unit's C file, which must
   include simd.h and then define, for one channel, what follows. The engine includes the C files of nmt's units with
   loops of its own, UNIT_LOOPS, instead.

   UNIT(name)   for example NAME(lrn_##name): the names of its functions
   INPUTS, STATES, VECTORS, OPTIONS   the numbers of its products, of the tensors of its state, its weights and options
   UNIT(step)(x, v, state, options): x[INPUTS], v[VECTORS]; `state`, with h first, is replaced by the new state
   UNIT(gradient)(x, v, before, after, d, dx, dv, options): from the states before and after the step; d, the gradient
   of the state after, is replaced by the gradient of the state before; dx[INPUTS] and dv[VECTORS] are written

   The sequences x [B, T, cells * INPUTS * H] have strides xb and xt, mask [B, T] mb and mt. States are fp32
   [STATES, T, B, H] with stride bp or ap between tensors, sb between rows and st between steps: `before` has the state
   before step t, `after` the state after it. Rows whose mask is 0 keep their state. Bit 0 of `form` means that there
   are two cells, and the second starts from the state of the first; the bits above are `options`, bit i is option i. */

#ifdef UNIT_LOOPS
#include UNIT_LOOPS
#else

_Static_assert(INPUTS <= 8 && STATES <= 8 && VECTORS <= 8 && OPTIONS <= 2, "more than EACH has written out");

/* A step of cell c, and its gradient, for channel j. */
INLINE void UNIT(step_at)(const T *restrict x, const float *restrict v, i64 c, i64 H, i64 j, float *state,
                          const int options) {
    float in[INPUTS], weight[VECTORS + 1];
#define SCAN_INPUT(i) in[i] = LOAD(x[(c * INPUTS + i) * H + j])
#define SCAN_WEIGHT(i) weight[i] = v[(c * VECTORS + i) * H + j]
    EACH(INPUTS, SCAN_INPUT)
    EACH(VECTORS, SCAN_WEIGHT)
    UNIT(step)(in, weight, state, options);
}

INLINE void UNIT(gradient_at)(const T *restrict x, const float *restrict v, i64 c, i64 H, i64 j, const float *before,
                              const float *after, float *d, T *restrict dx, float *restrict dv, i64 gp,
                              const int options) {
    float in[INPUTS], weight[VECTORS + 1], d_in[INPUTS], d_weight[VECTORS + 1];
    EACH(INPUTS, SCAN_INPUT)
    EACH(VECTORS, SCAN_WEIGHT)
    UNIT(gradient)(in, weight, before, after, d, d_in, d_weight, options);
#define SCAN_D_INPUT(i) dx[(c * INPUTS + i) * H + j] = STORE(d_in[i])
#define SCAN_D_WEIGHT(i) dv[(c * VECTORS + i) * gp + j] += d_weight[i]
    EACH(INPUTS, SCAN_D_INPUT)
    EACH(VECTORS, SCAN_D_WEIGHT)
}

INLINE void UNIT(forward_at)(const T *restrict x, const float *restrict v, const float *before, i64 bp, float *after,
                             i64 ap, T *out, i64 H, i64 j, const int cells, const int options) {
    float state[STATES];
#define SCAN_BEFORE(p) state[p] = before[p * bp + j]
#define SCAN_AFTER(p) after[p * ap + j] = state[p]
    EACH(STATES, SCAN_BEFORE)
    UNIT(step_at)(x, v, 0, H, j, state, options);
    if (cells == 2) UNIT(step_at)(x, v, 1, H, j, state, options);
    EACH(STATES, SCAN_AFTER)
    out[j] = STORE(state[0]);
}

INLINE void UNIT(backward_at)(const T *restrict x, const float *restrict v, const float *restrict before, i64 bp,
                              const float *restrict after, i64 ap, float *restrict gradient, i64 gp, T *restrict dx,
                              float *restrict dv, i64 H, i64 j, const int cells, const int options) {
    float state[STATES], between[STATES], end[STATES], d[STATES];
#define SCAN_STATES(p) between[p] = state[p], end[p] = after[p * ap + j], d[p] = gradient[p * gp + j]
#define SCAN_LEAVE(p) gradient[p * gp + j] = d[p]
    EACH(STATES, SCAN_BEFORE)
    EACH(STATES, SCAN_STATES)
    if (cells == 2) {
        UNIT(step_at)(x, v, 0, H, j, between, options);
        UNIT(gradient_at)(x, v, 1, H, j, between, end, d, dx, dv, gp, options);
        UNIT(gradient_at)(x, v, 0, H, j, state, between, d, dx, dv, gp, options);
    } else {
        UNIT(gradient_at)(x, v, 0, H, j, state, end, d, dx, dv, gp, options);
    }
    EACH(STATES, SCAN_LEAVE)
}

/* A row in the requested form, which is a constant here, so that the loop over channels has no branches. */
#define SCAN_FORM(number, channel, ...)                                                        \
    case number:                                                                               \
        if ((number) >> 1 >> OPTIONS == 0) {                                                   \
            PRAGMA(omp simd)                                                                   \
            for (i64 j = 0; j < H; j++) UNIT(channel)(__VA_ARGS__, H, j, 1 + ((number) & 1), (number) >> 1); \
        }                                                                                      \
        break;
#define SCAN_ROW(...)                                                                                           \
    switch (form) {                                                                                             \
        SCAN_FORM(0, __VA_ARGS__) SCAN_FORM(1, __VA_ARGS__) SCAN_FORM(2, __VA_ARGS__) SCAN_FORM(3, __VA_ARGS__) \
        SCAN_FORM(4, __VA_ARGS__) SCAN_FORM(5, __VA_ARGS__) SCAN_FORM(6, __VA_ARGS__) SCAN_FORM(7, __VA_ARGS__) \
    }

API void UNIT(forward)(const T *x, i64 xb, i64 xt, const float *v, const uint8_t *OPTIONAL mask, i64 mb, i64 mt,
                       const float *before, i64 bp, float *after, i64 ap, i64 sb, i64 st, T *out, i64 ob, i64 ot, i64 B,
                       i64 steps, i64 H, i64 reverse, i64 form, i64 threads) {
    PARALLEL_FOR(B * steps * H)
    for (i64 b = 0; b < B; b++)
        for (i64 k = 0; k < steps; k++) {
            i64 t = reverse ? steps - 1 - k : k, at = b * sb + t * st;
            T *y = out + b * ob + t * ot;
            if (!mask || mask[b * mb + t * mt]) {
                SCAN_ROW(forward_at, x + b * xb + t * xt, v, before + at, bp, after + at, ap, y)
                continue;
            }
            for (i64 p = 0; p < STATES; p++)
                for (i64 j = 0; j < H; j++) after[p * ap + at + j] = before[p * bp + at + j];
            for (i64 j = 0; j < H; j++) y[j] = STORE(before[at + j]);
        }
}

/* `d` [STATES, B, H] fp32 is first the gradient of the last state and finally the gradient of the initial state; dout
   [B, T, H], if any, is added to the gradient of h in each step. dx has the shape of x and its own strides. The
   weights' gradients of each row are added to dv [cells * VECTORS, B, H] fp32, so that their sum does not depend on the
   number of threads. */
API void UNIT(backward)(const T *x, i64 xb, i64 xt, const float *v, const uint8_t *OPTIONAL mask, i64 mb, i64 mt,
                        const float *before, i64 bp, const float *after, i64 ap, i64 sb, i64 st, const T *OPTIONAL dout,
                        i64 ob, i64 ot, float *d, T *dx, i64 db, i64 dt, float *dv, i64 B, i64 steps, i64 H,
                        i64 reverse, i64 form, i64 threads) {
    const i64 cells = 1 + (form & 1);
    PARALLEL_FOR(B * steps * H)
    for (i64 b = 0; b < B; b++)
        for (i64 k = 0; k < steps; k++) {
            i64 t = reverse ? k : steps - 1 - k, at = b * sb + t * st;
            float *restrict dh = d + b * H;
            T *dp = dx + b * db + t * dt;
            if (dout) NAME(add_row)(dh, dout + b * ob + t * ot, H);
            if (mask && !mask[b * mb + t * mt]) {
                for (i64 j = 0; j < cells * INPUTS * H; j++) dp[j] = STORE(0.0f);
                continue;
            }
            SCAN_ROW(backward_at, x + b * xb + t * xt, v, before + at, bp, after + at, ap, dh, B * H, dp, dv + b * H)
        }
}

#undef SCAN_FORM
#undef SCAN_ROW

#endif

#undef UNIT
#undef INPUTS
#undef STATES
#undef VECTORS
#undef OPTIONS
