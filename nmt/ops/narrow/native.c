/* Products of rows with a matrix in a narrow format, packed for instructions that add several products of small numbers at
   once: four of int8 (AVX-512 VNNI) or two of bf16 (AVX512_BF16, see linear/native.c), "a group" of four bytes. Where
   there is AMX, which multiplies whole tiles and which torch knows how to use, none of this is compiled.

   A matrix [M, K] is packed in strips of 32 outputs, [M / 32][groups][32][group]. A tile of 12 rows and one strip stays in
   registers over all groups, and no row hangs on the others. */

#include "simd.h"

#ifdef FIRST_VERSION
#undef API
#define API static
#include "../best/native.c"
#include "../linear/native.c"
#undef API
#define API __attribute__((visibility("default")))

#define NARROW_ROWS 12
#define NARROW_COLUMNS 32

typedef struct {
    const char *x; /* [N, wide bytes] */
    i64 wide;
    const int32_t *excess;
    const float *scales;
    const char *matrix;
    const float *columns, *bias;
    i64 N, M;
} Narrow;

/* y[n, j] of the rows `start` to `end` - 1 and the outputs of one strip; rows of y stand yn apart, the first one is that of
   `start`. */
typedef void (*BlockFunction)(const Narrow *, float *y, i64 yn, i64 start, i64 end, i64 strip);

#if defined(__AVX512VNNI__) && !defined(__AMX_INT8__)
#include <immintrin.h>

/* sums[r, j] of `rows` rows, `wide` bytes apart, and one strip; `rows` is known when this is compiled. Not the
   intrinsic, around which gcc 12 moves the sums from register to register. */
INLINE void int8_tile(int rows, const char *x, i64 wide, const char *strip, int32_t (*restrict sums)[NARROW_COLUMNS]) {
    __m512i left[NARROW_ROWS], right[NARROW_ROWS];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) left[r] = right[r] = _mm512_setzero_si512();
    for (i64 k = 0; k < wide; k += 4, strip += 4 * NARROW_COLUMNS) {
        __m512i w0 = _mm512_loadu_si512(strip), w1 = _mm512_loadu_si512(strip + 64);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            int32_t group;
            memcpy(&group, x + r * wide + k, 4);
            __m512i same = _mm512_set1_epi32(group);
            __asm__("vpdpbusd %2, %1, %0" : "+v"(left[r]) : "v"(w0), "v"(same));
            __asm__("vpdpbusd %2, %1, %0" : "+v"(right[r]) : "v"(w1), "v"(same));
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
        _mm512_storeu_si512(sums[r], left[r]);
        _mm512_storeu_si512(sums[r] + 16, right[r]);
    }
}

static void int8_tiles(i64 rows, const char *x, i64 wide, const char *strip, int32_t (*restrict sums)[NARROW_COLUMNS]) {
    switch (rows) {
#define CASE(n) case n: int8_tile(n, x, wide, strip, sums); return;
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#undef CASE
    }
}

/* The sums times scales_n columns_j, plus bias_j. The instruction wants one factor without a sign: 128 is added to each
   value of the matrix, and `excess`, 128 times the sum of a row, is taken off again. */
static void int8_block(const Narrow *p, float *y, i64 yn, i64 start, i64 end, i64 strip) {
    int32_t sums[NARROW_ROWS][NARROW_COLUMNS];
    i64 first = strip * NARROW_COLUMNS, width = p->M - first < NARROW_COLUMNS ? p->M - first : NARROW_COLUMNS;
    const float *restrict column = p->columns + first, *restrict shift = p->bias ? p->bias + first : 0;
    for (i64 n = start; n < end; n += NARROW_ROWS) {
        i64 rows = end - n < NARROW_ROWS ? end - n : NARROW_ROWS;
        int8_tiles(rows, p->x + n * p->wide, p->wide, p->matrix + first * p->wide, sums);
        for (i64 r = 0; r < rows; r++) {
            float *restrict to = y + (n - start + r) * yn + first;
            int32_t excess = p->excess[n + r];
            float scale = p->scales[n + r];
            if (shift)
#pragma omp simd
                for (i64 j = 0; j < width; j++) to[j] = (float)(sums[r][j] - excess) * column[j] * scale + shift[j];
            else
#pragma omp simd
                for (i64 j = 0; j < width; j++) to[j] = (float)(sums[r][j] - excess) * column[j] * scale;
        }
    }
}
#define NARROW_INT8
#endif

