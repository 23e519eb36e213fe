/* What is done to one row of floats: lookup, norms, elementwise functions. */

#ifndef NMT_ROW_FUNCTIONS_H
#define NMT_ROW_FUNCTIONS_H

#include "kernels.h"
#include "vectors.h"

static void add_rows(const float *a, const float *b, float *y, i64 n) {
#pragma omp simd
    for (i64 j = 0; j < n; j++) y[j] = a[j] + b[j];
}

static void relu_row(const float *x, float *y, i64 n) {
#pragma omp simd
    for (i64 j = 0; j < n; j++) y[j] = x[j] < 0.0f ? 0.0f : x[j]; /* NaN stays */
}

static void tanh_row(const float *x, float *y, i64 n) {
#pragma omp simd
    for (i64 j = 0; j < n; j++) y[j] = fast_tanh(x[j]);
}

static void swiglu_row(const float *gate, const float *x, float *y, i64 n) {
#pragma omp simd
    for (i64 j = 0; j < n; j++) y[j] = gate[j] * sigmoid(gate[j]) * x[j];
}

static void swish_row(const float *x, float *y, i64 n) {
#pragma omp simd
    for (i64 j = 0; j < n; j++) y[j] = x[j] * sigmoid(x[j]);
}

static void gelu_row(const float *x, float *y, i64 n) {
    for (i64 j = 0; j < n; j++) y[j] = 0.5f * x[j] * (1.0f + erff(x[j] * 0.70710678f));
}

static void powers_row(const float *x, float *y, i64 n) {
#pragma omp simd
    for (i64 j = 0; j < n; j++) y[j] = fast_exp(-2.0f * x[j]);
}

/* x / scale + offset, scale and offset by the mean and the population variance, or the mean square alone. */
static void norm_row(const float *x, const float *scale, const float *offset, float epsilon, float *y, i64 n) {
    float mean = 0.0f, square;
    if (offset) mean = sum_of(x, n) / (float)n;
    const vf full = (vf){0} + mean;
#define DEVIATION(at) (load_some(x + (at), n - (at)) - some_of(full, n - (at)))
    SUM_OF_VECTORS(square, n, DEVIATION(j) * DEVIATION(j));
#undef DEVIATION
    const float factor = 1.0f / sqrtf(square / (float)n + epsilon);
    if (offset)
#pragma omp simd
        for (i64 j = 0; j < n; j++) y[j] = (x[j] - mean) * factor * scale[j] + offset[j];
    else
#pragma omp simd
        for (i64 j = 0; j < n; j++) y[j] = x[j] * factor * scale[j];
}

/* A row of a matrix stands in its strip with 32 groups from one group to the next. */
static void embed_row(const tensor *w, i64 id, const float *bias, float factor, float *y) {
    const i64 K = w->columns, lane = id % STRIP, size = w->type == MATRIX_INT8 ? 4 : w->type == MATRIX_BF16 ? 2 : 1;
    const char *from = (const char *)w->values + (id / STRIP * ((K + size - 1) / size) * STRIP + lane) * 4;
    for (i64 k = 0; k < K; k += size, from += STRIP * 4) {
        const i64 width = K - k < size ? K - k : size;
        if (w->type == MATRIX_INT8) {
            int8_t group[4];
            memcpy(group, from, sizeof group);
            for (i64 j = 0; j < width; j++) y[k + j] = (float)group[j] * w->scales[id];
        } else if (w->type == MATRIX_BF16) {
            bf16 group[2];
            memcpy(group, from, sizeof group);
            for (i64 j = 0; j < width; j++) y[k + j] = load_bf16(group[j]);
        } else {
            memcpy(y + k, from, sizeof *y);
        }
    }
    if (bias)
#pragma omp simd
        for (i64 j = 0; j < K; j++) y[j] = factor * (y[j] + bias[j]);
    else
#pragma omp simd
        for (i64 j = 0; j < K; j++) y[j] = factor * y[j];
}

#endif
