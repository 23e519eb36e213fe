/* SRU: f = sigmoid(x_f + v_f c'), c = f c' + (1 - f) x_c, r = sigmoid(x_r + v_r c'), h = r c + (1 - r) x_h;
   x = x_r, x_f, x_c, x_h, v = v_f, v_r, state = h, c.

   One channel, for the training kernels and the engine; the numbers and options are those of scan.h. */

#include "../native/simd.h"

#define INPUTS 4
#define STATES 2
#define VECTORS 2
#define OPTIONS 0

INLINE void UNIT(step)(const float *x, const float *v, float *state, int options) {
    (void)options; /* none */
    float c = state[1], r = sigmoid(x[0] + v[1] * c), f = sigmoid(x[1] + v[0] * c);
    state[1] = x[2] + f * (c - x[2]);
    state[0] = x[3] + r * (state[1] - x[3]);
}
