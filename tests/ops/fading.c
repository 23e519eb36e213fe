/* Fading: f = sigmoid(a + v h'), h = f h' + (1 - f) b, without (1 - f) if it is `open`; x = a, b. */

#include "simd.h"

#define UNIT(name) NAME(fading_##name)
#define INPUTS 2
#define STATES 1
#define VECTORS 1
#define OPTIONS 1

INLINE void UNIT(step)(const float *x, const float *v, float *state, int open) {
    float f = sigmoid(x[0] + v[0] * state[0]);
    state[0] = f * state[0] + (open ? x[1] : (1.0f - f) * x[1]);
}

INLINE void UNIT(gradient)(const float *x, const float *v, const float *before, const float *after, float *d, float *dx,
                           float *dv, int open) {
    (void)after;
    float h = before[0], f = sigmoid(x[0] + v[0] * h);
    dx[0] = d[0] * (open ? h : h - x[1]) * f * (1.0f - f);
    dx[1] = open ? d[0] : d[0] * (1.0f - f);
    dv[0] = dx[0] * h;
    d[0] = d[0] * f + dx[0] * v[0];
}

#include "scan.h"
