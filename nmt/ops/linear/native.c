/* Matrix products in bf16 that add up in fp32, by the instruction vdpbf16ps: sum[j] += a[2j] b[2j] + a[2j+1] b[2j+1].

   A tile of the result has TILE rows and STRIP columns, all in registers. The right operand is packed in strips of
   columns, two values of the summed index side by side: [strips][pairs][STRIP][2], with zeros beyond the edges. Values
   of the left operand are read in such pairs, wherever they stand. Which thread computes a tile changes nothing in it.
   T is the type of what is packed. To the instruction values below the normal range of bf16 (1e-38) are zeros.

   CPUs without the instruction have no such products, and those with AMX are better served by torch. */

#include "simd.h"

#if defined(__AVX512BF16__) && defined(__AVX512BW__) && !defined(__AMX_BF16__)

#ifndef NMT_LINEAR_ONCE
#define NMT_LINEAR_ONCE

#include <immintrin.h>

#define STRIP 32
#define TILE 12
#define PAIR ((i64)(2 * sizeof(bf16)))
#define STRIP_PAIR (STRIP * PAIR)

/* About so many rows are multiplied with one strip before the next: theirs and the strip's values stay in the cache. */
#define BLOCK 96
#define BLOCKS_FROM 384

/* Rows of the summed index that a weight's gradient takes at a time: a strip of them stays in the cache. */
#define DEPTH 512

#define NARROW(x) (sizeof(x) == sizeof(bf16) ? (bf16)(x) : store_bf16(x))

INLINE i64 least(i64 a, i64 b) { return a < b ? a : b; }

INLINE __m512 read(const char *from, __mmask16 mask, int wide) {
    if (wide) return _mm512_maskz_loadu_ps(mask, from);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from)), 16));
}

INLINE void write(char *to, __mmask16 mask, __m512 x, int wide) {
    __m256i narrow;
    if (wide) {
        _mm512_mask_storeu_ps(to, mask, x);
        return;
    }
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(narrow) : "v"(x));
    _mm256_mask_storeu_epi16(to, mask, narrow);
}

/* The instructions are written out because gcc 12 copies registers around the intrinsic. */
#define DOT(sum, a, b) __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b))

/* R rows and `width` columns of the result, fp32 if `wide`, from a strip b: pair k of row r of the left operand stands
   at a + r ar + k ak, in bytes, as are the strides of the result and of what is added to it, if anything is. */
INLINE void sized_tile(const char *a, i64 ar, i64 ak, const char *b, i64 pairs, const char *added, i64 dn, char *out,
                       i64 on, i64 width, int wide, int R) {
    __m512 sum[TILE][2];
    __mmask16 mask[2] = {width < 16 ? (1u << width) - 1 : 0xffff,
                         width < 17 ? 0 : width < 32 ? (1u << (width - 16)) - 1 : 0xffff};
    i64 half = wide ? 64 : 32;
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    for (i64 k = 0; k < pairs; k++, a += ak, b += STRIP_PAIR) {
        __m512i left = _mm512_loadu_si512(b), right = _mm512_loadu_si512(b + STRIP_PAIR / 2);
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            int32_t pair;
            memcpy(&pair, a + r * ar, sizeof pair);
            __m512i both = _mm512_set1_epi32(pair);
            DOT(sum[r][0], left, both);
            DOT(sum[r][1], right, both);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int c = 0; c < 2; c++) {
            if (added) sum[r][c] = _mm512_add_ps(sum[r][c], read(added + r * dn + c * half, mask[c], wide));
            write(out + r * on + c * half, mask[c], sum[r][c], wide);
        }
}

#define SIZED(R) case R: sized_tile(a, ar, ak, b, pairs, added, dn, out, on, width, wide, R); return;
#define SIZES(R) SIZED(R) SIZED(R + 1) SIZED(R + 2) SIZED(R + 3)

static __attribute__((noinline)) void tile(const char *a, i64 ar, i64 ak, const char *b, i64 pairs, const char *added,
                                           i64 dn, char *out, i64 on, i64 width, int wide, i64 rows) {
    switch (rows) { SIZES(1) SIZES(5) SIZES(9) }
}

#undef SIZED
#undef SIZES
#endif

/* out [N, M] = x [N, K] times a packed matrix, plus `added` [N, M], if any, whose rows stand dn apart; both are fp32 if
   `wide`, else bf16. K is even. */
