/* minGRU: z = sigmoid(x_z + b_z), g = x_h + b_h, h = (1 - z) h' + z g; x = x_z, x_h, v = b_z, b_h.

   One channel, for the training kernels and the engine; the numbers and options are those of scan.h. */

#include "../native/positive.h"

#define INPUTS 2
#define STATES 1
#define VECTORS 2
#define OPTIONS 1

INLINE void UNIT(step)(const float *x, const float *v, float *state, int positive) {
    float g = x[1] + v[1];
    if (positive) g = positive_part(g);
    state[0] += sigmoid(x[0] + v[0]) * (g - state[0]);
}
