/* Products with matrices packed for instructions that add up products of small numbers, in groups of four bytes: two of
   bf16 in fp32 (vdpbf16ps of AVX512_BF16) or four of int8 in int32 (vpdpbusd of AVX-512 VNNI).

   A matrix [M, K] is packed in strips of STRIP outputs, [M / STRIP][groups][STRIP][group], with zeros beyond the edges.
   A tile of the result, TILE rows and one strip, stays in registers over all groups: no row depends on the others, and
   nothing on the number of threads. To vdpbf16ps values below the normal range of bf16 (1e-38) are zeros. vpdpbusd wants
   one factor without a sign: 128 is added to each value of an int8 matrix, and `excess`, 128 times the sum of a row, is
   taken off again.

   Where there is AMX, which multiplies whole tiles and which torch knows how to use, none of this is compiled. */

#ifndef NMT_TILES_H
#define NMT_TILES_H

#include "simd.h"

#define STRIP 32
#define TILE 12
#define GROUP 4
#define STRIP_GROUP (STRIP * GROUP)

/* About so many rows are multiplied with one strip before the next: theirs and the strip's values stay in the cache. */
#define BLOCK 96
#define BLOCKS_FROM 384

INLINE i64 least(i64 a, i64 b) { return a < b ? a : b; }

#if defined(__AVX512BF16__) && defined(__AVX512BW__) && !defined(__AMX_BF16__)
#define BF16_TILES
#endif
#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && !defined(__AMX_INT8__)
#define INT8_TILES
#endif

#if defined(BF16_TILES) || defined(INT8_TILES)
#include <immintrin.h>

/* out [N, M], plus `added`, if any, both fp32 if `wide`, else bf16; of int8 it is (sum - excess_n) columns_m rows_n. */
typedef struct {
    const void *x, *packed, *added;
    void *out;
    i64 x_row, x_group, strip, added_row, out_row; /* bytes from one to the next */
    i64 wide, groups, N, M;
    const int32_t *excess;
    const float *rows, *columns;
} Product;

INLINE __m512 read_values(const char *from, __mmask16 mask, int wide) {
    if (wide) return _mm512_maskz_loadu_ps(mask, from);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from)), 16));
}

INLINE void write_values(char *to, __mmask16 mask, __m512 x, int wide) {
    __m256i rounded;
    if (wide) {
        _mm512_mask_storeu_ps(to, mask, x);
        return;
    }
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(x));
    _mm256_mask_storeu_epi16(to, mask, rounded);
}

/* The instructions are written out because gcc 12 copies registers around the intrinsics. */
#define DOT(instruction, sum, a, b) __asm__(instruction " %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b))

/* R rows from n on and the outputs of one strip from j on. R is known when this is compiled, and `int8`, whether values
   are int8 or bf16. */
INLINE void sized_tile(const Product *p, i64 n, i64 j, int int8, int R) {
    const char *a = (const char *)p->x + n * p->x_row, *b = (const char *)p->packed + j / STRIP * p->strip;
    i64 ar = p->x_row, ak = p->x_group, groups = p->groups, width = p->M - j, size = p->wide ? 4 : 2, wide = p->wide;
    __m512i sum[TILE][2];
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = _mm512_setzero_si512();
    for (i64 k = 0; k < groups; k++, a += ak, b += STRIP_GROUP) {
        __m512i left = _mm512_loadu_si512(b), right = _mm512_loadu_si512(b + STRIP_GROUP / 2);
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            int32_t group;
            memcpy(&group, a + r * ar, sizeof group);
            __m512i same = _mm512_set1_epi32(group);
            if (int8) {
                DOT("vpdpbusd", sum[r][0], left, same);
                DOT("vpdpbusd", sum[r][1], right, same);
            } else {
                DOT("vdpbf16ps", sum[r][0], left, same);
                DOT("vdpbf16ps", sum[r][1], right, same);
            }
        }
    }
    char *out = (char *)p->out + n * p->out_row + j * size;
    const char *added = p->added ? (const char *)p->added + n * p->added_row + j * size : 0;
    i64 out_row = p->out_row, added_row = p->added_row;
    __mmask16 mask[2] = {width < 16 ? (1u << width) - 1 : 0xffff,
                         width < 17 ? 0 : width < 32 ? (1u << (width - 16)) - 1 : 0xffff};
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int c = 0; c < 2; c++) {
            __m512 x = _mm512_castsi512_ps(sum[r][c]), factor = _mm512_set1_ps(int8 ? p->rows[n + r] : 1.0f);
            if (int8) {
                x = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum[r][c], _mm512_set1_epi32(p->excess[n + r])));
                x = _mm512_mul_ps(x, _mm512_maskz_loadu_ps(mask[c], p->columns + j + 16 * c));
            }
            if (added)
                x = _mm512_fmadd_ps(x, factor, read_values(added + r * added_row + 16 * c * size, mask[c], wide));
            else if (int8)
                x = _mm512_mul_ps(x, factor);
            write_values(out + r * out_row + 16 * c * size, mask[c], x, wide);
        }
}

#define SIZED(R, int8) case R: sized_tile(p, n, j, int8, R); return;
#define SIZES(int8)                                                                                                    \
    SIZED(1, int8) SIZED(2, int8) SIZED(3, int8) SIZED(4, int8) SIZED(5, int8) SIZED(6, int8)                          \
    SIZED(7, int8) SIZED(8, int8) SIZED(9, int8) SIZED(10, int8) SIZED(11, int8) SIZED(12, int8)

/* `rows` rows, TILE at most. */
typedef void (*TileFunction)(const Product *, i64 n, i64 j, i64 rows);

static __attribute__((noinline, unused)) void bf16_tile(const Product *p, i64 n, i64 j, i64 rows) {
    switch (rows) { SIZES(0) }
}

static __attribute__((noinline, unused)) void int8_tile(const Product *p, i64 n, i64 j, i64 rows) {
    switch (rows) { SIZES(1) }
}

/* The rows from `start` to before `end` of one strip. */
INLINE void rows_of_strip(TileFunction tile, const Product *p, i64 start, i64 end, i64 j) {
    for (i64 n = start; n < end; n += TILE) tile(p, n, j, least(end - n, TILE));
}

/* All of a product, shared among the threads. */
static __attribute__((unused)) void whole_product(TileFunction tile, const Product *p, i64 threads) {
    i64 N = p->N, strips = (p->M + STRIP - 1) / STRIP;
    i64 blocks = N < BLOCKS_FROM ? 1 : (N + BLOCK - 1) / BLOCK, block = (N + blocks - 1) / blocks; /* of equal size */
    PARALLEL_FOR(N * p->M)
    for (i64 i = 0; i < blocks * strips; i++) {
        i64 start = i / strips * block;
        rows_of_strip(tile, p, start, least(start + block, N), i % strips * STRIP);
    }
}
#endif
#endif
