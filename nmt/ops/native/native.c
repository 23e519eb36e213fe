/* How kernels are called, and sums that they share. */

#include "call.h"

#ifdef FIRST_VERSION
/* `count` calls one after the other: caller, kernel, number of arguments, arguments. With several threads they are of
   kernels for bf16, and each thread calls every kernel and does a part of its work. */
API void run_calls(const slot *calls, i64 count, i64 threads) {
    if (threads > 1) {
#pragma omp parallel num_threads(threads)
        run_calls(calls, count, 1);
        return;
    }
    for (i64 i = 0; i < count; i++, calls += 3 + calls[2].i) calls[0].caller(calls[1].kernel, calls + 3);
}
#endif

/* sum[r, j] += x[r, j]; rows of x have stride xr, rows of `sum` are contiguous. */
API void NAME(add_rows)(const T *x, i64 xr, float *sum, i64 rows, i64 width, i64 threads) {
    PARALLEL_FOR(rows * width)
    for (i64 r = 0; r < rows; r++) NAME(add_row)(sum + r * width, x + r * xr, width);
}

/* Columns that one thread sums, and rows that are summed before they are added to the whole: short sums keep the
   rounding errors small, and neither depends on the number of threads. */
#define SUM_COLUMNS 128
#define SUM_ROWS 64

/* sum[j] = the sum over r of x[r, j]; rows of x are contiguous. */
API void NAME(sum_columns)(const T *x, float *sum, i64 rows, i64 width, i64 threads) {
    PARALLEL_FOR(rows * width)
    for (i64 start = 0; start < width; start += SUM_COLUMNS) {
        i64 n = width - start < SUM_COLUMNS ? width - start : SUM_COLUMNS;
        float *restrict whole = sum + start;
        for (i64 j = 0; j < n; j++) whole[j] = 0.0f;
        for (i64 first = 0; first < rows; first += SUM_ROWS) {
            float part[SUM_COLUMNS] = {0};
            i64 end = first + SUM_ROWS < rows ? first + SUM_ROWS : rows;
            for (i64 r = first; r < end; r++) NAME(add_row)(part, x + r * width + start, n);
            for (i64 j = 0; j < n; j++) whole[j] += part[j];
        }
    }
}

/* Layer norm of rows of x [N, W], in `parts` parts of these widths; see simd.h. */
API void NAME(norm)(const T *x, const float *scale, const float *offset, const i64 *widths, i64 parts, T *out, i64 N,
                    i64 W, i64 threads) {
    PARALLEL_FOR(N * W)
    for (i64 n = 0; n < N; n++) {
        float q[W];
        for (i64 start = 0, p = 0; p < parts; start += widths[p++])
            NAME(norm_row)(x + n * W + start, scale + start, offset + start, widths[p], q + start);
#pragma omp simd
        for (i64 j = 0; j < W; j++) out[n * W + j] = STORE(q[j]);
    }
}

/* The gradient of x from d [N, W], that of the result. */
API void NAME(norm_gradient)(const T *x, const float *scale, const i64 *widths, i64 parts, const T *d, T *out, i64 N,
                             i64 W, i64 threads) {
    PARALLEL_FOR(N * W)
    for (i64 n = 0; n < N; n++) {
        float q[W];
#pragma omp simd
        for (i64 j = 0; j < W; j++) q[j] = LOAD(d[n * W + j]);
        for (i64 start = 0, p = 0; p < parts; start += widths[p++])
            NAME(norm_row_gradient)(x + n * W + start, scale + start, q + start, widths[p], out + n * W + start);
    }
}

/* What the gradient of the scale is the sum of, over all rows: n d, in fp32. */
API void NAME(norm_slopes)(const T *x, const i64 *widths, i64 parts, const T *d, float *out, i64 N, i64 W, i64 threads) {
    PARALLEL_FOR(N * W)
    for (i64 n = 0; n < N; n++) {
        float *restrict to = out + n * W;
        for (i64 start = 0, p = 0; p < parts; start += widths[p++])
            NAME(norm_row)(x + n * W + start, 0, 0, widths[p], to + start);
#pragma omp simd
        for (i64 j = 0; j < W; j++) to[j] *= LOAD(d[n * W + j]);
    }
}
