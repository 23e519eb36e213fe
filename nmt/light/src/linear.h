/* Products with matrices in strips (see docs/engine_format.md): rows are taken a few at a time, outputs by vectors, and
   the sums of such a tile stay in registers over all inputs. An output adds its products in the order of the inputs,
   whatever the tile: no row of a result depends on the others. */

#ifndef NMT_LINEAR_H
#define NMT_LINEAR_H

#include "dot_int8.h"
#include "kernels.h"
#include "row_functions.h"

/* Vectors in a strip; rows of a tile at most; vectors of a tile with so many rows, a multiple or a divisor of those of
   a strip: enough sums at once to hide how long an instruction takes, and no more than there are registers for. */
#define PARTS (STRIP / LANES)
#if LANES == 16
#define MOST_ROWS 8
#define WIDTH(rows) ((rows) <= 2 ? 8 : (rows) <= 4 ? 4 : 2)
#elif LANES == 8
#define MOST_ROWS 4
#define WIDTH(rows) ((rows) == 1 ? 8 : (rows) == 2 ? 4 : 2)
#elif defined(__aarch64__)
#define MOST_ROWS 4
#define WIDTH(rows) ((rows) <= 2 ? 8 : 4)
#else
#define MOST_ROWS 4
#define WIDTH(rows) ((rows) == 1 ? 4 : (rows) == 2 ? 2 : 1)
#endif
#define MOST_WIDTH 8
#define GROUP_BYTES 4 /* of one output, whatever the type of its values */

typedef struct {
    const char *values;
    const int32_t *sums;
    const float *scales, *bias;
    i64 groups, strip; /* groups of inputs; bytes of a strip */
    const char *x;     /* rows as the matrix needs them: floats, bf16 or int8, filled up with zeros to whole groups */
    i64 x_row;         /* bytes */
    const float *row_scales;
    float *y;
    i64 ys;
} product;

INLINE const char *tile_values(const product *p, i64 part) {
    return p->values + part / PARTS * p->strip + part % PARTS * LANES * GROUP_BYTES;
}

INLINE vi load_group(const char *from) {
    vi v;
    memcpy(&v, from, sizeof v);
    return v;
}

/* One group of inputs of a tile of one strip: to sums of the rows, in `width` vectors. */
INLINE void add_groups(int8_sum (*sum)[PARTS], const char *x, i64 row, const char *values, const int rows,
                       const int width) {
#pragma GCC unroll 8
    for (int c = 0; c < width; c++) {
        vi v = load_group(values + c * LANES * GROUP_BYTES);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            int32_t group;
            memcpy(&group, x + r * row, sizeof group);
            sum[r][c] = int8_add(sum[r][c], v, group);
        }
    }
}

/* Sums of so many neighbouring groups are kept apart with so many rows, to hide how long an instruction takes; integers
   can be added in any order. A matrix is read from its first byte to its last, as memory likes best. */
#define PHASES(rows) ((rows) == 1 ? 8 / PARTS : (rows) == 2 && PARTS <= 4 ? 4 / PARTS : 1)
#define MOST_PHASES (8 / PARTS)

/* A tile: `rows` rows from n on, `width` vectors of outputs of one strip from `part` on, all of them; both are known
   when this is compiled. */
INLINE void int8_tile(const product *p, i64 n, i64 part, const int rows, const int width) {
    const int phases = PHASES(rows) > 1 ? PHASES(rows) : 1;
    const char *x = p->x + n * p->x_row, *values = tile_values(p, part);
    const i64 m = part * LANES;
    int8_sum sum[MOST_PHASES > 1 ? MOST_PHASES : 1][MOST_ROWS][PARTS];
#pragma GCC unroll 8
    for (int c = 0; c < width; c++) {
        vi sums = load_integers(p->sums + m + c * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            sum[0][r][c] = int8_start(sums);
#pragma GCC unroll 4
            for (int q = 1; q < phases; q++) sum[q][r][c] = int8_start(sums - sums);
        }
    }
    i64 k = 0;
    for (; k + phases <= p->groups; k += phases, x += phases * GROUP_BYTES, values += phases * STRIP * GROUP_BYTES)
#pragma GCC unroll 4
        for (int q = 0; q < phases; q++)
            add_groups(sum[q], x + q * GROUP_BYTES, p->x_row, values + q * STRIP * GROUP_BYTES, rows, width);
    for (; k < p->groups; k++, x += GROUP_BYTES, values += STRIP * GROUP_BYTES)
        add_groups(sum[0], x, p->x_row, values, rows, width);
#pragma GCC unroll 8
    for (int c = 0; c < width; c++) {
        i64 first = m + c * LANES;
        vf scales = load(p->scales + first), bias = p->bias ? load(p->bias + first) : (vf){0};
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            vi total = int8_total(sum[0][r][c]);
#pragma GCC unroll 4
            for (int q = 1; q < phases; q++) total += int8_total(sum[q][r][c]);
            vf scaled = __builtin_convertvector(total, vf) * scales;
            store(p->y + (n + r) * p->ys + first, scaled * p->row_scales[n + r] + bias);
        }
    }
}

