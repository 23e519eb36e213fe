/* minGRU: z = sigmoid(x_z + b_z), g = x_h + b_h, h = (1 - z) h' + z g; x = x_z, x_h, v = b_z, b_h. */

#include "../native/simd.h"

#define UNIT(name) NAME(min_gru_##name)
#define INPUTS 2
#define STATES 1
#define VECTORS 2
#define OPTIONS 1

INLINE void UNIT(step)(const float *x, const float *v, float *state, int positive) {
    float g = x[1] + v[1];
    if (positive) g = positive_part(g);
    state[0] += sigmoid(x[0] + v[0]) * (g - state[0]);
}

INLINE void UNIT(gradient)(const float *x, const float *v, const float *before, const float *after, float *d, float *dx,
                           float *dv, int positive) {
    (void)after;
    float z = sigmoid(x[0] + v[0]), g = x[1] + v[1], slope = 1.0f;
    if (positive) slope = positive_slope(g), g = positive_part(g);
    dx[0] = d[0] * (g - before[0]) * z * (1.0f - z), dx[1] = d[0] * z * slope;
    dv[0] = dx[0], dv[1] = dx[1];
    d[0] *= 1.0f - z;
}

#include "../native/scan.h"
