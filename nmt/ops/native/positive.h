/* The function that keeps the state of minGRU and minLSTM positive, see nmt/ops/min_gru. */

#ifndef NMT_POSITIVE_H
#define NMT_POSITIVE_H

#include "simd.h"

/* x + 1/2 where x >= 0, else the sigmoid of x. */
INLINE float positive_part(float x) {
    float low = sigmoid(x);
    return x >= 0.0f ? x + 0.5f : low;
}

/* Its derivative. */
INLINE float positive_slope(float x) {
    float low = sigmoid(x);
    return x >= 0.0f ? 1.0f : low * (1.0f - low);
}

#endif
