/* SRU: f = sigmoid(x_f + v_f c'), c = f c' + (1 - f) x_c, r = sigmoid(x_r + v_r c'), h = r c + (1 - r) x_h;
   x = x_r, x_f, x_c, x_h, v = v_f, v_r, state = h, c. */

#include "../native/simd.h"

#define UNIT(name) NAME(sru_##name)
#define INPUTS 4
#define STATES 2
#define VECTORS 2
#define OPTIONS 0

INLINE void UNIT(step)(const float *x, const float *v, float *state, int options) {
    (void)options; /* none */
    float c = state[1], r = sigmoid(x[0] + v[1] * c), f = sigmoid(x[1] + v[0] * c);
    state[1] = x[2] + f * (c - x[2]);
    state[0] = x[3] + r * (state[1] - x[3]);
}

INLINE void UNIT(gradient)(const float *x, const float *v, const float *before, const float *after, float *d, float *dx,
                           float *dv, int options) {
    (void)options;
    float c = before[1], r = sigmoid(x[0] + v[1] * c), f = sigmoid(x[1] + v[0] * c), g = d[1] + d[0] * r;
    dx[0] = d[0] * (after[1] - x[3]) * r * (1.0f - r), dx[1] = g * (c - x[2]) * f * (1.0f - f);
    dx[2] = g * (1.0f - f), dx[3] = d[0] * (1.0f - r);
    dv[0] = dx[1] * c, dv[1] = dx[0] * c;
    d[0] = 0.0f, d[1] = g * f + dx[1] * v[0] + dx[0] * v[1];
}

#include "../native/scan.h"
