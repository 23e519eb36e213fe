/* LRN, see step.h. */

#define UNIT(name) NAME(lrn_##name)
#include "step.h"

INLINE void UNIT(gradient)(const float *x, const float *v, const float *before, const float *after, float *d, float *dx,
                           float *dv, int tanh) {
    (void)v, (void)dv;
    float h = before[0], i = sigmoid(x[0] + h), f = sigmoid(x[1] - h), g = d[0];
    if (tanh) g *= 1.0f - after[0] * after[0];
    dx[0] = g * x[2] * i * (1.0f - i), dx[1] = g * h * f * (1.0f - f), dx[2] = g * i;
    d[0] = g * f + dx[0] - dx[1];
}

#include "scan.h"
