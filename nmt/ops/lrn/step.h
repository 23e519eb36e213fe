/* LRN: i = sigmoid(p + h'), f = sigmoid(q - h'), h = i r + f h', or the tanh of it; x = p, q, r.

   One channel, for the training kernels and the engine; the numbers and options are those of scan.h. */

#include "../native/simd.h"

#define INPUTS 3
#define STATES 1
#define VECTORS 0
#define OPTIONS 1

INLINE void UNIT(step)(const float *x, const float *v, float *state, int tanh) {
    (void)v; /* no weights */
    float h = sigmoid(x[0] + state[0]) * x[2] + sigmoid(x[1] - state[0]) * state[0];
    state[0] = tanh ? fast_tanh(h) : h;
}
