/* How a team of threads runs kernels one after the other, and sums that the kernels share. */

#ifndef NMT_TEAM_ONCE
#define NMT_TEAM_ONCE
#define MOST 25

typedef void (*team_kernel)(i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64,
                            i64, i64, i64, i64, i64, i64, i64);

/* Each call is the address of a kernel and MOST arguments, all integers or addresses; a kernel leaves alone what it has
   no arguments for, as the calling conventions of 64-bit processors allow. */
API void run_team(const i64 *calls, i64 count, i64 threads) {
#pragma omp parallel num_threads(threads)
    for (i64 i = 0; i < count; i++) {
        const i64 *a = calls + i * (MOST + 1) + 1;
        ((team_kernel)a[-1])(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13],
                             a[14], a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22], a[23], a[24]);
    }
}
#endif

/* sum[r, j] += x[r, j]; rows of x stand xr apart, those of `sum` next to each other. */
API void NAME(add_rows)(const T *x, i64 xr, float *sum, i64 rows, i64 width, i64 threads) {
    SHARE(rows * width)
    for (i64 r = 0; r < rows; r++) {
        const T *restrict from = x + r * xr;
        float *restrict to = sum + r * width;
#pragma omp simd
        for (i64 j = 0; j < width; j++) to[j] += LOAD(from[j]);
    }
}

/* Columns that one thread sums, and rows that are summed before they are added to the whole: short sums keep the
   rounding errors small, and neither depends on the number of threads. */
#define SUM_COLUMNS 128
#define SUM_ROWS 64

/* sum[j] = the sum over r of x[r, j]; rows of x stand next to each other. */
API void NAME(sum_columns)(const T *x, float *sum, i64 rows, i64 width, i64 threads) {
    SHARE(rows * width)
    for (i64 start = 0; start < width; start += SUM_COLUMNS) {
        i64 n = width - start < SUM_COLUMNS ? width - start : SUM_COLUMNS;
        float *restrict whole = sum + start;
        for (i64 j = 0; j < n; j++) whole[j] = 0.0f;
        for (i64 first = 0; first < rows; first += SUM_ROWS) {
            float part[SUM_COLUMNS] = {0};
            i64 end = first + SUM_ROWS < rows ? first + SUM_ROWS : rows;
            for (i64 r = first; r < end; r++) {
                const T *restrict row = x + r * width + start;
#pragma omp simd
                for (i64 j = 0; j < n; j++) part[j] += LOAD(row[j]);
            }
            for (i64 j = 0; j < n; j++) whole[j] += part[j];
        }
    }
}
