/* oLRN: c is the state of LRN after p, q, r and h', h = sigmoid(s - c) c; x = p, q, r, s. */

#include "../native/simd.h"

#define UNIT(name) NAME(olrn_##name)
#define INPUTS 4
#define STATES 1
#define VECTORS 0
#define OPTIONS 1

INLINE void UNIT(step)(const float *x, const float *v, float *state, int tanh) {
    (void)v; /* no weights */
    float c = sigmoid(x[0] + state[0]) * x[2] + sigmoid(x[1] - state[0]) * state[0];
    if (tanh) c = fast_tanh(c);
    state[0] = sigmoid(x[3] - c) * c;
}

INLINE void UNIT(gradient)(const float *x, const float *v, const float *before, const float *after, float *d, float *dx,
                           float *dv, int tanh) {
    (void)v, (void)dv, (void)after;
    float h = before[0], i = sigmoid(x[0] + h), f = sigmoid(x[1] - h), c = i * x[2] + f * h;
    if (tanh) c = fast_tanh(c);
    float o = sigmoid(x[3] - c);
    dx[3] = d[0] * c * o * (1.0f - o);
    float g = d[0] * o - dx[3];
    if (tanh) g *= 1.0f - c * c;
    dx[0] = g * x[2] * i * (1.0f - i), dx[1] = g * h * f * (1.0f - f), dx[2] = g * i;
    d[0] = g * f + dx[0] - dx[1];
}

#include "../native/scan.h"
