/* oLRN: c is the state of LRN after p, q, r and h', h = sigmoid(s - c) c; x = p, q, r, s.

   One channel, for the training kernels and the engine; the numbers and options are those of scan.h. */

#include "../native/simd.h"

#define INPUTS 4
#define STATES 1
#define VECTORS 0
#define OPTIONS 1

INLINE void UNIT(step)(const float *x, const float *v, float *state, int tanh) {
    (void)v; /* no weights */
    float c = sigmoid(x[0] + state[0]) * x[2] + sigmoid(x[1] - state[0]) * state[0];
    if (tanh) c = fast_tanh(c);
    state[0] = sigmoid(x[3] - c) * c;
}
