/* What a search asks of the logits of a row: their sum in the softmax, the largest, the k best. */

#ifndef NMT_BEST_H
#define NMT_BEST_H

#include "kernels.h"
#include "vectors.h"

/* Blocks are summed up in float, and their sums in double. */
static float log_sum_parts(const float *x, i64 n, double *sum) {
    enum { BLOCK = 512 };
    int odd;
    float powers[BLOCK], top = largest(x, n, -INFINITY, 0, &odd);
    *sum = odd ? NAN : 0.0;
    if (odd) return NAN;
    for (i64 start = 0; start < n; start += BLOCK) {
        const i64 width = n - start < BLOCK ? n - start : BLOCK;
#pragma omp simd
        for (i64 i = 0; i < width; i++) powers[i] = fast_exp(x[start + i] - top);
        *sum += (double)sum_of(powers, width);
    }
    return top;
}

static i64 first_maximum(const float *x, i64 n) {
    enum { BLOCK = 64 };
    int odd;
    const float top = largest(x, n, -INFINITY, 0, &odd);
    for (i64 start = 0; start < n; start += BLOCK) {
        const i64 end = n - start < BLOCK ? n : start + BLOCK;
        int found = 0;
#pragma omp simd reduction(| : found)
        for (i64 i = start; i < end; i++) found |= x[i] == top;
        if (found)
            for (i64 i = start; i < end; i++)
                if (x[i] == top) return i;
    }
    return 0;
}

/* Blocks without a value above the last of the best are passed over. */
static i64 add_best(const float *x, i64 n, float add, int32_t first_id, scored_id *best, i64 count, i64 k) {
    enum { BLOCK = 32 };
    if (k <= 0) return count;
    for (i64 start = 0; start < n; start += BLOCK) {
        const i64 end = n - start < BLOCK ? n : start + BLOCK;
        if (count == k) {
            const float worst = best[k - 1].value;
            int found = 0;
#pragma omp simd reduction(| : found)
            for (i64 i = start; i < end; i++) found |= x[i] + add > worst;
            if (!found) continue;
        }
        for (i64 i = start; i < end; i++) {
            const float value = x[i] + add;
            if (count == k ? !(value > best[k - 1].value) : value != value) continue;
            i64 at = count < k ? count++ : k - 1;
            for (; at > 0 && value > best[at - 1].value; at--) best[at] = best[at - 1];
            best[at] = (scored_id){value, first_id + (int32_t)i};
        }
    }
    return count;
}

#endif
