/* One channel of the LSTM, for the training kernels and the engine: c = sigmoid(i) tanh(g) + sigmoid(f) c',
   h = sigmoid(o) tanh(c), or `linear` in c. */

#ifndef NMT_LSTM_STEP_H
#define NMT_LSTM_STEP_H

#include "../native/simd.h"

INLINE float lstm_memory(float i, float f, float g, float c) { return sigmoid(i) * fast_tanh(g) + sigmoid(f) * c; }
INLINE float lstm_output(float o, float c, int linear) { return sigmoid(o) * (linear ? c : fast_tanh(c)); }

#endif
