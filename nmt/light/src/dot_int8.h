/* Sums of products of int8 values, four neighbouring inputs at a time: what each instruction set has for it.

   An `int8_sum` belongs to LANES outputs. All of them end in the same integers: no step saturates, with inputs within
   +-127 and weights within +-128. Where OFFSET is not 0 it was added to the inputs, and sums begin at what it makes too
   much. */

#ifndef NMT_DOT_INT8_H
#define NMT_DOT_INT8_H

#include "vectors.h"

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
/* Pairs of |w| x sign(w) are at most 2 * 128 * 127, which an int16 holds. */
#define OFFSET 0
typedef vi int8_sum;
INLINE int8_sum int8_start(vi row_sums) { return row_sums ^ row_sums; }
INLINE int8_sum int8_add(int8_sum sum, vi w, int32_t x) {
    __m256i v = (__m256i)w, pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(v), _mm256_sign_epi8(_mm256_set1_epi32(x), v));
    return sum + (vi)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
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