#ifdef NMT_LINEAR_ONCE
static void bf16_block(const Narrow *p, float *y, i64 yn, i64 start, i64 end, i64 strip) {
    i64 first = strip * NARROW_COLUMNS, size = sizeof(float);
    const float *shift = p->bias ? p->bias + first : 0;
    for (i64 n = start; n < end; n += NARROW_ROWS) {
        i64 rows = end - n < NARROW_ROWS ? end - n : NARROW_ROWS;
        tile(p->x + n * p->wide, p->wide, 4, p->matrix + first * p->wide, p->wide / 4, (const char *)shift, 0,
             (char *)(y + (n - start) * yn + first), yn * size, p->M - first, 1, rows);
    }
}
#endif

/* All outputs, rows of y next to each other. The threads share the strips where rows are few. */
INLINE void narrow_all(BlockFunction block, const Narrow *p, float *y, i64 threads) {
    i64 strips = (p->M + NARROW_COLUMNS - 1) / NARROW_COLUMNS, blocks = (p->N + NARROW_ROWS - 1) / NARROW_ROWS;
    if (blocks < 8 * threads) {
        PARALLEL_FOR(p->N * p->M * p->wide / 1024)
        for (i64 s = 0; s < strips; s++) block(p, y, p->M, 0, p->N, s);
        return;
    }
    PARALLEL_FOR(PARALLEL_FROM)
    for (i64 b = 0; b < blocks; b++) {
        i64 start = b * NARROW_ROWS, end = start + NARROW_ROWS < p->N ? start + NARROW_ROWS : p->N;
        for (i64 s = 0; s < strips; s++) block(p, y + start * p->M, p->M, start, end, s);
    }
}

/* The k best of each of B groups of P rows by all outputs, as best_f32 has them, which looks at a group while its y are in
   the cache. There is `room` for all y if `shared`, which is for few rows; else for `together` groups for each thread. */
INLINE void narrow_best(BlockFunction block, const Narrow *p, float *room, i64 shared, i64 together, const float *before,
                        i64 P, i64 k, i64 normalize, i64 banned, i64 penalised, float penalty, float *values,
                        i64 *places, i64 threads) {
    i64 B = p->N / P, V = p->M;
    if (shared) {
        narrow_all(block, p, room, threads);
        best_f32(room, before, B, P, V, k, normalize, banned, penalised, penalty, values, places, threads);
        return;
    }
    PARALLEL_FOR(PARALLEL_FROM)
    for (i64 thread = 0; thread < threads; thread++) {
        float *y = room + thread * together * P * V;
        for (i64 first = thread * together; first < B; first += threads * together) {
            i64 last = first + together < B ? first + together : B;
            for (i64 s = 0; s * NARROW_COLUMNS < V; s++) block(p, y, V, first * P, last * P, s);
            for (i64 b = first; b < last; b++)
                best_of_group_f32(y + (b - first) * P * V, before ? before + b * P : 0, P, V, k, normalize, banned,
                                  penalised, penalty, values + b * k, places + b * k);
        }
    }
}

#ifdef NARROW_INT8
API void NAME(int8_product)(const char *x, i64 wide, const int32_t *excess, const float *scales, const char *matrix,
                               const float *columns, const float *bias, i64 N, i64 M, float *y, i64 threads) {
    Narrow p = {x, wide, excess, scales, matrix, columns, bias, N, M};
    narrow_all(int8_block, &p, y, threads);
}

API void NAME(int8_best)(const char *x, i64 wide, const int32_t *excess, const float *scales, const char *matrix,
                            const float *columns, const float *bias, i64 N, i64 M, float *room, i64 shared,
                            i64 together, const float *before, i64 P, i64 k, i64 normalize, i64 banned, i64 penalised,
                            float penalty, float *values, i64 *places, i64 threads) {
    Narrow p = {x, wide, excess, scales, matrix, columns, bias, N, M};
    narrow_best(int8_block, &p, room, shared, together, before, P, k, normalize, banned, penalised, penalty, values,
                places, threads);
}
#endif

#ifdef NMT_LINEAR_ONCE
API void NAME(bf16_product)(const char *x, i64 wide, const int32_t *excess, const float *scales, const char *matrix,
                               const float *columns, const float *bias, i64 N, i64 M, float *y, i64 threads) {
    Narrow p = {x, wide, excess, scales, matrix, columns, bias, N, M};
    narrow_all(bf16_block, &p, y, threads);
}

API void NAME(bf16_best)(const char *x, i64 wide, const int32_t *excess, const float *scales, const char *matrix,
                            const float *columns, const float *bias, i64 N, i64 M, float *room, i64 shared,
                            i64 together, const float *before, i64 P, i64 k, i64 normalize, i64 banned, i64 penalised,
                            float penalty, float *values, i64 *places, i64 threads) {
    Narrow p = {x, wide, excess, scales, matrix, columns, bias, N, M};
    narrow_best(bf16_block, &p, room, shared, together, before, P, k, normalize, banned, penalised, penalty, values,
                places, threads);
}
#endif
#endif
