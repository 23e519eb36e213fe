/* Every kernel of every table once with odd sizes, on memory of exactly the size that it may touch: run under
   AddressSanitizer and UndefinedBehaviorSanitizer. Prints how many tables there were. */

#include "../../nmt/light/src/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 400 };
static void *kept[MOST];
static int count;

static void *memory(size_t bytes) {
    void *p = 0;
    if (count == MOST || posix_memalign(&p, 64, bytes ? bytes : 1)) exit(2);
    return kept[count++] = p;
}

static float *floats(i64 n) {
    float *x = memory((size_t)n * sizeof *x);
    for (i64 i = 0; i < n; i++) x[i] = (float)(i * 37 % 23 - 11) / 7.0f;
    return x;
}

static void products(const kernels *k, tensor_type type, i64 M, i64 K, i64 rows) {
    const i64 group = type == MATRIX_INT8 ? 4 : type == MATRIX_BF16 ? 2 : 1;
    const size_t bytes = (size_t)((M + 31) / 32 * 32 * ((K + group - 1) / group) * 4);
    int32_t *sums = memory((size_t)M * sizeof *sums);
    memset(sums, 0, (size_t)M * sizeof *sums);
    tensor w = {type, M, K, memset(memory(bytes), 0x3f, bytes), floats(M), sums, 0};
    k->linear(&w, floats(rows * K), K, floats(M), TANH, floats(rows * M), M, rows, memory(linear_scratch(&w, rows)));
    k->embed(&w, M - 1, 0, 2.0f, floats(K));
}

static void row_functions(const kernels *k, i64 n) {
    float *x = floats(n), *y = floats(n), *v = floats(n);
    double sum;
    scored_id best[3];
    k->norm(x, v, v, 1e-5f, y, n), k->norm(x, v, 0, 1e-5f, y, n);
    k->add(x, v, y, n), k->tanh(x, y, n), k->swiglu(x, v, y, n), k->powers(x, y, n);
    k->log_sum_parts(x, n, &sum), k->add_log(x, 2.0f, y, n), k->add_softmax(floats(n), n, y), k->first_maximum(x, n);
    k->add_best(x, n, 0.5f, 0, best, 0, 3);
    for (int unit = 0; unit < 11; unit++)
        for (int p = 0; p < (unit == 6 ? 9 : 2); p++) {
            const float *vectors[4] = {floats(4 * n), floats(n), floats(n), p ? floats(n) : 0};
            if (!p && unit == 10) vectors[1] = vectors[2] = 0;
            k->unit[unit](floats(4 * n), floats(2 * n), floats(4 * n), vectors, p, floats(2 * n), n);
        }
}

static void attentions(const kernels *k, i64 heads, i64 D, i64 S) {
    const bool halves = k->halves && D % 2 == 0;
    const i64 n = heads * D;
    float *q = floats(n), *keys = floats(S * n), *w = floats(D), *y = floats(n), *a = floats(dot_scratch(S));
    k->attend_additive(q, keys, n, keys, n, w, heads, n, S, y, floats(S), 0.5f, a);
    const float *tiles[2] = {floats(tile_size(n)), floats(tile_size(n))};
    float *told[5] = {floats(S), 0, floats(S), 0, 0};
    k->attend_dot(floats(5 * n), n, 5, tiles, halves, heads, n, S, floats(5 * n), n, told, 0.5f, floats(dot_scratch(S)));
}

int main(void) {
    int tables = 0;
    for (; kernel_tables()[tables]; tables++) {
        const kernels *k = kernel_tables()[tables];
        for (int type = MATRIX_F32; type <= MATRIX_INT8; type++)
            for (i64 rows = 1; rows < 20; rows += 3)
                products(k, (tensor_type)type, 20 * rows + 1, rows + 6, rows);
        for (int i = 0; i < count; i++) free(kept[i]);
        count = 0;
        row_functions(k, 37), attentions(k, 3, 5, 7), attentions(k, 1, 80, 2), attentions(k, 2, 21, 19);
        for (int i = 0; i < count; i++) free(kept[i]);
        count = 0;
    }
    printf("%d\n", tables);
    return 0;
}
