/* Products with packed matrices (see tiles.h) and their helpers: packing, gradients of weights, rows in int8. T is the
   type of the values that are packed or converted to int8. */

#include "tiles.h"

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
#define SIZES(kind)                                                                                                    \
    SIZED(1, kind) SIZED(2, kind) SIZED(3, kind) SIZED(4, kind) SIZED(5, kind) SIZED(6, kind)                          \
    SIZED(7, kind) SIZED(8, kind) SIZED(9, kind) SIZED(10, kind) SIZED(11, kind) SIZED(12, kind)

#ifdef FP32_TILES
static void fp32_tile(const Product *p, i64 n, i64 j, i64 rows) {
    switch (rows) { SIZES(FP32) }
}
#endif

#ifdef BF16_TILES
void bf16_tile(const Product *p, i64 n, i64 j, i64 rows) {
    switch (rows) { SIZES(BF16) }
}
#endif

#ifdef INT8_TILES
void int8_tile(const Product *p, i64 n, i64 j, i64 rows) {
    switch (rows) { SIZES(INT8) }
}
#endif
#endif

#define NARROW(x) (sizeof(x) == sizeof(bf16) ? (bf16)(x) : store_bf16(x))

/* Rows of the summed index that a weight's gradient processes at a time, so that a strip of them stays in the cache. */
#define DEPTH 512

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
   padded with zeros. excess_n = 128 sum_j q[n, j], see tiles.h. With a NaN in a row s_n is NaN. */
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
