/* What surrounds the integer product of an int8 matrix: rows to int8 with a scale each, and sums back to numbers. */

#include "simd.h"

/* q[n, j] = round(x[n, j] / s_n), s_n = max_j |x[n, j]| / 127, at least `least`; ties to even. Rows of q are qn wide,
   filled up with zeros. excess_n = 128 sum_j q[n, j], see narrow/native.c. With a NaN in a row s_n is NaN. */
API void NAME(int8_rows)(const T *x, i64 xn, int8_t *q, i64 qn, float *scales, int32_t *excess, i64 N, i64 K, float least,
                         i64 threads) {
    PARALLEL_FOR(N * K)
    for (i64 n = 0; n < N; n++) {
        const T *restrict from = x + n * xn;
        int8_t *restrict to = q + n * qn;
        float top = 0.0f;
        int bad = 0;
#pragma omp simd reduction(max : top) reduction(| : bad)
        for (i64 j = 0; j < K; j++) {
            float y = fabsf(LOAD(from[j]));
            top = y > top ? y : top;
            bad |= y != y;
        }
        if (bad) { /* no integer is NaN, so the scale must be */
            for (i64 j = 0; j < qn; j++) to[j] = 0;
            scales[n] = NAN;
            excess[n] = 0;
            continue;
        }
        float scale = top / 127.0f;
        scale = scale < least ? least : scale;
        scales[n] = scale;
        int32_t sum = 0;
#pragma omp simd reduction(+ : sum)
        for (i64 j = 0; j < K; j++) {
            float y = LOAD(from[j]) / scale + 12582912.0f; /* 1.5 * 2^23: the low bits are the rounded quotient */
            int32_t rounded = (int32_t)(y - 12582912.0f);
            to[j] = (int8_t)rounded;
            sum += rounded;
        }
        for (i64 j = K; j < qn; j++) to[j] = 0;
        excess[n] = 128 * sum;
    }
}

/* y[n, j] = sums[n, j] t_j s_n + bias_j, for the first M of the sums' columns, which are `wide` apart. */
API void NAME(int8_scale)(const int32_t *sums, i64 wide, const float *scales, const float *columns, const float *bias,
                          T *y, i64 N, i64 M, i64 threads) {
    PARALLEL_FOR(N * M)
    for (i64 n = 0; n < N; n++) {
        const int32_t *restrict from = sums + n * wide;
        T *restrict to = y + n * M;
        float scale = scales[n];
        if (bias)
#pragma omp simd
            for (i64 j = 0; j < M; j++) to[j] = STORE((float)from[j] * columns[j] * scale + bias[j]);
        else
#pragma omp simd
            for (i64 j = 0; j < M; j++) to[j] = STORE((float)from[j] * columns[j] * scale);
    }
}
