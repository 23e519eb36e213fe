/* SSRU, see step.h. */

#define UNIT(name) NAME(ssru_##name)
#include "step.h"

INLINE void UNIT(gradient)(const float *x, const float *v, const float *before, const float *after, float *d, float *dx,
                           float *dv, int options) {
    (void)options;
    float f = sigmoid(x[0] + v[0]), g = d[1] + (after[1] <= 0.0f ? 0.0f : d[0]);
    dx[0] = g * (before[1] - x[1]) * f * (1.0f - f), dx[1] = g * (1.0f - f);
    dv[0] = dx[0];
    d[0] = 0.0f, d[1] = g * f;
}

#include "scan.h"
