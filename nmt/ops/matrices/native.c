/* Products with matrices packed for instructions that add up products of small numbers, in groups of four bytes: two of
   bf16 in fp32 (vdpbf16ps of AVX512_BF16) or four of int8 in int32 (vpdpbusd of AVX-512 VNNI).

   A matrix [M, K] is packed in strips of STRIP outputs, [M / STRIP][groups][STRIP][group], with zeros beyond the edges.
   A tile of the result, TILE rows and one strip, stays in registers over all groups: no row depends on the others, and
   nothing depends on the number of threads. vdpbf16ps treats values below the normal range of bf16 (1e-38) as zeros.
   vpdpbusd requires one unsigned factor: 128 is added to each value of an int8 matrix, and `excess`, 128 times the sum
   of a row, is subtracted again.

   fp32 is packed in the same way, in groups of one value. With AMX, which multiplies whole tiles of bf16 and int8 and
   which torch uses, only the products in fp32 are compiled.

   T is the type of the values that are packed or converted to int8, and of the logits of `best`. */

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

/* At most TILE rows from n on and the outputs of one strip from j on. */
typedef void (*TileFunction)(const Product *, i64 n, i64 j, i64 rows);
void bf16_tile(const Product *, i64 n, i64 j, i64 rows);

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

#if defined(FIRST_VERSION) && (defined(FP32_TILES) || defined(BF16_TILES) || defined(INT8_TILES))
#include <immintrin.h>

/* The type of the multiplied values. */
enum kind { FP32, BF16, INT8 };

INLINE __m512 read_values(const char *from, __mmask16 mask, int wide) {
    if (wide) return _mm512_maskz_loadu_ps(mask, from);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from)), 16));
}

INLINE void write_values(char *to, __mmask16 mask, __m512 x, int wide) {
    if (wide) {
        _mm512_mask_storeu_ps(to, mask, x);
        return;
    }
#ifdef BF16_TILES
    __m256i rounded;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(x));
    _mm256_mask_storeu_epi16(to, mask, rounded);
#endif
}

/* The instructions are written out because gcc 12 copies registers around the intrinsics. */
#define DOT(instruction, sum, a, b) __asm__(instruction " %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b))

/* R rows from n on and the outputs of one strip from j on. R and the kind are known when this is compiled. */
INLINE void sized_tile(const Product *p, i64 n, i64 j, enum kind kind, int R) {
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
            if (kind == INT8) {
                DOT("vpdpbusd", sum[r][0], left, same);
                DOT("vpdpbusd", sum[r][1], right, same);
            } else if (kind == BF16) {
                DOT("vdpbf16ps", sum[r][0], left, same);
                DOT("vdpbf16ps", sum[r][1], right, same);
            } else {
                DOT("vfmadd231ps", sum[r][0], left, same);
                DOT("vfmadd231ps", sum[r][1], right, same);
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
            __m512 x = _mm512_castsi512_ps(sum[r][c]), factor = _mm512_set1_ps(kind == INT8 ? p->rows[n + r] : 1.0f);
            if (kind == INT8) {
                x = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum[r][c], _mm512_set1_epi32(p->excess[n + r])));
                x = _mm512_mul_ps(x, _mm512_maskz_loadu_ps(mask[c], p->columns + j + 16 * c));
            }
            if (added)
                x = _mm512_fmadd_ps(x, factor, read_values(added + r * added_row + 16 * c * size, mask[c], wide));
            else if (kind == INT8)
                x = _mm512_mul_ps(x, factor);
            write_values(out + r * out_row + 16 * c * size, mask[c], x, wide);
        }
}

#define SIZED(R, kind) case R: sized_tile(p, n, j, kind, R); return;
#define TILE_FUNCTION(name, kind)                                                                                      \
    void name(const Product *p, i64 n, i64 j, i64 rows) {                                                              \
        switch (rows) {                                                                                                \
            SIZED(1, kind) SIZED(2, kind) SIZED(3, kind) SIZED(4, kind) SIZED(5, kind) SIZED(6, kind)                  \
            SIZED(7, kind) SIZED(8, kind) SIZED(9, kind) SIZED(10, kind) SIZED(11, kind) SIZED(12, kind)               \
        }                                                                                                              \
    }

