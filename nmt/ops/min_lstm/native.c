/* minLSTM, see step.h. */

#define UNIT(name) NAME(min_lstm_##name)
#include "step.h"

INLINE void UNIT(gradient)(const float *x, const float *v, const float *before, const float *after, float *d, float *dx,
                           float *dv, int positive) {
    (void)after;
    UNIT(powers) e = UNIT(powers_of)(x[0] + v[0], x[1] + v[1]);
    float old = e.one + e.i, new = e.one + e.f, g = x[2] + v[2], slope = 1.0f, factor = 1.0f / (old + new);
    if (positive) slope = positive_slope(g), g = positive_part(g);
    float gate = d[0] * (before[0] - g) * factor * factor;
    dx[0] = gate * old * e.f, dx[1] = -gate * new * e.i, dx[2] = d[0] * new * factor * slope;
    dv[0] = dx[0], dv[1] = dx[1], dv[2] = dx[2];
    d[0] *= old * factor;
}

#include "scan.h"