API void NAME(linear_product)(const bf16 *x, i64 xn, const char *packed, const char *added, i64 dn, char *out, i64 on,
                              i64 wide, i64 N, i64 K, i64 M, i64 threads) {
    i64 strips = (M + STRIP - 1) / STRIP, size = wide ? sizeof(float) : sizeof(bf16);
    i64 blocks = N < BLOCKS_FROM ? 1 : (N + BLOCK - 1) / BLOCK, block = (N + blocks - 1) / blocks; /* of equal size */
    PARALLEL_FOR(N * M)
    for (i64 i = 0; i < blocks * strips; i++) {
        i64 start = i / strips * block, end = least(start + block, N), j = i % strips * STRIP;
        for (i64 n = start; n < end; n += TILE)
            tile((const char *)(x + n * xn), xn * sizeof(bf16), PAIR, packed + j * K * sizeof(bf16), K / 2,
                 added ? added + (n * dn + j) * size : 0, dn * size, out + (n * on + j) * size, on * size, M - j,
                 wide, least(end - n, TILE));
    }
}

/* The strips of w' [K, M]: to multiply with the transposed matrix. w [M, K], K is even. */
API void NAME(linear_pack_transposed)(const T *w, i64 wm, bf16 *packed, i64 M, i64 K, i64 threads) {
    PARALLEL_FOR(M * K)
    for (i64 m = 0; m < M; m += STRIP)
        for (i64 start = 0; start < K; start += STRIP) {
            bf16 square[STRIP][STRIP] = {0};
            i64 rows = least(M - m, STRIP), width = least(K - start, STRIP);
            for (i64 r = 0; r < rows; r++) {
                const T *restrict from = w + (m + r) * wm + start;
#pragma omp simd
                for (i64 j = 0; j < width; j++) square[r][j] = NARROW(from[j]);
            }
            bf16 *to = packed + m * K + start * STRIP;
            for (i64 j = 0; j < width; j += 2)
                for (i64 r = 0; r < STRIP; r++, to += 2) memcpy(to, &square[r][j], PAIR);
        }
}

/* A strip of `rows` rows, from x on. */
INLINE void NAME(pack_strip)(const T *x, i64 xn, bf16 *to, i64 rows, i64 width) {
    for (i64 n = 0; n < rows; n += 2, to += 2 * STRIP) {
        const T *restrict even = x + n * xn, *restrict odd = n + 1 < rows ? even + xn : even;
        bf16 last = n + 1 < rows ? 0xffff : 0;
        if (width >= STRIP)
#pragma omp simd
            for (i64 j = 0; j < STRIP; j++)
                to[2 * j] = NARROW(even[j]), to[2 * j + 1] = NARROW(odd[j]) & last;
        else
            for (i64 j = 0; j < STRIP; j++)
                to[2 * j] = j < width ? NARROW(even[j]) : 0,
                       to[2 * j + 1] = j < width ? NARROW(odd[j]) & last : 0;
    }
}

/* The strips of x [N, K] itself. */
API void NAME(linear_pack)(const T *x, i64 xn, bf16 *packed, i64 N, i64 K, i64 threads) {
    PARALLEL_FOR(N * K)
    for (i64 j = 0; j < K; j += STRIP) NAME(pack_strip)(x + j, xn, packed + j * (N + N % 2), N, K - j);
}

/* out [M, K] = or, if `add`, += y' x in fp32, from y [N, M] and the packed x [N, K]. */
API void NAME(linear_gradient)(const T *y, i64 yn, const char *packed, float *out, i64 N, i64 M, i64 K, i64 add,
                               i64 threads) {
    i64 pairs = (N + 1) / 2;
    PARALLEL_FOR(M * K)
    for (i64 m = 0; m < M; m += STRIP)
        for (i64 start = 0; start < N; start += DEPTH) {
            bf16 strip[DEPTH * STRIP];
            i64 depth = least(N - start, DEPTH), rows = least(M - m, STRIP);
            NAME(pack_strip)(y + start * yn + m, yn, strip, depth, rows);
            for (i64 j = 0; j < K; j += STRIP)
                for (i64 r = 0; r < rows; r += 11) { /* a strip's 32 rows in 11, 11 and 10 */
                    char *to = (char *)(out + (m + r) * K + j);
                    tile((const char *)strip + r * PAIR, PAIR, STRIP_PAIR, packed + (j * pairs + start * STRIP / 2) * PAIR,
                         (depth + 1) / 2, add || start ? to : 0, K * sizeof(float), to, K * sizeof(float), K - j, 1,
                         least(rows - r, 11));
                }
        }
}
#endif
