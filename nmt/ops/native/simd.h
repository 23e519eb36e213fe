/* Common parts of the kernels: types, conversions, and elementary functions that compilers turn into vector code. */

#ifndef NMT_SIMD_H
#define NMT_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __FAST_MATH__
#error "-ffast-math breaks the exponential, the rounding and the tests for NaN below"
#endif

typedef int64_t i64;
typedef float f32;
typedef uint16_t bf16;

#define API __attribute__((visibility("default")))
/* Before the name of a parameter: a pointer that may be null. Null is an error for any other pointer. */
#define OPTIONAL
#define INLINE static inline __attribute__((always_inline))

/* Work of at least this many elements is shared among the threads; for less work, waking them costs more. */
#define PARALLEL_FROM 8192

/* Each source is compiled for two versions of its kernels (see build.py): TYPE is f32 or bf16, VERSION is the end of their
   names, IN_TEAM is defined for bf16. FIRST_VERSION is for functions that exist only once. */
#define JOINED(a, b) a##_##b
#define JOIN(a, b) JOINED(a, b)
#define T TYPE
#define LOAD(x) JOIN(load, TYPE)(x)
#define STORE(x) JOIN(store, TYPE)(x)
#define NAME(name) JOIN(name, VERSION)

/* PARALLEL_FOR(elements) before a loop shares it among the threads: it makes a team of threads or, for bf16, the team
   that calls the kernel runs the loop and waits until all iterations are done; each thread runs what is outside of it.
   Kernels have no other parallel regions. */
#define PRAGMA(...) _Pragma(#__VA_ARGS__)
#ifdef IN_TEAM
#define PARALLEL_FOR(work) (void)(work), (void)threads; PRAGMA(omp for schedule(static))
#else
#define PARALLEL_FOR(work) \
    (void)threads; PRAGMA(omp parallel for schedule(static) num_threads(threads) if ((work) >= PARALLEL_FROM))
#endif

/* `what` for i = 0, 1, ... below count, written out: compilers keep arrays in registers only if no loop runs over them,
   and do not vectorise a loop over channels that contains another loop. */
#define EACH_ONE(i, count, what) if ((i) < (count)) what(i);
#define EACH(count, what)                                                                           \
    EACH_ONE(0, count, what) EACH_ONE(1, count, what) EACH_ONE(2, count, what) EACH_ONE(3, count, what) \
    EACH_ONE(4, count, what) EACH_ONE(5, count, what) EACH_ONE(6, count, what) EACH_ONE(7, count, what)

INLINE float float_of_bits(uint32_t bits) {
    union { uint32_t u; float f; } v = {.u = bits};
    return v.f;
}

INLINE uint32_t bits_of_float(float x) {
    union { float f; uint32_t u; } v = {.f = x};
    return v.u;
}

INLINE float load_f32(float x) { return x; }
INLINE float store_f32(float x) { return x; }
INLINE float load_bf16(bf16 x) { return float_of_bits((uint32_t)x << 16); }

/* Round to nearest, ties to even, as torch does; NaN stays NaN. */
INLINE bf16 store_bf16(float x) {
    uint32_t bits = bits_of_float(x);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (bf16)(x == x ? rounded : 0x7fc0u);
}

/* e^x to about one unit in the last place of a float: x = n ln 2 + r, |r| <= ln 2 / 2, Taylor terms of e^r to r^7/7!.
   Below -87.68 it is 0 and above 88.37 infinity, as the exponents of floats end there; NaN stays NaN. */
INLINE float fast_exp(float x) {
    x = x < -88.0f ? -88.0f : x; /* n = -127: the exponent's bits of 0 */
    x = x > 89.0f ? 89.0f : x;   /* n = 128: those of infinity */
    float shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the low bits are now the rounded quotient */
    float n = shifted - 12582912.0f;
    float r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * float_of_bits((bits_of_float(shifted) << 23) + 0x3f800000u);
}

INLINE float sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }

/* Near 0, where 1 - 2 / (e^2x + 1) cancels, the odd Taylor polynomial. */
INLINE float fast_tanh(float x) {
    float square = x * x;
    float p = -1382.0f / 155925.0f;
    p = p * square + 62.0f / 2835.0f;
    p = p * square - 17.0f / 315.0f;
    p = p * square + 2.0f / 15.0f;
    p = p * square - 1.0f / 3.0f;
    float small = x + x * (square * p);
    float large = 1.0f - 2.0f / (fast_exp(2.0f * x) + 1.0f);
    return square < 0.09f ? small : large;
}

