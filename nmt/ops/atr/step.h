/* One channel of ATR, for the training kernels and the engine: q = u + b, i = sigmoid(p + q) or 1 - f,
   f = sigmoid(p - q) or 1 - i, h = i p + f h', with a tanh on p or on h if asked. */

#ifndef NMT_ATR_STEP_H
#define NMT_ATR_STEP_H

#include "../native/simd.h"

#define ATR_STATE 1     /* tanh on the new state */
#define ATR_CANDIDATE 2 /* tanh on the p that i gates */

#define ATR_COUPLED 1       /* i = 1 - f */
#define ATR_COUPLED_INPUT 2 /* f = 1 - i */

INLINE float atr_step(float p, float q, float h, int activation, int gates) {
    float f = gates == ATR_COUPLED_INPUT ? 1.0f - sigmoid(p + q) : sigmoid(p - q);
    float i = gates == ATR_COUPLED ? 1.0f - f : sigmoid(p + q);
    float y = i * (activation == ATR_CANDIDATE ? fast_tanh(p) : p) + f * h;
    return activation == ATR_STATE ? fast_tanh(y) : y;
}

/* A loop for each choice, so that none of them decides anything inside. */
#define ATR_CHOOSE(row, ...)                                          \
    switch (activation + 3 * gates) {                                 \
    case 0: row(__VA_ARGS__, 0, 0); break;                            \
    case 1: row(__VA_ARGS__, ATR_STATE, 0); break;                    \
    case 2: row(__VA_ARGS__, ATR_CANDIDATE, 0); break;                \
    case 3: row(__VA_ARGS__, 0, ATR_COUPLED); break;                  \
    case 4: row(__VA_ARGS__, ATR_STATE, ATR_COUPLED); break;          \
    case 5: row(__VA_ARGS__, ATR_CANDIDATE, ATR_COUPLED); break;      \
    case 6: row(__VA_ARGS__, 0, ATR_COUPLED_INPUT); break;            \
    case 7: row(__VA_ARGS__, ATR_STATE, ATR_COUPLED_INPUT); break;    \
    case 8: row(__VA_ARGS__, ATR_CANDIDATE, ATR_COUPLED_INPUT); break;\
    }

#endif