#ifdef FP32_TILES
/* inlined into `fp32_gradient`, its sums would not stay in registers */
static __attribute__((noinline)) TILE_FUNCTION(fp32_tile, FP32)
#endif
#ifdef BF16_TILES
TILE_FUNCTION(bf16_tile, BF16)
#endif
#ifdef INT8_TILES
static TILE_FUNCTION(int8_tile, INT8)
#endif
#endif

#define NARROW(x) (sizeof(x) == sizeof(bf16) ? (bf16)(x) : store_bf16(x))

/* Rows of the summed index that a weight's gradient processes at a time, so that a strip of them stays in the cache. */
#define DEPTH 512
#define SHORT 64 /* in fp32, where short sums keep the rounding errors small */

/* The strips of w [M, K] in bf16, to multiply with its transpose. K is even. */
API void NAME(pack)(const T *w, i64 wm, bf16 *packed, i64 M, i64 K, i64 threads) {
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
                for (i64 r = 0; r < STRIP; r++, to += 2) memcpy(to, &square[r][j], GROUP);
        }
}

/* A strip of the transpose of `rows` rows, from x on. */
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

/* The strips of the transpose of x [N, K], to multiply with x itself. */
API void NAME(pack_transposed)(const T *x, i64 xn, bf16 *packed, i64 N, i64 K, i64 threads) {
    PARALLEL_FOR(N * K)
    for (i64 j = 0; j < K; j += STRIP) NAME(pack_strip)(x + j, xn, packed + j * (N + N % 2), N, K - j);
}

#if defined(FP32_TILES) && defined(FIRST_VERSION)
/* The strips of w [M, K] in fp32, to multiply with its transpose. */
API void NAME(pack_fp32)(const float *w, i64 wm, float *packed, i64 M, i64 K, i64 threads) {
    PARALLEL_FOR(M * K)
    for (i64 m = 0; m < M; m += STRIP)
        for (i64 start = 0; start < K; start += STRIP) {
            float *to = packed + m * K + start * STRIP;
            i64 rows = least(M - m, STRIP), width = least(K - start, STRIP);
            if (rows < STRIP) memset(to, 0, width * STRIP_GROUP);
            for (i64 r = 0; r < rows; r++) {
                const float *restrict from = w + (m + r) * wm + start;
                for (i64 j = 0; j < width; j++) to[j * STRIP + r] = from[j];
            }
        }
}

/* The strips of the transpose of w [M, K] in fp32, to multiply with w itself. */
API void NAME(pack_transposed_fp32)(const float *w, i64 wm, float *packed, i64 M, i64 K, i64 threads) {
    PARALLEL_FOR(M * K)
    for (i64 start = 0; start < K; start += STRIP) {
        float *to = packed + start * M;
        i64 width = least(K - start, STRIP);
        for (i64 m = 0; m < M; m++, to += STRIP) {
            memcpy(to, w + m * wm + start, width * sizeof(float));
            memset(to + width, 0, (STRIP - width) * sizeof(float));
        }
    }
}

/* out [N, M] = x [N, K] times a matrix packed in fp32, plus `added` [N, M], if any, whose rows have stride dn. */
API void NAME(fp32_product)(const float *x, i64 xn, const float *packed, const float *OPTIONAL added, i64 dn,
                            float *out, i64 on, i64 N, i64 K, i64 M, i64 threads) {
    i64 size = sizeof(float);
    Product p = {x, packed, added, out, xn * size, GROUP, K * STRIP_GROUP, dn * size, on * size, 1, K, N, M, 0, 0, 0};
    whole_product(fp32_tile, &p, threads);
}

