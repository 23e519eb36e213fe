/* What surrounds the integer product of an int8 matrix: rows to int8 with a scale each, and sums back to numbers. */

/* q[n, j] = round(x[n, j] / s_n), s_n = max_j |x[n, j]| / 127, at least `least`; ties to even. Rows of q are qn wide,
   filled up with zeros. excess_n = 128 sum_j q[n, j], see below. */
API void NAME(int8_rows)(const T *x, i64 xn, int8_t *q, i64 qn, float *scales, int32_t *excess, i64 N, i64 K, float least,
                         i64 threads) {
#pragma omp parallel for num_threads(threads) if (N * K >= PARALLEL_FROM)
    for (i64 n = 0; n < N; n++) {
        const T *restrict from = x + n * xn;
        int8_t *restrict to = q + n * qn;
        float top = 0.0f;
#pragma omp simd reduction(max : top)
        for (i64 j = 0; j < K; j++) {
            float y = fabsf(LOAD(from[j]));
            top = y > top ? y : top;
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
#pragma omp parallel for num_threads(threads) if (N * M >= PARALLEL_FROM)
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

/* The integer product itself, where the CPU adds four products of bytes at a time (AVX-512 VNNI) and has
   nothing larger (AMX), which torch knows how to use. The matrix is packed in
   strips of 32 outputs: [M / 32][K / 4][32][4], 128 added to each value, for the instruction wants one factor without a
   sign; `excess`, 128 times the sum of a row of q, is taken off again. A tile of 12 rows and 32 outputs stays in
   registers over the whole of K. */
#if defined(__AVX512VNNI__) && !defined(__AMX_INT8__) && !defined(INT8_ROWS)
#include <immintrin.h>
#define INT8_ROWS 12
#define INT8_COLUMNS 32

/* sums[r, j] of `rows` rows of q, K apart, and one strip; `rows` is known when this is compiled. */
INLINE void int8_tile(int rows, const int8_t *q, const uint8_t *strip, i64 K, int32_t (*restrict sums)[INT8_COLUMNS]) {
    __m512i left[INT8_ROWS], right[INT8_ROWS];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) left[r] = right[r] = _mm512_setzero_si512();
    for (i64 k = 0; k < K; k += 4) {
        __m512i w0 = _mm512_loadu_si512(strip + k * INT8_COLUMNS), w1 = _mm512_loadu_si512(strip + k * INT8_COLUMNS + 64);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, q + r * K + k, 4);
            __m512i x = _mm512_set1_epi32(four);
            /* not the intrinsic, around which gcc 12 moves the sums from register to register */
            __asm__("vpdpbusd %2, %1, %0" : "+v"(left[r]) : "v"(w0), "v"(x));
            __asm__("vpdpbusd %2, %1, %0" : "+v"(right[r]) : "v"(w1), "v"(x));
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
        _mm512_storeu_si512(sums[r], left[r]);
        _mm512_storeu_si512(sums[r] + 16, right[r]);
    }
}

static void int8_tiles(i64 rows, const int8_t *q, const uint8_t *strip, i64 K, int32_t (*restrict sums)[INT8_COLUMNS]) {
    switch (rows) {
#define CASE(n) case n: int8_tile(n, q, strip, K, sums); break;
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#undef CASE
    }
}
#endif

#ifdef INT8_ROWS
/* y[n, j] = (sum_k q[n, k] w[j, k]) t_j s_n + bias_j for rows `start` to `end` - 1 and the outputs of one strip. */
INLINE void NAME(int8_block)(const int8_t *q, const int32_t *excess, const float *scales, const uint8_t *packed,
                             const float *columns, const float *bias, T *y, i64 yn, i64 start, i64 end, i64 strip,
                             i64 K, i64 M) {
    int32_t sums[INT8_ROWS][INT8_COLUMNS];
    i64 first = strip * INT8_COLUMNS, width = M - first < INT8_COLUMNS ? M - first : INT8_COLUMNS;
    for (i64 n = start; n < end; n += INT8_ROWS) {
        i64 rows = end - n < INT8_ROWS ? end - n : INT8_ROWS;
        int8_tiles(rows, q + n * K, packed + first * K, K, sums);
        for (i64 r = 0; r < rows; r++) {
            T *restrict to = y + (n + r) * yn + first;
            const float *restrict column = columns + first, *restrict shift = bias ? bias + first : 0;
            int32_t less = excess[n + r];
            float scale = scales[n + r];
            if (bias)
#pragma omp simd
                for (i64 j = 0; j < width; j++) to[j] = STORE((float)(sums[r][j] - less) * column[j] * scale + shift[j]);
            else
#pragma omp simd
                for (i64 j = 0; j < width; j++) to[j] = STORE((float)(sums[r][j] - less) * column[j] * scale);
        }
    }
}

/* All outputs; rows of q are K wide, rows of y yn apart. The threads share the strips where rows are few. */
API void NAME(int8_product)(const int8_t *q, const int32_t *excess, const float *scales, const uint8_t *packed,
                            const float *columns, const float *bias, T *y, i64 yn, i64 N, i64 K, i64 M, i64 threads) {
    i64 strips = (M + INT8_COLUMNS - 1) / INT8_COLUMNS, blocks = (N + INT8_ROWS - 1) / INT8_ROWS;
    if (blocks < 8 * threads) {
#pragma omp parallel for num_threads(threads) if (N * M * K >= 1024 * PARALLEL_FROM)
        for (i64 s = 0; s < strips; s++)
            NAME(int8_block)(q, excess, scales, packed, columns, bias, y, yn, 0, N, s, K, M);
        return;
    }
#pragma omp parallel for num_threads(threads)
    for (i64 b = 0; b < blocks; b++) {
        i64 start = b * INT8_ROWS, end = start + INT8_ROWS < N ? start + INT8_ROWS : N;
        for (i64 s = 0; s < strips; s++)
            NAME(int8_block)(q, excess, scales, packed, columns, bias, y, yn, start, end, s, K, M);
    }
}

#ifndef INT8_BEST
#define INT8_BEST
/* The k best by y [B * P, V], as NAME(best) has them, which looks at each group while its y are in the cache. There is
   `room` for all y if `shared`: then the threads share the strips, which is for few rows; else for `together` groups
   for each thread. */
API void NAME(int8_best)(const int8_t *q, const int32_t *excess, const float *scales, const uint8_t *packed,
                         const float *columns, T *room, i64 shared, i64 together, const float *before, i64 B, i64 P,
                         i64 V, i64 K, i64 k, i64 normalize, i64 banned, i64 penalised, float penalty, float *values,
                         i64 *places, i64 threads) {
    if (shared) {
        NAME(int8_product)(q, excess, scales, packed, columns, 0, room, V, B * P, K, V, threads);
        NAME(best)(room, before, B, P, V, k, normalize, banned, penalised, penalty, values, places, threads);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (i64 thread = 0; thread < threads; thread++) {
        T *y = room + thread * together * P * V;
        for (i64 first = thread * together; first < B; first += threads * together) {
            i64 groups = B - first < together ? B - first : together, row = first * P;
            for (i64 s = 0; s * INT8_COLUMNS < V; s++)
                NAME(int8_block)(q + row * K, excess + row, scales + row, packed, columns, 0, y, V, 0, groups * P, s, K, V);
            for (i64 b = first; b < first + groups; b++)
                NAME(best_of_group)(y + (b - first) * P * V, before ? before + b * P : 0, P, V, k, normalize, banned,
                                    penalised, penalty, values + b * k, places + b * k);
        }
    }
}
#endif
#endif
