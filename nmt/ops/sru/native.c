/* SRU, see step.h. */

#define UNIT(name) NAME(sru_##name)
#include "step.h"

INLINE void UNIT(gradient)(const float *x, const float *v, const float *before, const float *after, float *d, float *dx,
                           float *dv, int options) {
    (void)options;
    float c = before[1], r = sigmoid(x[0] + v[1] * c), f = sigmoid(x[1] + v[0] * c), g = d[1] + d[0] * r;
    dx[0] = d[0] * (after[1] - x[3]) * r * (1.0f - r), dx[1] = g * (c - x[2]) * f * (1.0f - f);
    dx[2] = g * (1.0f - f), dx[3] = d[0] * (1.0f - r);
    dv[0] = dx[1] * c, dv[1] = dx[0] * c;
    d[0] = 0.0f, d[1] = g * f + dx[1] * v[0] + dx[0] * v[1];
}

#include "scan.h"
