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

INLINE vi load_integers(const void *x) {
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
typedef int32_t four_ints __attribute__((vector_size(16)));

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
#else
    vi above = a > b;
    return (vf)(((vi)a & above) | ((vi)b & ~above));
#endif
}

/* The largest of the lanes; of those that are NaN none counts if any other is a number. */
INLINE float lane_max(vf v) {
    four_floats part[LANES / 4];
    memcpy(part, &v, sizeof v);
    for (int left = LANES / 8; left; left /= 2)
        for (int i = 0; i < left; i++) {
            const four_ints above = part[i] > part[i + left];
            part[i] = (four_floats)(((four_ints)part[i] & above) | ((four_ints)part[i + left] & ~above));
        }
    const float a = part[0][0] > part[0][2] ? part[0][0] : part[0][2], b = part[0][1] > part[0][3] ? part[0][1] : part[0][3];
    return a > b ? a : b;
}

/* A bit for each lane that is larger than `least`. */
INLINE unsigned lanes_above(vf v, float least) {
#if LANES == 16
    return _mm512_cmp_ps_mask((__m512)v, _mm512_set1_ps(least), _CMP_GT_OQ);
#elif LANES == 8
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps((__m256)v, _mm256_set1_ps(least), _CMP_GT_OQ));
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
    float found = lane_max(larger(larger(top[0], top[1]), larger(top[2], top[3])));
    *odd = lane_sum(__builtin_convertvector(nan, vf)) != 0.0f;
    for (; j < n; j++) {
        float v = absolute ? fabsf(x[j]) : x[j];
        found = v > found ? v : found;
        *odd |= v != v;
    }
    return found;
}

/* Sums of products of int8 values, four neighbouring inputs at a time: what each instruction set has for it.

   An `int8_sum` belongs to LANES outputs. All of them end in the same integers: no step saturates, with inputs and
   weights within +-127. Where OFFSET is not 0 it was added to the inputs, and sums begin at what it makes too
   much. */

#if defined(__AVX512VNNI__)
/* vpdpbusd multiplies numbers without a sign, the inputs, by numbers with one. It is written out because gcc 12 copies
   registers around the intrinsic. */
#define OFFSET 128
typedef vi int8_sum;
/* No sum of a file is too large for it. */
INLINE int8_sum int8_start(vi row_sums) { return (vi)(-(vu)row_sums * OFFSET); }
INLINE int8_sum int8_add(int8_sum sum, vi w, int32_t x) {
    vi same = (vi){0} + x;
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(same), "v"(w));
    return sum;
}
INLINE vi int8_total(int8_sum sum) { return sum; }

#elif defined(__AVX2__)
/* vpmaddubsw multiplies numbers without a sign, the amounts of the inputs, by numbers with one, weights that have got the
   signs of the inputs, and adds the products in pairs, to at most 2 * 127 * 127 in an int16. */
#define OFFSET 0
typedef vi int8_sum;
INLINE int8_sum int8_start(vi row_sums) { return row_sums ^ row_sums; }
INLINE __m256i int8_pairs(vi w, const char *x, i64 to_amounts, const int positive) {
    int32_t inputs, amounts;
    memcpy(&inputs, x, sizeof inputs);
    memcpy(&amounts, x + to_amounts, sizeof amounts);
    const __m256i signed_w = positive ? (__m256i)w : _mm256_sign_epi8((__m256i)w, _mm256_set1_epi32(inputs));
    return _mm256_maddubs_epi16(_mm256_set1_epi32(amounts), signed_w);
}
INLINE int8_sum int8_widened(int8_sum sum, __m256i pairs) {
    return sum + (vi)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
#define INT8_TWO_GROUPS
INLINE vi int8_total(int8_sum sum) { return sum; }

#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#define OFFSET 0
typedef vi int8_sum;
INLINE int8_sum int8_start(vi row_sums) { return row_sums ^ row_sums; }
INLINE int8_sum int8_add(int8_sum sum, vi w, int32_t x) {
    return (vi)vdotq_s32((int32x4_t)sum, (int8x16_t)w, vreinterpretq_s8_s32(vdupq_n_s32(x)));
}
INLINE vi int8_total(int8_sum sum) { return sum; }

#else
/* In two halves of int16 values, pairs of which are added up in int32: lane 2 i and 2 i + 1 belong to one output. */
#define OFFSET 0
typedef struct { vi low, high; } int8_sum;
INLINE int8_sum int8_start(vi row_sums) { return (int8_sum){row_sums ^ row_sums, row_sums ^ row_sums}; }

#if defined(__SSE2__)
INLINE int8_sum int8_add(int8_sum sum, vi w, int32_t x) {
    __m128i v = (__m128i)w, same = _mm_set1_epi32(x);
    __m128i wide = _mm_srai_epi16(_mm_unpacklo_epi8(same, same), 8);
    sum.low += (vi)_mm_madd_epi16(_mm_srai_epi16(_mm_unpacklo_epi8(v, v), 8), wide);
    sum.high += (vi)_mm_madd_epi16(_mm_srai_epi16(_mm_unpackhi_epi8(v, v), 8), wide);
    return sum;
}
#elif defined(__ARM_NEON)
#include <arm_neon.h>
INLINE int8_sum int8_add(int8_sum sum, vi w, int32_t x) {
    int8x16_t v = (int8x16_t)w;
    int8x8_t same = vreinterpret_s8_s32(vdup_n_s32(x));
    sum.low = (vi)vpadalq_s16((int32x4_t)sum.low, vmull_s8(vget_low_s8(v), same));
    sum.high = (vi)vpadalq_s16((int32x4_t)sum.high, vmull_s8(vget_high_s8(v), same));
    return sum;
}
#elif defined(__wasm_simd128__)
INLINE int8_sum int8_add(int8_sum sum, vi w, int32_t x) {
    v128_t v = (v128_t)w, wide = wasm_i16x8_extend_low_i8x16(wasm_i32x4_splat(x));
    sum.low += (vi)wasm_i32x4_dot_i16x8(wasm_i16x8_extend_low_i8x16(v), wide);
    sum.high += (vi)wasm_i32x4_dot_i16x8(wasm_i16x8_extend_high_i8x16(v), wide);
    return sum;
}
#else
INLINE int8_sum int8_add(int8_sum sum, vi w, int32_t x) {
    int8_t weights[4 * LANES], inputs[4];
    memcpy(weights, &w, sizeof w);
    memcpy(inputs, &x, sizeof x);
    for (int i = 0; i < LANES; i++) { /* i counts pairs of one half */
        int a = inputs[2 * i % 4], b = inputs[2 * i % 4 + 1];
        sum.low[i] += weights[2 * i] * a + weights[2 * i + 1] * b;
        sum.high[i] += weights[2 * LANES + 2 * i] * a + weights[2 * LANES + 2 * i + 1] * b;
    }
    return sum;
}
#endif

INLINE vi int8_total(int8_sum sum) {
    return (vi){sum.low[0] + sum.low[1], sum.low[2] + sum.low[3], sum.high[0] + sum.high[1], sum.high[2] + sum.high[3]};
}
#endif

#endif
