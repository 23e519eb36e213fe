/* LRN: i = sigmoid(p + h'), f = sigmoid(q - h'), h = i r + f h', or the tanh of it; x = p, q, r. */

#include "../native/simd.h"

#define UNIT(name) NAME(lrn_##name)
#define INPUTS 3
#define STATES 1
#define VECTORS 0
#define OPTIONS 1

INLINE void UNIT(step)(const float *x, const float *v, float *state, int tanh) {
    (void)v; /* no weights */
    float h = sigmoid(x[0] + state[0]) * x[2] + sigmoid(x[1] - state[0]) * state[0];
    state[0] = tanh ? fast_tanh(h) : h;
}

INLINE void UNIT(gradient)(const float *x, const float *v, const float *before, const float *after, float *d, float *dx,
                           float *dv, int tanh) {
    (void)v, (void)dv;
    float h = before[0], i = sigmoid(x[0] + h), f = sigmoid(x[1] - h), g = d[0];
    if (tanh) g *= 1.0f - after[0] * after[0];
    dx[0] = g * x[2] * i * (1.0f - i), dx[1] = g * h * f * (1.0f - f), dx[2] = g * i;
    d[0] = g * f + dx[0] - dx[1];
}

#include "../native/scan.h"
