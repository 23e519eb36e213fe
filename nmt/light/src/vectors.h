/* Vectors of as many floats as the instruction set has in a register, in the vector types of gcc and clang, and sums
   that do not depend on where in memory their terms lie. */

#ifndef NMT_VECTORS_H
#define NMT_VECTORS_H

#include "../../ops/native/simd.h"

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * LANES)));

INLINE vf load(const float *x) {
    vf v;
    memcpy(&v, x, sizeof v);
    return v;
}

INLINE vi load_integers(const int32_t *x) {
    vi v;
    memcpy(&v, x, sizeof v);
    return v;
}

INLINE void store(float *y, vf v) { memcpy(y, &v, sizeof v); }

/* Apart from its callers: a copy of any size, where it is written out, is longer than all that they do. */
static __attribute__((noinline)) void copy_some(void *to, const void *from, i64 n) { memcpy(to, from, (size_t)n * 4); }

/* The first `n` values, which may be more than there is room for, and zeros. */
INLINE vf load_some(const float *x, i64 n) {
    vf v = {0};
    if (__builtin_expect(n >= LANES, 1)) memcpy(&v, x, sizeof v);
    else if (n > 0) copy_some(&v, x, n);
    return v;
}

/* `v`, with zeros from the n-th lane on. */
INLINE vf some_of(vf v, i64 n) {
    vf some = {0};
    if (__builtin_expect(n >= LANES, 1)) return v;
    copy_some(&some, &v, n);
    return some;
}

/* The sum of the lanes, halves added to halves. */
typedef float four_floats __attribute__((vector_size(16)));

INLINE float lane_sum(vf v) {
    four_floats part[LANES / 4];
    memcpy(part, &v, sizeof v);
#if LANES == 16
    part[0] += part[2], part[1] += part[3];
#endif
#if LANES >= 8
    part[0] += part[1];
#endif
    return (part[0][0] + part[0][2]) + (part[0][1] + part[0][3]);
}

/* The sum of `term`, a vector made from the `n - j` values from j on, 0 where there are none, over j = 0, LANES, ... in
   four sums side by side. */
#define SUM_OF_VECTORS(result, n, term)                             \
    do {                                                            \
        vf s0_ = {0}, s1_ = {0}, s2_ = {0}, s3_ = {0};              \
        i64 j = 0;                                                  \
        while (j + 4 * LANES <= (n)) {                              \
            s0_ += (term), j += LANES, s1_ += (term), j += LANES;   \
            s2_ += (term), j += LANES, s3_ += (term), j += LANES;   \
        }                                                           \
        for (; j < (n); j += LANES) s0_ += (term);                  \
        (result) = lane_sum((s0_ + s1_) + (s2_ + s3_));             \
    } while (0)

INLINE float sum_of(const float *x, i64 n) {
    float sum;
    SUM_OF_VECTORS(sum, n, load_some(x + j, n - j));
    return sum;
}

INLINE vf larger(vf a, vf b) { /* b where a is NaN */
#if LANES == 16
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif LANES == 8
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (vf)_mm_max_ps((__m128)a, (__m128)b);
#elif defined(__wasm_simd128__)
    return (vf)wasm_f32x4_pmax((v128_t)b, (v128_t)a);
#else
    vi above = a > b;
    return (vf)(((vi)a & above) | ((vi)b & ~above));
#endif
}

/* A bit for each lane that is larger than `least`. */
INLINE unsigned lanes_above(vf v, float least) {
#if LANES == 16
    return _mm512_cmp_ps_mask((__m512)v, _mm512_set1_ps(least), _CMP_GT_OQ);
#elif LANES == 8
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps((__m256)v, _mm256_set1_ps(least), _CMP_GT_OQ));
#elif defined(__SSE2__)
    return (unsigned)_mm_movemask_ps(_mm_cmpgt_ps((__m128)v, _mm_set1_ps(least)));
#elif defined(__wasm_simd128__)
    return wasm_i32x4_bitmask((v128_t)(v > least));
#else
    vi bits = (v > least) & (vi){1, 2, 4, 8};
    return (unsigned)((bits[0] | bits[1]) | (bits[2] | bits[3]));
#endif
}

/* The largest of `least` and the values of x, or their absolute values, that are numbers; whether one is not. */
INLINE float largest(const float *x, i64 n, float least, const int absolute, int *odd) {
    vf top[4];
    vi nan = {0};
    i64 j = 0;
    for (int i = 0; i < 4; i++) top[i] = (vf){0} + least;
    for (; j + 4 * LANES <= n; j += 4 * LANES)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            vf v = load(x + j + i * LANES);
            if (absolute) v = (vf)((vi)v & 0x7fffffff);
            nan |= v != v;
            top[i] = larger(v, top[i]);
        }
    float found = least, lanes[LANES];
    int32_t odds[LANES];
    top[0] = larger(larger(top[0], top[1]), larger(top[2], top[3]));
    memcpy(lanes, &top[0], sizeof lanes);
    memcpy(odds, &nan, sizeof odds);
    *odd = 0;
    for (int i = 0; i < LANES; i++) found = lanes[i] > found ? lanes[i] : found, *odd |= odds[i];
    for (; j < n; j++) {
        float v = absolute ? fabsf(x[j]) : x[j];
        found = v > found ? v : found;
        *odd |= v != v;
    }
    return found;
}

#endif
