/* minLSTM: f = sigmoid(x_f + b_f), i = sigmoid(x_i + b_i), g = x_h + b_h, h = f / (f + i) h' + i / (f + i) g;
   x = x_f, x_i, x_h, v = b_f, b_i, b_h.

   With the arguments f and i of the sigmoids, f / (f + i) = (1 + e^-i) / (2 + e^-f + e^-i). Numerator and denominator
   are multiplied by e^-m, m being the greatest of 0, -f and -i: no power overflows, and the denominator is 1 or more.

   One channel, for the training kernels and the engine; the numbers and options are those of scan.h. */

#include "../native/positive.h"

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
