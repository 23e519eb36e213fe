/* minGRU, see step.h. */

#define UNIT(name) NAME(min_gru_##name)
#include "step.h"

INLINE void UNIT(gradient)(const float *x, const float *v, const float *before, const float *after, float *d, float *dx,
                           float *dv, int positive) {
    (void)after;
    float z = sigmoid(x[0] + v[0]), g = x[1] + v[1], slope = 1.0f;
    if (positive) slope = positive_slope(g), g = positive_part(g);
    dx[0] = d[0] * (g - before[0]) * z * (1.0f - z), dx[1] = d[0] * z * slope;
    dv[0] = dx[0], dv[1] = dx[1];
    d[0] *= 1.0f - z;
}

#include "scan.h"