/* x + 1/2 where x >= 0, else the sigmoid of x, which keeps the states of minGRU and minLSTM positive; its derivative. */
INLINE float positive_part(float x) {
    float low = sigmoid(x);
    return x >= 0.0f ? x + 0.5f : low;
}

INLINE float positive_slope(float x) {
    float low = sigmoid(x);
    return x >= 0.0f ? 1.0f : low * (1.0f - low);
}

#ifdef TYPE /* not in all files of the engine */
/* to[j] += from[j] */
INLINE void NAME(add_row)(float *restrict to, const T *restrict from, i64 width) {
#pragma omp simd
    for (i64 j = 0; j < width; j++) to[j] += LOAD(from[j]);
}

/* The mean of x [width], and 1 / sqrt(variance + 1e-8). */
INLINE float NAME(moments)(const T *restrict x, i64 width, float *mean) {
    float sum = 0.0f, squares = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (i64 j = 0; j < width; j++) sum += LOAD(x[j]);
    float centre = *mean = sum / (float)width;
#pragma omp simd reduction(+ : squares)
    for (i64 j = 0; j < width; j++) squares += (LOAD(x[j]) - centre) * (LOAD(x[j]) - centre);
    return 1.0f / sqrtf(squares / (float)width + 1e-8f);
}

/* Layer norm of a row: q = scale n + offset with n = (x - mean) / deviation; n alone without a scale. */
INLINE void NAME(norm_row)(const T *restrict x, const float *restrict scale, const float *restrict offset, i64 width,
                           float *restrict q) {
    float mean, factor = NAME(moments)(x, width, &mean);
    if (scale)
#pragma omp simd
        for (i64 j = 0; j < width; j++) q[j] = (LOAD(x[j]) - mean) * factor * scale[j] + offset[j];
    else
#pragma omp simd
        for (i64 j = 0; j < width; j++) q[j] = (LOAD(x[j]) - mean) * factor;
}

/* From the gradient d of q that of x: (scale d - its mean - n times the mean of scale d n) / deviation. */
INLINE void NAME(norm_row_gradient)(const T *restrict x, const float *restrict scale, const float *restrict d,
                                    i64 width, T *restrict dx) {
    float mean, factor = NAME(moments)(x, width, &mean), sum = 0.0f, slope = 0.0f;
#pragma omp simd reduction(+ : sum, slope)
    for (i64 j = 0; j < width; j++) sum += d[j] * scale[j], slope += d[j] * scale[j] * (LOAD(x[j]) - mean);
    sum /= (float)width, slope *= factor * factor / (float)width;
#pragma omp simd
    for (i64 j = 0; j < width; j++) dx[j] = STORE(factor * (d[j] * scale[j] - sum - (LOAD(x[j]) - mean) * slope));
}

/* What gates read of a row u [width] of a recurrent product: q = u + bias or, with a scale, the layer norms of its first
   values and of the others, plus bias. */
INLINE void NAME(product_row)(const T *restrict u, const float *restrict bias, const float *scale, const float *offset,
                              i64 first, i64 width, float *restrict q) {
    if (!scale) {
#pragma omp simd
        for (i64 j = 0; j < width; j++) q[j] = LOAD(u[j]) + bias[j];
        return;
    }
    NAME(norm_row)(u, scale, offset, first, q);
    if (first < width) NAME(norm_row)(u + first, scale + first, offset + first, width - first, q + first);
#pragma omp simd
    for (i64 j = 0; j < width; j++) q[j] += bias[j];
}

/* The gradient of u from that of q. */
INLINE void NAME(product_row_gradient)(const T *restrict u, const float *scale, i64 first, i64 width,
                                       const float *restrict d, T *restrict du) {
    if (!scale) {
#pragma omp simd
        for (i64 j = 0; j < width; j++) du[j] = STORE(d[j]);
        return;
    }
    NAME(norm_row_gradient)(u, scale, d, first, du);
    if (first < width) NAME(norm_row_gradient)(u + first, scale + first, d + first, width - first, du + first);
}
#endif

#endif