/* The same of floats: matrices in f32, or in bf16 with a pair of inputs in each group. */
INLINE vf add_pair(vf sum, vi w, float even, float odd) {
    sum += (vf)((vu)w << 16) * even;
    return sum + (vf)((vu)w & 0xffff0000u) * odd;
}

INLINE vf add_bf16_pair(vf sum, vi w, int32_t x) {
#ifdef __AVX512BF16__
    vi same = (vi){0} + x;
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(same), "v"(w)); /* as written out as in dot_int8.h */
#else
    (void)w, (void)x;
#endif
    return sum;
}

enum { F32_VALUES, BF16_VALUES, BF16_PAIRS }; /* of the inputs, too, in the last one */

INLINE void float_tile(const product *p, i64 n, i64 part, const int kind, const int rows, const int width) {
    const char *x = p->x + n * p->x_row, *values = tile_values(p, part);
    const i64 row = p->x_row, strip = p->strip, m = part * LANES;
    vf sum[MOST_ROWS][MOST_WIDTH] = {{{0}}};
    for (i64 k = 0; k < p->groups; k++, values += STRIP * GROUP_BYTES)
#pragma GCC unroll 8
        for (int c = 0; c < width; c++) {
            vi v = load_group(values + c / PARTS * strip + c % PARTS * LANES * GROUP_BYTES);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                const char *from = x + r * row + k * GROUP_BYTES * (kind == BF16_VALUES ? 2 : 1);
                float pair[2] = {0};
                int32_t group;
                memcpy(&group, from, sizeof group);
                memcpy(pair, from, kind == BF16_VALUES ? sizeof pair : sizeof *pair);
                sum[r][c] = kind == F32_VALUES ? sum[r][c] + (vf)v * pair[0]
                          : kind == BF16_VALUES ? add_pair(sum[r][c], v, pair[0], pair[1])
                                                : add_bf16_pair(sum[r][c], v, group);
            }
        }
#pragma GCC unroll 8
    for (int c = 0; c < width; c++) {
        i64 first = m + c * LANES;
        vf bias = p->bias ? load(p->bias + first) : (vf){0};
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) store(p->y + (n + r) * p->ys + first, sum[r][c] + bias);
    }
}

INLINE void tile(const product *p, i64 n, i64 part, const int kind, const int rows, const int width) {
    if (kind < 0) int8_tile(p, n, part, rows, width);
    else float_tile(p, n, part, kind, rows, width);
}

/* The outputs from vector `start` to before `end` of `rows` rows from n on. */
INLINE void some_outputs(const product *p, i64 n, i64 start, i64 end, const int kind, const int rows) {
    const int width = kind < 0 && WIDTH(rows) > PARTS ? PARTS : WIDTH(rows), narrow = width < PARTS ? width : PARTS;
    i64 part = start;
    for (; part + width <= end; part += width) tile(p, n, part, kind, rows, width);
    for (; part < end; part += narrow) tile(p, n, part, kind, rows, narrow);
}

/* An incomplete strip is computed beside, with room for all its outputs. */
typedef struct {
    float bias[STRIP], scales[STRIP], y[MOST_ROWS * STRIP];
    int32_t sums[STRIP];
} last_strip;

static product product_of_last(const product *p, i64 whole, i64 left, last_strip *room) {
    product last = *p;
    const size_t bytes = (size_t)left * sizeof(float);
    memset(room, 0, sizeof *room);
    last.values += whole / STRIP * p->strip;
    if (p->bias) last.bias = memcpy(room->bias, p->bias + whole, bytes);
    if (p->scales) last.scales = memcpy(room->scales, p->scales + whole, bytes);
    if (p->sums) last.sums = memcpy(room->sums, p->sums + whole, bytes);
    last.y = room->y, last.ys = STRIP;
    return last;
}

/* Rows are shared out evenly among the tiles that they need, and a few strips are multiplied with all of them before
   the next, so that these stay in the first cache. */
