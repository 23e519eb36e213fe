/* What the engine computes with: one table of functions for each instruction set, of which `kernel_tables` has those
   that the processor can run. All tables give the same int8 sums, and floats that differ by rounding alone; no row of a
   result depends on the other rows of a call.

   Rows of floats stand `..s` floats apart (xs, ys, ...). Widths need not be multiples of anything; memory beyond a
   width is neither read for its value nor written. Inputs and outputs do not overlap unless a comment allows it. See
   docs/engine_format.md for the layout of matrices and for what each operation computes. */

#ifndef NMT_KERNELS_H
#define NMT_KERNELS_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

typedef int64_t i64;

enum { STRIP = 32, GROUP = 4 }; /* outputs of a strip; bytes of a group of neighbouring inputs of an output */

typedef enum { VECTOR_F32, MATRIX_F32, MATRIX_BF16, MATRIX_INT8 } tensor_type;

/* Positions of a tile: their keys stand in it first, [n][TILE], and then their values, [TILE][n]. In halves, bf16, they are
   [n / 2][TILE][2] and [TILE / 2][n][2], in its first half. What is beyond the last position counts for nothing. */
enum { TILE = 16 };
static inline i64 tile_size(i64 n) { return 2 * TILE * n; }
static inline i64 dot_scratch(i64 positions) { return 4 * ((positions + TILE - 1) / TILE * TILE); }

/* A matrix [rows, columns], or a vector with rows = 1. */
typedef struct {
    tensor_type type;
    i64 rows, columns;
    const void *values;   /* strips, see docs/engine_format.md; at a multiple of 64 bytes */
    const float *scales;  /* [rows], of int8 */
    const int32_t *sums;  /* [rows], of int8 */
    const float *bias;    /* [rows], of the table of the softmax; null without one */
} tensor;

/* Inputs in a group, and groups of an output, of which the last one is filled up. */
static inline i64 group_size(const tensor *t) { return t->type == MATRIX_INT8 ? 4 : t->type == MATRIX_BF16 ? 2 : 1; }
static inline i64 group_count(const tensor *t) { return (t->columns + group_size(t) - 1) / group_size(t); }

/* The first group of a row; the next ones stand STRIP groups apart. */
static inline const char *row_of(const tensor *t, i64 row) {
    return (const char *)t->values + (row / STRIP * group_count(t) * STRIP + row % STRIP) * GROUP;
}

typedef enum { NO_ACTIVATION, RELU, TANH, SWISH, GELU } activation;

/* What is found among the logits of one row. */
typedef struct {
    float value;
    int32_t id;
} scored_id;

typedef struct {
    const char *name; /* as "avx512_vnni" */
    bool halves;      /* whether tiles may be in halves */

    /* y[r] = x[r] w' + bias, then the activation; bias may be null. `scratch` has `linear_scratch(w, rows)` bytes at a
       multiple of 64. */
    void (*linear)(const tensor *w, const float *x, i64 xs, const float *bias, activation f, float *y, i64 ys, i64 rows,
                   void *scratch);

    /* y = factor (row `id` of w + bias), the values of w as they stand for themselves; bias may be null. */
    void (*embed)(const tensor *w, i64 id, const float *bias, float factor, float *y);

    /* Layer norm of x[n], or RMS norm where offset is null; y may be x. */
    void (*norm)(const float *x, const float *scale, const float *offset, float epsilon, float *y, i64 n);

    /* Elementwise on n values; y may be an input. */
    void (*add)(const float *a, const float *b, float *y, i64 n);
    void (*tanh)(const float *x, float *y, i64 n);
    void (*swiglu)(const float *gate, const float *x, float *y, i64 n);
    void (*powers)(const float *x, float *y, i64 n); /* exp(-2x) */

    /* One step of a unit for one row of H channels: input products x, state before, recurrent products u where it has
       any, its vectors v (all that docs/engine_format.md has; only the last three of LSTM may be missing, all or none,
       as null) and option p; `after`, which may be `before`, gets the state after. The index is the number of the
       instruction, from LRN (20) to LSTM (30); `unit[0]` is that of LRN. GRU_RESET writes r h' to `after`. */
    void (*unit[11])(const float *x, const float *before, const float *u, const float *const v[4], int p, float *after,
                     i64 H);

    /* One query q[n] in `heads` heads of width D = n / heads over S positions, by addition: rows of keys, which hold
       powers, and of values ks and vs apart, weight [D]. Writes what is found to y[n] and, unless `told` is null, adds
       `share` times the weights of all heads to it. `scratch` has `dot_scratch(S)` floats. */
    void (*attend_additive)(const float *q, const float *keys, i64 ks, const float *values, i64 vs, const float *weight,
                            i64 heads, i64 n, i64 S, float *y, float *told, float share, float *scratch);

    /* The same by products, of queries that look at the same positions, which stand in tiles, with an even D also in
       halves; `told`, unless it is null, has a row for each query. */
    void (*attend_dot)(const float *q, i64 qs, i64 rows, const float *const *tiles, bool halves, i64 heads, i64 n, i64 S,
                       float *y, i64 ys, float *const *told, float share, float *scratch);

    /* The largest of x[n] and, in *sum, the sum of exp(x - largest), added up in double or so that 100,000 terms keep
       six digits. NaN where one of x is NaN. */
    float (*log_sum_parts)(const float *x, i64 n, double *sum);

    /* y += the probabilities of n logits x, whose place is used for something else. All NaN where one of x is NaN or
       the largest is infinite. */
    void (*add_softmax)(float *x, i64 n, float *y);

    /* y = log(exp(y) + exp(x - norm)), of n numbers of which not both are -infinity. */
    void (*add_log)(const float *x, float norm, float *y, i64 n);

    /* The first place of the largest of x[n], n > 0; of NaN values none counts, and if all are NaN, 0. */
    i64 (*first_maximum)(const float *x, i64 n);

    /* Adds to best[count], sorted by falling value and, of equal ones, in the order in which they came, those of x[i] +
       add that belong to the k best: id = first_id + i. Returns the new count, at most k. NaN and -infinity never
       count. */
    i64 (*add_best)(const float *x, i64 n, float add, int32_t first_id, scored_id *best, i64 count, i64 k);
} kernels;

/* Bytes of scratch that `linear` needs; SIZE_MAX where they cannot be counted. */
size_t linear_scratch(const tensor *w, i64 rows);

/* The tables that this processor can run, best first, ended by null. */
const kernels *const *kernel_tables(void);

#endif
