/* One channel of the GRU, for the training kernels and the engine: z, r = sigmoid(x_zr + u + b), g = tanh(x_h + v + d),
   h = z h' + (1 - z) g. */

#ifndef NMT_GRU_STEP_H
#define NMT_GRU_STEP_H

#include "../native/simd.h"

INLINE float gru_gate(float x, float u, float bias) { return sigmoid(x + u + bias); }
INLINE float gru_candidate(float x, float v, float bias) { return fast_tanh(x + v + bias); }
INLINE float gru_step(float z, float g, float h) { return g + z * (h - g); }

#endif