/* out [M, K] = or, if `add`, += y' x, from y [N, M] and the packed transpose of x [N, K]. */
API void NAME(fp32_gradient)(const float *y, i64 yn, const float *packed, float *out, i64 N, i64 M, i64 K, i64 add,
                             i64 threads) {
    PARALLEL_FOR(M * K)
    for (i64 m = 0; m < M; m += STRIP)
        for (i64 start = 0; start < N; start += SHORT) {
            float strip[SHORT][STRIP], *to = out + m * K;
            i64 depth = least(N - start, SHORT), rows = least(M - m, STRIP), row = K * sizeof(float);
            for (i64 n = 0; n < depth; n++) memcpy(strip[n], y + (start + n) * yn + m, rows * sizeof(float));
            Product p = {strip, packed + start * STRIP, add || start ? to : 0, to,
                         GROUP, STRIP_GROUP, N * STRIP_GROUP, row, row, 1, depth, rows, K, 0, 0, 0};
            for (i64 j = 0; j < K; j += STRIP)
                for (i64 r = 0; r < rows; r += 11) fp32_tile(&p, r, j, least(rows - r, 11)); /* 11, 11 and 10 */
        }
}
#endif

#ifdef BF16_TILES
/* out [N, M] = x [N, K] times a packed matrix, plus `added` [N, M], if any, whose rows have stride dn; both are fp32 if
   `wide`, else bf16. K is even. */
API void NAME(bf16_product)(const bf16 *x, i64 xn, const bf16 *packed, const char *OPTIONAL added, i64 dn, char *out,
                            i64 on, i64 wide, i64 N, i64 K, i64 M, i64 threads) {
    i64 size = wide ? sizeof(float) : sizeof(bf16), groups = K / 2;
    Product p = {x, packed, added, out, xn * sizeof(bf16), GROUP, groups * STRIP_GROUP,
                 dn * size, on * size, wide, groups, N, M, 0, 0, 0};
    whole_product(bf16_tile, &p, threads);
}

/* out [M, K] = or, if `add`, += y' x in fp32, from y [N, M] and the packed transpose of x [N, K]. */
API void NAME(bf16_gradient)(const T *y, i64 yn, const bf16 *packed, float *out, i64 N, i64 M, i64 K, i64 add,
                             i64 threads) {
    PARALLEL_FOR(M * K)
    for (i64 m = 0; m < M; m += STRIP)
        for (i64 start = 0; start < N; start += DEPTH) {
            bf16 strip[DEPTH * STRIP];
            float *to = out + m * K;
            i64 depth = least(N - start, DEPTH), rows = least(M - m, STRIP), row = K * sizeof(float);
            NAME(pack_strip)(y + start * yn + m, yn, strip, depth, rows);
            Product p = {strip, packed + start * STRIP, add || start ? to : 0, to,
                         GROUP, STRIP_GROUP, (N + 1) / 2 * STRIP_GROUP, row, row, 1, (depth + 1) / 2, rows, K, 0, 0, 0};
            for (i64 j = 0; j < K; j += STRIP)
                for (i64 r = 0; r < rows; r += 11) bf16_tile(&p, r, j, least(rows - r, 11)); /* 11, 11 and 10 */
        }
}
#endif

#if defined(INT8_TILES) && defined(FIRST_VERSION)
/* out [N, M] of rows x [N, K] from `int8_rows`: (sum - excess_n) columns_m rows_n + bias_m. K is a multiple of 4. */
API void NAME(int8_product)(const int8_t *x, const int32_t *excess, const float *rows, const bf16 *packed,
                            const float *columns, const float *OPTIONAL bias, float *out, i64 N, i64 K, i64 M,
                            i64 threads) {
    Product p = {x, packed, bias, out, K, GROUP, K * STRIP, 0, M * sizeof(float),
                 1, K / GROUP, N, M, excess, rows, columns};
    whole_product(int8_tile, &p, threads);
}
#endif

/* q[n, j] = round(x[n, j] / s_n), s_n = max_j |x[n, j]| / 127, at least `least`; ties to even. Rows of q are qn wide,
   padded with zeros. excess_n = 128 sum_j q[n, j], see above. With a NaN in a row s_n is NaN. */
