/* minLSTM: f = sigmoid(x_f + b_f), i = sigmoid(x_i + b_i), g = x_h + b_h, h = f / (f + i) h' + i / (f + i) g;
   x = x_f, x_i, x_h, v = b_f, b_i, b_h.

   With the arguments f and i of the sigmoids, f / (f + i) = (1 + e^-i) / (2 + e^-f + e^-i). Numerator and denominator
   are multiplied by e^-m, m being the greatest of 0, -f and -i: no power overflows, and the denominator is 1 or more. */

#include "../native/simd.h"

#define UNIT(name) NAME(min_lstm_##name)
#define INPUTS 3
#define STATES 1
#define VECTORS 3
#define OPTIONS 1

/* e^-m, e^(-f - m) and e^(-i - m). */
typedef struct { float one, f, i; } UNIT(powers);

INLINE UNIT(powers) UNIT(powers_of)(float f, float i) {
    float m = f < 0.0f ? -f : 0.0f;
    m = m < -i ? -i : m;
    return (UNIT(powers)){fast_exp(-m), fast_exp(-f - m), fast_exp(-i - m)};
}

INLINE void UNIT(step)(const float *x, const float *v, float *state, int positive) {
    UNIT(powers) e = UNIT(powers_of)(x[0] + v[0], x[1] + v[1]);
    float old = e.one + e.i, new = e.one + e.f, g = x[2] + v[2];
    if (positive) g = positive_part(g);
    state[0] = (old * state[0] + new * g) / (old + new);
}

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

#include "../native/scan.h"
