/* Products of rows with a matrix that is packed for instructions that add several products of small numbers at once:
   four of int8 (AVX-512 VNNI) or two of bf16 (AVX512_BF16), "a group" of four bytes. Where there is AMX, which multiplies
   whole tiles and which torch knows how to use, none of this is compiled.

   A matrix [M, K] is packed in strips of 32 outputs, [M / 32][groups][32][group]. A tile of 12 rows and one strip stays in
   registers over all groups, and no row hangs on the others. Values of int8 have 128 added, for the instruction wants one
   factor without a sign; `excess`, 128 times the sum of a row, is taken off again. */

#ifndef PACKED_ROWS
#define PACKED_ROWS 12
#define PACKED_COLUMNS 32
#ifdef __AVX512F__
#include <immintrin.h>

/* sums[r, j] of `rows` rows, `wide` bytes apart, and one strip; `rows` is known when this is compiled. Not the
   intrinsics, around which gcc 12 moves the sums from register to register. */
#define TILES(kind, INSTRUCTION)                                                                                       \
    INLINE void kind##_tile(int rows, const char *x, i64 wide, const char *strip, i64 groups,                          \
                            int32_t (*restrict sums)[PACKED_COLUMNS]) {                                                \
        __m512i left[PACKED_ROWS], right[PACKED_ROWS];                                                                 \
        _Pragma("GCC unroll 12") for (int r = 0; r < rows; r++) left[r] = right[r] = _mm512_setzero_si512();           \
        for (i64 g = 0; g < groups; g++) {                                                                             \
            __m512i w0 = _mm512_loadu_si512(strip + 128 * g), w1 = _mm512_loadu_si512(strip + 128 * g + 64);           \
            _Pragma("GCC unroll 12") for (int r = 0; r < rows; r++) {                                                  \
                int32_t group;                                                                                         \
                memcpy(&group, x + r * wide + 4 * g, 4);                                                               \
                __m512i same = _mm512_set1_epi32(group);                                                               \
                __asm__(INSTRUCTION " %2, %1, %0" : "+v"(left[r]) : "v"(w0), "v"(same));                               \
                __asm__(INSTRUCTION " %2, %1, %0" : "+v"(right[r]) : "v"(w1), "v"(same));                              \
            }                                                                                                          \
        }                                                                                                              \
        _Pragma("GCC unroll 12") for (int r = 0; r < rows; r++) {                                                      \
            _mm512_storeu_si512(sums[r], left[r]);                                                                     \
            _mm512_storeu_si512(sums[r] + 16, right[r]);                                                               \
        }                                                                                                              \
    }                                                                                                                  \
    static void kind##_tiles(i64 rows, const char *x, i64 wide, const char *strip, i64 groups,                         \
                             int32_t (*restrict sums)[PACKED_COLUMNS]) {                                               \
        switch (rows) {                                                                                                \
            case 1: kind##_tile(1, x, wide, strip, groups, sums); break;                                               \
            case 2: kind##_tile(2, x, wide, strip, groups, sums); break;                                               \
            case 3: kind##_tile(3, x, wide, strip, groups, sums); break;                                               \
            case 4: kind##_tile(4, x, wide, strip, groups, sums); break;                                               \
            case 5: kind##_tile(5, x, wide, strip, groups, sums); break;                                               \
            case 6: kind##_tile(6, x, wide, strip, groups, sums); break;                                               \
            case 7: kind##_tile(7, x, wide, strip, groups, sums); break;                                               \
            case 8: kind##_tile(8, x, wide, strip, groups, sums); break;                                               \
            case 9: kind##_tile(9, x, wide, strip, groups, sums); break;                                               \
            case 10: kind##_tile(10, x, wide, strip, groups, sums); break;                                             \
            case 11: kind##_tile(11, x, wide, strip, groups, sums); break;                                             \
            case 12: kind##_tile(12, x, wide, strip, groups, sums); break;                                             \
        }                                                                                                              \
    }
#endif

/* y[n, j] of the rows `start` to `end` - 1 and the outputs j of one strip: the sums, for int8 times scales_n columns_j, and
   plus bias_j. `excess` and the scales are none for bf16, bias may be. */