API void NAME(int8_rows)(const T *x, i64 xn, int8_t *q, i64 qn, float *scales, int32_t *excess, i64 N, i64 K,
                         float least, i64 threads) {
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

/* y[n, j] = sums[n, j] t_j s_n + bias_j, for the first M columns of the sums, whose rows have stride `wide`. */
API void NAME(int8_scale)(const int32_t *sums, i64 wide, const float *scales, const float *columns,
                          const float *OPTIONAL bias, T *y, i64 N, i64 M, i64 threads) {
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

/* The k best values over all of P rows x [V]: (x - lse(x)) + before of each row, or x + before without normalising;
   largest first, and of equal values the first. The logits of a step are read while they are in the cache, and nothing
   of their size is written; products with a packed matrix do not have to leave the cache.

   logits [B, P, V], before [B, P] or none, values and places (p V + j) [B, k]. The value of the id `banned` counts as
   -infinity, except in the normalisation; `penalty` is subtracted from the value of the id `penalised`; -1: none. */

#define BEST_BLOCK 128

INLINE float NAME(best_maximum)(const T *restrict x, i64 n) {
    float top = -INFINITY;
#pragma omp simd reduction(max : top)
    for (i64 j = 0; j < n; j++) {
        float y = LOAD(x[j]);
        top = y > top ? y : top;
    }
    return top;
}

/* A lower bound of the k-th largest x that counts: the (k + 2)-th largest maximum of a block, because banned and
   penalised ids may be among the maxima. `largest` has room for k + 2. */
INLINE float NAME(best_bound)(const float *maxima, i64 blocks, i64 k, float *largest) {
    if (blocks < k + 2) return -INFINITY;
    for (i64 i = 0; i < blocks; i++) {
        i64 at = i < k + 2 ? i : k + 1;
        if (i >= k + 2 && !(maxima[i] > largest[at])) continue;
        for (; at > 0 && maxima[i] > largest[at - 1]; at--) largest[at] = largest[at - 1];
        largest[at] = maxima[i];
    }
    return largest[k + 1];
}

/* The k best of one group: logits [P, V], before [P] or none, value and place [k]. */
static void NAME(best_of_group)(const T *logits, const float *before, i64 P, i64 V, i64 k, i64 normalize, i64 banned,
                                i64 penalised, float penalty, float *value, i64 *place) {
    i64 whole = V / BEST_BLOCK, blocks = (V + BEST_BLOCK - 1) / BEST_BLOCK, found = 0;
    float maxima[blocks], largest[k + 2];
    for (i64 p = 0; p < P; p++) {
        const T *restrict x = logits + p * V;
        float shift = before ? before[p] : 0.0f, top = 0.0f, lse = 0.0f;
        if (normalize && found == k && !(shift > value[k - 1])) continue; /* a log-probability is 0 at most */
        for (i64 i = 0; i < whole; i++) maxima[i] = NAME(best_maximum)(x + i * BEST_BLOCK, BEST_BLOCK);
        if (whole < blocks) maxima[whole] = NAME(best_maximum)(x + whole * BEST_BLOCK, V - whole * BEST_BLOCK);
        if (normalize) {
            float total = 0.0f;
            top = maxima[0];
            for (i64 i = 1; i < blocks; i++) top = maxima[i] > top ? maxima[i] : top;
#pragma omp simd reduction(+ : total)
            for (i64 j = 0; j < V; j++) total += fast_exp(LOAD(x[j]) - top);
            lse = logf(total);
        } else { /* the sum above propagates NaN; maxima do not, and a row with a NaN has no best word */
            int bad = 0;
#pragma omp simd reduction(| : bad)
            for (i64 j = 0; j < V; j++) bad |= LOAD(x[j]) != LOAD(x[j]);
            if (bad) lse = NAN;
        }
        float bound = NAME(best_bound)(maxima, blocks, k, largest);
        for (i64 i = 0; i < blocks; i++) {
            if (maxima[i] < bound) continue;
            if (found == k && !(((maxima[i] - top) - lse) + shift > value[k - 1])) continue;
            i64 end = i < whole ? (i + 1) * BEST_BLOCK : V;
            for (i64 j = i * BEST_BLOCK; j < end; j++) {
                if (LOAD(x[j]) < bound) continue;
                float y = (LOAD(x[j]) - top) - lse;
                if (j == penalised) y -= penalty;
                if (j == banned && y == y) y = -INFINITY; /* nothing is known about a row with a NaN */
                y += shift;
                if (found == k && !(y > value[k - 1])) continue;
                i64 at = found < k ? found++ : k - 1;
                for (; at > 0 && y > value[at - 1]; at--) value[at] = value[at - 1], place[at] = place[at - 1];
                value[at] = y, place[at] = p * V + j;
            }
        }
    }
}

API void NAME(best)(const T *logits, const float *OPTIONAL before, i64 B, i64 P, i64 V, i64 k, i64 normalize,
                    i64 banned, i64 penalised, float penalty, float *values, i64 *places, i64 threads) {
    PARALLEL_FOR(B * P * V)
    for (i64 b = 0; b < B; b++)
        NAME(best_of_group)(logits + b * P * V, before ? before + b * P : 0, P, V, k, normalize, banned, penalised,
                            penalty, values + b * k, places + b * k);
}

#if defined(FIRST_VERSION) && (defined(BF16_TILES) || defined(INT8_TILES))
/* The same for the outputs of a product. With `shared`, for few rows, there is room for all outputs; else there is room
   for the outputs of `at_once` groups for each thread. */
static void best_of_product(TileFunction tile, const Product *p, i64 shared, i64 at_once, const float *before, i64 P,
                            i64 k, i64 normalize, i64 banned, i64 penalised, float penalty, float *values, i64 *places,
                            i64 threads) {
    i64 B = p->N / P, V = p->M;
    if (shared) {
        whole_product(tile, p, threads);
        NAME(best)(p->out, before, B, P, V, k, normalize, banned, penalised, penalty, values, places,
                   threads);
        return;
    }
    PARALLEL_FOR(PARALLEL_FROM)
    for (i64 thread = 0; thread < threads; thread++) {
        float *room = (float *)p->out + thread * at_once * P * V;
        for (i64 first = thread * at_once; first < B; first += threads * at_once) {
            i64 last = least(first + at_once, B), skipped = first * P;
            Product own = *p;
            own.x = (const char *)p->x + skipped * p->x_row, own.out = room;
            if (p->rows) own.rows += skipped, own.excess += skipped;
            for (i64 j = 0; j < V; j += STRIP) rows_of_strip(tile, &own, 0, (last - first) * P, j);
            for (i64 b = first; b < last; b++)
                NAME(best_of_group)(room + (b - first) * P * V, before ? before + b * P : 0, P, V, k, normalize,
                                    banned, penalised, penalty, values + b * k, places + b * k);
        }
    }
}
#endif

#if defined(FIRST_VERSION) && defined(BF16_TILES)
API void NAME(bf16_best)(const bf16 *x, const bf16 *packed, float *room, i64 shared, i64 at_once, i64 N, i64 K, i64 V,
                         const float *OPTIONAL before, i64 P, i64 k, i64 normalize, i64 banned, i64 penalised,
                         float penalty, float *values, i64 *places, i64 threads) {
    Product p = {x, packed, 0, room, K * sizeof(bf16), GROUP, K * sizeof(bf16) * STRIP, 0,
                 V * sizeof(float), 1, K / 2, N, V, 0, 0, 0};
    best_of_product(bf16_tile, &p, shared, at_once, before, P, k, normalize, banned, penalised, penalty, values,
                    places, threads);
}
#endif

#if defined(FIRST_VERSION) && defined(INT8_TILES)
API void NAME(int8_best)(const int8_t *x, const int32_t *excess, const float *rows, const bf16 *packed,
                         const float *columns, float *room, i64 shared, i64 at_once, i64 N, i64 K, i64 V,
                         const float *OPTIONAL before, i64 P, i64 k, i64 normalize, i64 banned, i64 penalised,
                         float penalty, float *values, i64 *places, i64 threads) {
    Product p = {x, packed, 0, room, K, GROUP, K * STRIP, 0,
                 V * sizeof(float), 1, K / GROUP, N, V, excess, rows, columns};
    best_of_product(int8_tile, &p, shared, at_once, before, P, k, normalize, banned, penalised, penalty, values,
                    places, threads);
}
#endif
