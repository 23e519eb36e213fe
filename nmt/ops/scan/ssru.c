/* SSRU: f = sigmoid(x_f + b_f), c = f c' + (1 - f) x_c, h = relu(c); x = x_f, x_c, v = b_f, state = h, c. */

#include "../native/simd.h"

#define UNIT(name) NAME(ssru_##name)
#define INPUTS 2
#define STATES 2
#define VECTORS 1
#define OPTIONS 0

INLINE void UNIT(step)(const float *x, const float *v, float *state, int options) {
    (void)options; /* none */
    float c = x[1] + sigmoid(x[0] + v[0]) * (state[1] - x[1]);
    state[0] = c < 0.0f ? 0.0f : c; /* NaN stays */
    state[1] = c;
}

INLINE void UNIT(gradient)(const float *x, const float *v, const float *before, const float *after, float *d, float *dx,
                           float *dv, int options) {
    (void)options;
    float f = sigmoid(x[0] + v[0]), g = d[1] + (after[1] <= 0.0f ? 0.0f : d[0]);
    dx[0] = g * (before[1] - x[1]) * f * (1.0f - f), dx[1] = g * (1.0f - f);
    dv[0] = dx[0];
    d[0] = 0.0f, d[1] = g * f;
}

#include "../native/scan.h"