#define PACKED_BLOCK(kind, VALUE)                                                                                      \
    static void kind##_block(const Packed *p, float *y, i64 yn, i64 start, i64 end, i64 strip) {                       \
        int32_t sums[PACKED_ROWS][PACKED_COLUMNS];                                                                     \
        i64 first = strip * PACKED_COLUMNS, width = p->M - first < PACKED_COLUMNS ? p->M - first : PACKED_COLUMNS;     \
        const float *restrict column = p->columns ? p->columns + first : 0;                                            \
        const float *restrict shift = p->bias ? p->bias + first : 0;                                                   \
        for (i64 n = start; n < end; n += PACKED_ROWS) {                                                               \
            i64 rows = end - n < PACKED_ROWS ? end - n : PACKED_ROWS;                                                  \
            kind##_tiles(rows, p->x + n * p->wide, p->wide, p->matrix + first * p->wide, p->wide / 4, sums);           \
            for (i64 r = 0; r < rows; r++) {                                                                           \
                float *restrict to = y + (n - start + r) * yn + first;                                                 \
                int32_t excess = p->excess ? p->excess[n + r] : 0;                                                     \
                float scale = p->scales ? p->scales[n + r] : 1.0f;                                                     \
                _Pragma("omp simd") for (i64 j = 0; j < width; j++) to[j] = VALUE;                                     \
                if (shift) {                                                                                           \
                    _Pragma("omp simd") for (i64 j = 0; j < width; j++) to[j] += shift[j];                             \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }

typedef struct {
    const char *x; /* [N, wide bytes] */
    i64 wide;
    const int32_t *excess;
    const float *scales;
    const char *matrix;
    const float *columns, *bias;
    i64 N, M;
} Packed;

typedef void (*BlockFunction)(const Packed *, float *, i64, i64, i64, i64);

/* All outputs, rows of y next to each other. The threads share the strips where rows are few. */
INLINE void packed_all(BlockFunction block, const Packed *p, float *y, i64 threads) {
    i64 strips = (p->M + PACKED_COLUMNS - 1) / PACKED_COLUMNS, blocks = (p->N + PACKED_ROWS - 1) / PACKED_ROWS;
    if (blocks < 8 * threads) {
#pragma omp parallel for num_threads(threads) if (p->N * p->M * p->wide >= 1024 * PARALLEL_FROM)
        for (i64 s = 0; s < strips; s++) block(p, y, p->M, 0, p->N, s);
        return;
    }
#pragma omp parallel for num_threads(threads)
    for (i64 b = 0; b < blocks; b++) {
        i64 start = b * PACKED_ROWS, end = start + PACKED_ROWS < p->N ? start + PACKED_ROWS : p->N;
        for (i64 s = 0; s < strips; s++) block(p, y + start * p->M, p->M, start, end, s);
    }
}

/* The k best of each of B groups of P rows by all outputs, as best_f32 has them, which looks at a group while its y are in
   the cache. There is `room` for all y if `shared`, which is for few rows; else for `together` groups for each thread. */
INLINE void packed_best(BlockFunction block, const Packed *p, float *room, i64 shared, i64 together, const float *before,
                        i64 P, i64 k, i64 normalize, i64 banned, i64 penalised, float penalty, float *values,
                        i64 *places, i64 threads) {
    i64 B = p->N / P, V = p->M;
    if (shared) {
        packed_all(block, p, room, threads);
        best_f32(room, before, B, P, V, k, normalize, banned, penalised, penalty, values, places, threads);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (i64 thread = 0; thread < threads; thread++) {
        float *y = room + thread * together * P * V;
        for (i64 first = thread * together; first < B; first += threads * together) {
            i64 last = first + together < B ? first + together : B;
            for (i64 s = 0; s * PACKED_COLUMNS < V; s++) block(p, y, V, first * P, last * P, s);
            for (i64 b = first; b < last; b++)
                best_of_group_f32(y + (b - first) * P * V, before ? before + b * P : 0, P, V, k, normalize, banned,
                                  penalised, penalty, values + b * k, places + b * k);
        }
    }
}

#define PACKED_ARGUMENTS                                                                                               \
    const char *x, i64 wide, const int32_t *excess, const float *scales, const char *matrix, const float *columns,     \
        const float *bias, i64 N, i64 M
#define PACKED_KIND(kind, INSTRUCTION, VALUE, suffix)                                                                  \
    TILES(kind, INSTRUCTION)                                                                                           \
    PACKED_BLOCK(kind, VALUE)                                                                                          \
    API void packed_product_##suffix(PACKED_ARGUMENTS, float *y, i64 threads) {                                        \
        Packed p = {x, wide, excess, scales, matrix, columns, bias, N, M};                                             \
        packed_all(kind##_block, &p, y, threads);                                                                      \
    }                                                                                                                  \
    API void packed_best_##suffix(PACKED_ARGUMENTS, float *room, i64 shared, i64 together, const float *before, i64 P, \
                                  i64 k, i64 normalize, i64 banned, i64 penalised, float penalty, float *values,       \
                                  i64 *places, i64 threads) {                                                          \
        Packed p = {x, wide, excess, scales, matrix, columns, bias, N, M};                                             \
        packed_best(kind##_block, &p, room, shared, together, before, P, k, normalize, banned, penalised, penalty,     \
                    values, places, threads);                                                                          \
    }

#if defined(__AVX512VNNI__) && !defined(__AMX_INT8__)
PACKED_KIND(int8, "vpdpbusd", (float)(sums[r][j] - excess) * column[j] * scale, i8)
#endif
#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
PACKED_KIND(bf16, "vdpbf16ps", float_of_bits(sums[r][j]), bf16)
#endif
#endif