#define ROWS_CASE(rows, kind) case rows: some_outputs(p, n, start, end, kind, rows); break;
#if MOST_ROWS == 8
#define MORE_ROWS(kind) ROWS_CASE(5, kind) ROWS_CASE(6, kind) ROWS_CASE(7, kind) ROWS_CASE(8, kind)
#else
#define MORE_ROWS(kind)
#endif
#define PRODUCT(name, kind)                                                                                  \
    static __attribute__((noinline)) void name##_tile(const product *p, i64 n, i64 start, i64 end, i64 rows) { \
        switch (rows) {                                                                                      \
            ROWS_CASE(1, kind) ROWS_CASE(2, kind) ROWS_CASE(3, kind) ROWS_CASE(4, kind) MORE_ROWS(kind)      \
        }                                                                                                    \
    }                                                                                                        \
    static void name(const product *p, i64 M, i64 rows) { product_of_tiles(name##_tile, p, M, rows); }

typedef void (*tile_function)(const product *, i64 n, i64 start, i64 end, i64 rows);

INLINE void product_of_tiles(tile_function run, const product *p, i64 M, i64 rows) {
    const i64 left = M % STRIP, whole = M - left, parts = whole / LANES, tiles = (rows + MOST_ROWS - 1) / MOST_ROWS;
    const i64 block = tiles == 1 ? parts : 4 * PARTS;
    for (i64 start = 0; start < parts; start += block)
        for (i64 t = 0, n = 0, next; t < tiles; t++, n = next) {
            next = rows * (t + 1) / tiles;
            run(p, n, start, parts - start < block ? parts : start + block, next - n);
        }
    if (!left) return;
    last_strip room;
    product last = product_of_last(p, whole, left, &room);
    for (i64 t = 0, n = 0, next; t < tiles; t++, n = next) {
        next = rows * (t + 1) / tiles;
        last.x = p->x + n * p->x_row, last.row_scales = p->row_scales ? p->row_scales + n : 0;
        run(&last, 0, 0, PARTS, next - n);
        for (i64 r = 0; r < next - n; r++)
            memcpy(p->y + (n + r) * p->ys + whole, room.y + r * STRIP, (size_t)left * sizeof(float));
    }
}

PRODUCT(int8_product, -1)
PRODUCT(f32_product, F32_VALUES)
#ifdef __AVX512BF16__
PRODUCT(bf16_product, BF16_PAIRS)
#else
PRODUCT(bf16_product, BF16_VALUES)
#endif

/* round(x / scale) plus OFFSET for each input, scale = max |x| / 127, filled up to `width` bytes; as `int8_rows` of
   nmt/ops/matrices/native.c. No integer is NaN or infinite, so that with one of them the scale is NaN. */
static float int8_row(const float *restrict x, i64 K, uint8_t *restrict to, i64 width) {
    int odd;
    const float top = largest(x, K, 0.0f, 1, &odd);
    if (odd || top > 3.4028234e38f) {
        memset(to, OFFSET, (size_t)width);
        return NAN;
    }
    float scale = top / 127.0f;
    scale = scale < 1e-30f ? 1e-30f : scale;
#pragma omp simd
    for (i64 j = 0; j < K; j++) {
        float y = x[j] / scale + 12582912.0f; /* 1.5 * 2^23: the low bits are the rounded quotient */
        to[j] = (uint8_t)((int32_t)(y - 12582912.0f) + OFFSET);
    }
    memset(to + K, OFFSET, (size_t)(width - K));
    return scale;
}

#ifdef __AVX512BF16__
static void bf16_row(const float *restrict x, i64 K, bf16 *restrict to, i64 width) {
#pragma omp simd
    for (i64 j = 0; j < K; j++) to[j] = store_bf16(x[j]);
    for (i64 j = K; j < width; j++) to[j] = 0;
}
#endif

static void linear(const tensor *w, const float *x, i64 xs, const float *bias, activation f, float *y, i64 ys,
                   i64 rows, void *scratch) {
    const i64 K = w->columns, size = w->type == MATRIX_INT8 ? 4 : w->type == MATRIX_BF16 ? 2 : 1;
    const i64 groups = (K + size - 1) / size;
    product p = {.values = w->values, .bias = bias, .groups = groups, .strip = groups * STRIP * GROUP_BYTES,
                 .x = (const char *)x, .x_row = xs * (i64)sizeof *x, .y = y, .ys = ys};
    if (w->type == MATRIX_INT8) {
        float *scales = scratch;
        uint8_t *values = (uint8_t *)(scales + rows);
        for (i64 n = 0; n < rows; n++)
            scales[n] = int8_row(x + n * xs, K, values + n * groups * GROUP_BYTES, groups * GROUP_BYTES);
        p.x = (const char *)values, p.x_row = groups * GROUP_BYTES, p.row_scales = scales;
        p.sums = w->sums, p.scales = w->scales;
        int8_product(&p, w->rows, rows);
    } else if (w->type == MATRIX_F32) {
        f32_product(&p, w->rows, rows);
    } else {
#ifdef __AVX512BF16__
        for (i64 n = 0; n < rows; n++) bf16_row(x + n * xs, K, (bf16 *)scratch + n * groups * 2, groups * 2);
        p.x = scratch, p.x_row = groups * GROUP_BYTES;
#else
        if (K % 2) { /* a last input to make a pair: a row has room for one more only here */
            for (i64 n = 0; n < rows; n++) {
                float *to = (float *)scratch + n * groups * 2;
                memcpy(to, x + n * xs, (size_t)K * sizeof *to);
                to[K] = 0.0f;
            }
            p.x = scratch, p.x_row = groups * 2 * (i64)sizeof *x;
        }
#endif
        bf16_product(&p, w->rows, rows);
    }
    static void (*const applied[])(const float *, float *, i64) = {NULL, relu_row, tanh_row, swish_row, gelu_row};
    if (f != NO_ACTIVATION)
        for (i64 n = 0; n < rows; n++) applied[f](y + n * ys, y + n * ys, w->rows);
}

#endif
