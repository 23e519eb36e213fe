/* minLSTM: f = sigmoid(x_f + b_f), i = sigmoid(x_i + b_i), g = x_h + b_h, h = f / (f + i) h' + i / (f + i) g;
   x = x_f, x_i, x_h, v = b_f, b_i, b_h. */

#include "positive.h"

#define UNIT(name) NAME(min_lstm_##name)
#define INPUTS 3
#define STATES 1
#define VECTORS 3
#define OPTIONS 1

/* f / (f + i) = 1 / (1 + i / f), and 1 / sigmoid(x) = e^max(-x, 0) (1 + e^-|x|): no quotient of two values that are both
   too small for a float. `f_near` and `i_near` are e^-|x|. */
INLINE float UNIT(share)(float x_f, float x_i, float f_near, float i_near) {
    float f_far = x_f < 0.0f ? -x_f : 0.0f, i_far = x_i < 0.0f ? -x_i : 0.0f;
    return 1.0f / (1.0f + fast_exp(f_far - i_far) * ((1.0f + f_near) / (1.0f + i_near)));
}

/* 1 - sigmoid(x), from e^-|x|. */
INLINE float UNIT(rest)(float x, float near) { return (x < 0.0f ? 1.0f : near) / (1.0f + near); }

INLINE void UNIT(step)(const float *x, const float *v, float *state, int positive) {
    float f = x[0] + v[0], i = x[1] + v[1], g = x[2] + v[2];
    if (positive) g = positive_part(g);
    state[0] = g + UNIT(share)(f, i, fast_exp(-fabsf(f)), fast_exp(-fabsf(i))) * (state[0] - g);
}

INLINE void UNIT(gradient)(const float *x, const float *v, const float *before, const float *after, float *d, float *dx,
                           float *dv, int positive) {
    (void)after;
    float f = x[0] + v[0], i = x[1] + v[1], g = x[2] + v[2], slope = 1.0f;
    if (positive) slope = positive_slope(g), g = positive_part(g);
    float f_near = fast_exp(-fabsf(f)), i_near = fast_exp(-fabsf(i)), share = UNIT(share)(f, i, f_near, i_near);
    float gate = d[0] * (before[0] - g) * share * (1.0f - share);
    dx[0] = gate * UNIT(rest)(f, f_near), dx[1] = -gate * UNIT(rest)(i, i_near);
    dx[2] = d[0] * (1.0f - share) * slope;
    dv[0] = dx[0], dv[1] = dx[1], dv[2] = dx[2];
    d[0] *= share;
}

#include "scan.h"
