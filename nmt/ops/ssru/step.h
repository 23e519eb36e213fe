/* SSRU: f = sigmoid(x_f + b_f), c = f c' + (1 - f) x_c, h = relu(c); x = x_f, x_c, v = b_f, state = h, c.

   One channel, for the training kernels and the engine; the numbers and options are those of scan.h. */

#include "../native/simd.h"

#define INPUTS 2
#define STATES 2
#define VECTORS 1
#define OPTIONS 0

INLINE void UNIT(step)(const float *x, const float *v, float *state, int options) {
    (void)options; /* none */
    float c = x[1] + sigmoid(x[0] + v[0]) * (state[1] - x[1]);
    state[0] = c < 0.0f ? 0.0f : c; /* NaN stays */
    state[1] = c;
}
