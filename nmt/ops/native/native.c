/* How kernels are called, and sums that they share. */

#include "call.h"

#ifdef FIRST_VERSION
/* `count` calls one after the other: caller, kernel, number of arguments, arguments. */
API void run_calls(const slot *calls, i64 count) {
    for (i64 i = 0; i < count; i++, calls += 3 + calls[2].i) calls[0].caller(calls[1].kernel, calls + 3);
}

/* The same by a team of threads: each thread calls every kernel and does a part of its work. */
API void run_team(const slot *calls, i64 count, i64 threads) {
    (void)threads;
#pragma omp parallel num_threads(threads)
    run_calls(calls, count);
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
