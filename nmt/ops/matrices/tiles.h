/* Products with matrices packed for instructions that add up products of small numbers, in groups of four bytes: two of
   bf16 in fp32 (vdpbf16ps of AVX512_BF16) or four of int8 in int32 (vpdpbusd of AVX-512 VNNI).

   A matrix [M, K] is packed in strips of STRIP outputs, [M / STRIP][groups][STRIP][group], with zeros beyond the edges.
   A tile of the result, TILE rows and one strip, stays in registers over all groups: no row depends on the others, and
   nothing depends on the number of threads. vdpbf16ps treats values below the normal range of bf16 (1e-38) as zeros.
   vpdpbusd requires one unsigned factor: 128 is added to each value of an int8 matrix, and `excess`, 128 times the sum
   of a row, is subtracted again.

   fp32 is packed in the same way, in groups of one value. With AMX, which multiplies whole tiles of bf16 and int8 and
   which torch uses, only the products in fp32 are compiled. */

#ifndef NMT_TILES_H
#define NMT_TILES_H

#include "simd.h"

#define STRIP 32
#define TILE 12
#define GROUP 4
#define STRIP_GROUP (STRIP * GROUP)

/* About this many rows are multiplied with one strip before the next, so that rows and strip stay in the cache. */
#define BLOCK 96
#define BLOCKS_FROM 384

INLINE i64 least(i64 a, i64 b) { return a < b ? a : b; }

#if defined(__AVX512F__) && defined(__AVX512BW__)
#define FP32_TILES
#endif
#if defined(__AVX512BF16__) && defined(__AVX512BW__) && !defined(__AMX_BF16__)
#define BF16_TILES
#endif
#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && !defined(__AMX_INT8__)
#define INT8_TILES
#endif

/* out [N, M], plus `added`, if any, both fp32 if `wide`, else bf16; for int8 (sum - excess_n) columns_m rows_n. */
typedef struct {
    const void *x, *packed, *added;
    void *out;
    i64 x_row, x_group, strip, added_row, out_row; /* bytes from one to the next */
    i64 wide, groups, N, M;
    const int32_t *excess;
    const float *rows, *columns;
} Product;

/* At most TILE rows from n on and the outputs of one strip from j on; in products.c. */
typedef void (*TileFunction)(const Product *, i64 n, i64 j, i64 rows);
void bf16_tile(const Product *, i64 n, i64 j, i64 rows);
void int8_tile(const Product *, i64 n, i64 j, i64 rows);

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
