/* The kernels of one instruction set, compiled once for each of them: VERSION is its name, and the compiler is told what
   the processor has. nmt/light/sources.py lists them. */

#include <float.h>

#include "kernels.h"
#include "vectors.h"

#define UNIT_LOOPS "../../light/src/unit_row.h"
#include "../../ops/atr/native.c"
#include "../../ops/gru/native.c"
#include "../../ops/lstm/native.c"
#include "../../ops/scan/lrn.c"
#include "../../ops/scan/olrn.c"
#include "../../ops/scan/sru.c"
#include "../../ops/scan/ssru.c"
#include "../../ops/scan/min_gru.c"
#include "../../ops/scan/min_lstm.c"

/* --- one row of floats: lookup, norms, elementwise functions --- */

#define ROW_FUNCTION(name, arguments, value)     \
    static void name arguments {                 \
        PRAGMA(omp simd)                         \
        for (i64 j = 0; j < n; j++) y[j] = value; \
    }
ROW_FUNCTION(add_rows, (const float *a, const float *b, float *y, i64 n), a[j] + b[j])
ROW_FUNCTION(relu_row, (const float *x, float *y, i64 n), x[j] < 0.0f ? 0.0f : x[j]) /* NaN stays */
ROW_FUNCTION(tanh_row, (const float *x, float *y, i64 n), fast_tanh(x[j]))
ROW_FUNCTION(swiglu_row, (const float *gate, const float *x, float *y, i64 n), gate[j] * sigmoid(gate[j]) * x[j])
ROW_FUNCTION(swish_row, (const float *x, float *y, i64 n), x[j] * sigmoid(x[j]))
ROW_FUNCTION(gelu_row, (const float *x, float *y, i64 n), 0.5f * x[j] * (1.0f + erff(x[j] * 0.70710678f)))
ROW_FUNCTION(powers_row, (const float *x, float *y, i64 n), fast_exp(-2.0f * x[j]))

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

/* A row of a matrix stands in its strip with 32 groups from one group to the next: some are put side by side first. */
static void embed_row(const tensor *w, i64 id, const float *bias, float factor, float *y) {
    enum { GROUPS = 64 };
    const i64 K = w->columns, size = group_size(w);
    const char *from = row_of(w, id);
    union { int8_t bytes[GROUPS * GROUP]; bf16 halves[GROUPS * 2]; } own;
    for (i64 k = 0; k < K; k += GROUPS * size) {
        const i64 width = K - k < GROUPS * size ? K - k : GROUPS * size;
        for (i64 i = 0; i < width; i += size, from += STRIP * GROUP) memcpy(own.bytes + i / size * GROUP, from, GROUP);
        float *to = y + k;
        if (w->type == MATRIX_INT8)
#pragma omp simd
            for (i64 j = 0; j < width; j++) to[j] = (float)own.bytes[j] * w->scales[id];
        else if (w->type == MATRIX_BF16)
#pragma omp simd
            for (i64 j = 0; j < width; j++) to[j] = load_bf16(own.halves[j]);
        else memcpy(to, own.bytes, (size_t)width * sizeof *to);
    }
    if (bias) add_rows(y, bias, y, K);
#pragma omp simd
    for (i64 j = 0; j < K; j++) y[j] *= factor;
}

/* --- attention over S positions, head by head; as nmt/ops/attention/native.c. A score that is NaN or infinite
   makes all weights of its head NaN --- */

/* From scores to weights, and zeros behind them, as there is room for whole tiles; whether a weight is 0. */
INLINE int become_weights(float *a, i64 S) {
    const i64 end = (S + TILE - 1) / TILE * TILE;
    vf top = (vf){0} - INFINITY, bad = {0}, sum = {0};
    vi zeros = {0};
    for (i64 s = S; s < end; s++) a[s] = -FLT_MAX;
    for (i64 s = 0; s < end; s += LANES) {
        const vf v = load(a + s);
        top = larger(v, top), bad += v - v; /* 0, or NaN where a score is NaN or infinite */
    }
    const float most = lane_max(top), odd = lane_sum(bad);
    for (i64 s = 0; s < end; s += LANES) {
        float *own = a + s;
#pragma omp simd
        for (int i = 0; i < LANES; i++) own[i] = fast_exp(own[i] - most) + odd;
        sum += load(own);
    }
    const vf total = (vf){0} + lane_sum(sum);
    for (i64 s = 0; s < end; s += LANES) {
        const vf v = load(a + s) / total;
        store(a + s, v), zeros += v == 0.0f;
    }
    return lane_sum(__builtin_convertvector(zeros, vf)) != (float)(S - end);
}

/* Attention by products takes a few queries at a time, and of a tile of positions the scores of all in vectors: no sum
   goes across lanes. A score is the sum of SCORE_SUMS sums over channels, a value that of VALUE_SUMS sums over positions,
   whatever the number of queries. */
#if LANES == 16
enum { QUERIES = 4, SCORE_SUMS = 4, VALUE_SUMS = 2, HALVES = 1 };
#elif LANES == 8
enum { QUERIES = 2, SCORE_SUMS = 2, VALUE_SUMS = 2, HALVES = 0 };
#else
enum { QUERIES = 2, SCORE_SUMS = 1, VALUE_SUMS = 1, HALVES = 0 };
#endif
enum { VECTORS_OF_TILE = TILE / LANES };

INLINE void fetch(const float *from, i64 n) {
    for (i64 j = 0; j < n; j += 16) __builtin_prefetch(from + j);
}

/* From row i of floats, `apart` from one to the next, or in halves, where two of them stand in one place. */
INLINE vf row_values(const float *from, i64 i, i64 apart, const int odd, const int halves) {
    if (!halves) return load(from + i * apart);
    const vu pair = (vu)load(from + i / 2 * apart);
    return (vf)(odd ? pair & 0xffff0000u : pair << 16);
}

INLINE void score_tile(const float *q, i64 qs, const float *keys, i64 D, float scale, float *a, i64 as, const int queries,
                       const int halves) {
    vf sum[SCORE_SUMS][QUERIES][VECTORS_OF_TILE] = {{{{0}}}};
    i64 d = 0;
#define ADD_CHANNEL(part, d, odd)                                         \
    _Pragma("GCC unroll 4") for (int r = 0; r < queries; r++)             \
        _Pragma("GCC unroll 4") for (int c = 0; c < VECTORS_OF_TILE; c++) \
            sum[part][r][c] += row_values(keys + c * LANES, d, TILE, odd, halves) * q[r * qs + (d)];
    for (; d + SCORE_SUMS <= D; d += SCORE_SUMS)
#pragma GCC unroll 4
        for (int part = 0; part < SCORE_SUMS; part++) ADD_CHANNEL(part, d + part, part % 2)
    for (; d < D; d++) ADD_CHANNEL(0, d, d % 2)
#undef ADD_CHANNEL
#pragma GCC unroll 4
    for (int r = 0; r < queries; r++)
#pragma GCC unroll 4
        for (int c = 0; c < VECTORS_OF_TILE; c++) {
            vf total = sum[0][r][c];
            if (SCORE_SUMS > 1) total += sum[1 % SCORE_SUMS][r][c];
            if (SCORE_SUMS > 2) total += sum[2 % SCORE_SUMS][r][c] + sum[3 % SCORE_SUMS][r][c];
            store(a + r * as + c * LANES, total * scale);
        }
}

/* Values, in rows `apart` floats apart: those of a tile behind its keys or, without tiles, all from `first` on. */
typedef struct {
    const float *const *tiles, *first;
    i64 keys, apart;
    int halves;
} value_rows;

INLINE const float *values_at(const value_rows *v, i64 tile) {
    return v->tiles ? v->tiles[tile] + v->keys : v->first + tile * TILE * v->apart;
}

/* y[r] = sum of a[r][s] value s, in `width` vectors; `careful`: there are weights of 0, of which not even NaN counts. */
INLINE void find_values(const float *a, i64 as, const value_rows *v, i64 at, i64 S, float *y, i64 ys, const int queries,
                        const int width, const int careful) {
    vf sum[VALUE_SUMS][QUERIES][2] = {{{{0}}}};
#define ADD_POSITION(part, s)                                                                              \
    _Pragma("GCC unroll 4") for (int r = 0; r < queries; r++)                                              \
        _Pragma("GCC unroll 2") for (int c = 0; c < width; c++)                                            \
            if (!careful || weights[r * as + (s)] != 0.0f)                                                 \
                sum[part][r][c] += row_values(values + c * LANES, s, v->apart, part, v->halves) * weights[r * as + (s)];
    for (i64 first = 0; first < S; first += TILE) {
        const float *values = values_at(v, first / TILE) + at, *weights = a + first;
        const i64 count = S - first < TILE ? S - first : TILE;
        i64 s = 0;
        if (first + 2 * TILE < S && v->tiles)
            for (; s < (TILE >> v->halves); s++) fetch(values_at(v, first / TILE + 2) + at + s * v->apart, width * LANES);
        s = 0;
        for (; s + VALUE_SUMS <= count; s += VALUE_SUMS)
#pragma GCC unroll 2
            for (int part = 0; part < VALUE_SUMS; part++) ADD_POSITION(part, s + part)
        for (; s < count; s++) ADD_POSITION(0, s)
    }
#undef ADD_POSITION
#pragma GCC unroll 4
    for (int r = 0; r < queries; r++)
#pragma GCC unroll 2
        for (int c = 0; c < width; c++)
            store(y + r * ys + c * LANES, VALUE_SUMS > 1 ? sum[0][r][c] + sum[1 % VALUE_SUMS][r][c] : sum[0][r][c]);
}

INLINE float value_at(const value_rows *v, i64 s, i64 j) {
    const float *values = values_at(v, s / TILE);
    if (!v->halves) return values[s % TILE * v->apart + j];
    return load_bf16(((const bf16 *)values)[2 * (s % TILE / 2 * v->apart + j) + s % 2]);
}

INLINE void find_all(const float *a, i64 as, const value_rows *v, i64 at, i64 D, i64 S, float *y, i64 ys, const int queries,
                     const int careful) {
    i64 j = 0;
    for (; j + 2 * LANES <= D; j += 2 * LANES) find_values(a, as, v, at + j, S, y + j, ys, queries, 2, careful);
    for (; j + LANES <= D; j += LANES) find_values(a, as, v, at + j, S, y + j, ys, queries, 1, careful);
    for (; j < D; j++)
        for (int r = 0; r < queries; r++) {
            float sum = 0.0f;
            for (i64 s = 0; s < S; s++)
                if (a[r * as + s] != 0.0f) sum += a[r * as + s] * value_at(v, s, at + j);
            y[r * ys + j] = sum;
        }
}

/* So many queries in all heads. */
INLINE void attend_queries(const float *q, i64 qs, const float *const *tiles, i64 heads, i64 n, i64 S, float *y, i64 ys,
                           float *const *told, float share, float *a, const int queries, const int halves) {
    const i64 D = n / heads, as = (S + TILE - 1) / TILE * TILE;
    const float scale = 1.0f / sqrtf((float)D);
    const value_rows v = {tiles, 0, TILE * n >> halves, n, halves};
    for (i64 g = 0; g < heads; g++) {
        int careful = 0;
        for (i64 first = 0; first < S; first += TILE) {
            if (first + 2 * TILE < S) fetch(tiles[first / TILE + 2] + (g * D * TILE >> halves), D * TILE >> halves);
            score_tile(q + g * D, qs, tiles[first / TILE] + (g * D * TILE >> halves), D, scale, a + first, as, queries,
                       halves);
        }
        for (int r = 0; r < queries; r++) {
            float *own = a + r * as;
            careful |= become_weights(own, S);
            if (told && told[r])
                for (i64 s = 0; s < S; s++) told[r][s] += share * own[s];
        }
        if (careful) find_all(a, as, &v, g * D, D, S, y + g * D, ys, queries, 1);
        else find_all(a, as, &v, g * D, D, S, y + g * D, ys, queries, 0);
    }
}

static void attend_dot(const float *q, i64 qs, i64 rows, const float *const *tiles, bool halves, i64 heads, i64 n, i64 S,
                       float *y, i64 ys, float *const *told, float share, float *scratch) {
#define ATTEND(queries, halves)                                                                                 \
    attend_queries(q + row * qs, qs, tiles, heads, n, S, y + row * ys, ys, told ? told + row : 0, share, scratch, \
                   queries, halves)
    for (i64 row = 0, next; row < rows; row = next) {
        next = row + QUERIES <= rows ? row + QUERIES : row + 1;
        if (HALVES && halves && next > row + 1) ATTEND(QUERIES, HALVES);
        else if (HALVES && halves) ATTEND(1, HALVES);
        else if (next > row + 1) ATTEND(QUERIES, 0);
        else ATTEND(1, 0);
    }
#undef ATTEND
}

/* Until the scores are known, y has the powers of the query. */
static void attend_additive(const float *q, const float *keys, i64 ks, const float *values, i64 vs, const float *weight,
                            i64 heads, i64 n, i64 S, float *y, float *told, float share, float *a) {
    const i64 D = n / heads;
    const value_rows v = {0, values, 0, vs, 0};
    for (i64 g = 0; g < heads; g++, q += D, keys += D, y += D) {
#pragma omp simd
        for (i64 j = 0; j < D; j++) {
            float x = q[j] < -35.0f ? -35.0f : q[j]; /* NaN stays */
            y[j] = fast_exp(-2.0f * (x > 35.0f ? 35.0f : x));
        }
        for (i64 s = 0; s < S; s++) {
            const float *k = keys + s * ks;
            float sum;
            SUM_OF_VECTORS(sum, D,
                           load_some(weight + j, D - j) / (load_some(y + j, D - j) * load_some(k + j, D - j) + 1.0f));
            a[s] = 2.0f * sum;
        }
        if (become_weights(a, S)) find_all(a, 0, &v, g * D, D, S, y, 0, 1, 1);
        else find_all(a, 0, &v, g * D, D, S, y, 0, 1, 0);
        for (i64 s = 0; told && s < S; s++) told[s] += share * a[s];
    }
}

/* --- one step of each unit for one row, from the equations of the training kernels --- */

#define UNIT_ROW(name)                                                                                    \
    static void name(const float *x, const float *before, const float *u, const float *const v[4], int p, \
                     float *after, i64 H)

INLINE void atr_channels(const float *x, const float *before, const float *u, const float *bias, float *after, i64 H,
                         int activation, int gates) {
#pragma omp simd
    for (i64 j = 0; j < H; j++) after[j] = atr_step(x[j], u[j] + bias[j], before[j], activation, gates);
}

UNIT_ROW(atr_row) { /* one loop does all that is rare */
    if (p) atr_channels(x, before, u, v[0], after, H, p % 3, p / 3);
    else atr_channels(x, before, u, v[0], after, H, 0, 0);
}

UNIT_ROW(rnn_row) {
    const float *bias = v[0];
    (void)before;
#pragma omp simd
    for (i64 j = 0; j < H; j++) after[j] = x[j] + u[j] + bias[j];
    (p ? relu_row : tanh_row)(after, after, H);
}

UNIT_ROW(gru_reset_row) {
    const float *bias = v[0];
    (void)p;
#pragma omp simd
    for (i64 j = 0; j < H; j++) after[j] = gru_gate(x[H + j], u[H + j], bias[H + j]) * before[j];
}

/* The reset gate before the matrix, or after it. */
UNIT_ROW(gru_row) {
    const float *bias = v[0], *candidate_bias = v[1];
    if (p)
#pragma omp simd
        for (i64 j = 0; j < H; j++) {
            float z = gru_gate(x[j], u[j], bias[j]), r = gru_gate(x[H + j], u[H + j], bias[H + j]);
            float g = fast_tanh(x[2 * H + j] + r * (u[2 * H + j] + candidate_bias[j]));
            after[j] = gru_step(z, g, before[j]);
        }
    else
#pragma omp simd
        for (i64 j = 0; j < H; j++) {
            float z = gru_gate(x[j], u[j], bias[j]);
            after[j] = gru_step(z, gru_candidate(x[2 * H + j], u[2 * H + j], candidate_bias[j]), before[j]);
        }
}

INLINE void lstm_channels(const float *x, const float *before, const float *u, const float *const v[4], float *after,
                          i64 H, const int activation, const int peepholes, const float with) {
    const float *b = v[0], *pi = v[1], *pf = v[2], *po = v[3];
#pragma omp simd
    for (i64 j = 0; j < H; j++) {
        const float c = before[H + j];
        float i = x[j] + u[j] + b[j], f = x[H + j] + u[H + j] + b[H + j];
        float o = x[2 * H + j] + u[2 * H + j] + b[2 * H + j], g = x[3 * H + j] + u[3 * H + j] + b[3 * H + j];
        if (peepholes) i += with * pi[j] * c, f += with * pf[j] * c;
        float memory = lstm_memory(i, f, g, c);
        if (peepholes) o += with * po[j] * memory;
        after[H + j] = memory;
        after[j] = lstm_output(o, memory, activation);
    }
}

UNIT_ROW(lstm_row) { /* in the loop for all that is rare, peepholes that are not there have no weight */
    const float *const vectors[4] = {v[0], v[1] ? v[1] : v[0], v[1] ? v[2] : v[0], v[1] ? v[3] : v[0]};
    if (p || v[1]) lstm_channels(x, before, u, vectors, after, H, p, 1, v[1] ? 1.0f : 0.0f);
    else lstm_channels(x, before, u, vectors, after, H, 0, 0, 0.0f);
}

/* --- what a search asks of the logits of a row: their sum in the softmax, the largest, the k best --- */

/* e^x of numbers up to 0, each with an error of at most 2e-7 of the largest term of the sum, which is 1:
   x = n ln 2 + r, |r| <= ln 2 / 2, and a polynomial fitted to e^r. Below -87 it is 1.6e-38. */
INLINE vf falling_exp(vf x) {
    x = larger(x, (vf){0} - 87.0f);
    vf shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the low bits are now the rounded quotient */
    vf r = x - (shifted - 12582912.0f) * 0.69314718f;
    vf p = 0.00831252616f * r + 0.0418901145f;
    p = p * r + 0.166671142f;
    p = p * r + 0.499992311f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * (vf)(((vu)shifted << 23) + 0x3f800000u);
}

/* Blocks are summed up in float, and their sums in double. */
static float log_sum_parts(const float *x, i64 n, double *sum) {
    enum { BLOCK = 512 };
    int odd;
    const float top = largest(x, n, -INFINITY, 0, &odd);
    *sum = odd ? NAN : 0.0;
    if (odd) return NAN;
    for (i64 start = 0; start < n; start += BLOCK) {
        const i64 width = n - start < BLOCK ? n - start : BLOCK;
        float part;
        SUM_OF_VECTORS(part, width, some_of(falling_exp(load_some(x + start + j, width - j) - top), width - j));
        *sum += (double)part;
    }
    return top;
}

/* A row is in the cache when it is read again, and each exponential is computed once. */
static void add_softmax(float *x, i64 n, float *y) {
    int odd;
    i64 j = 0;
    const float top = largest(x, n, -INFINITY, 0, &odd);
    for (; j + LANES <= n; j += LANES) store(x + j, falling_exp(load(x + j) - top));
    for (; j < n; j++) x[j] = fast_exp(x[j] - top);
    const float share = odd || !isfinite(top) ? NAN : 1.0f / sum_of(x, n);
#pragma omp simd
    for (j = 0; j < n; j++) y[j] += x[j] * share;
}

/* The larger one is taken out of the sum; log(1 + t) is t times a polynomial fitted to it on [0, 1], whose error is at most
   2e-7. */
static void add_log(const float *x, float norm, float *y, i64 n) {
#pragma omp simd
    for (i64 j = 0; j < n; j++) {
        const float one = x[j] - norm, high = one > y[j] ? one : y[j], low = one > y[j] ? y[j] : one;
        const float t = fast_exp(low - high);
        float p = 0.00523267128f * t - 0.0295051467f;
        p = p * t + 0.0782257989f;
        p = p * t - 0.136632323f;
        p = p * t + 0.191060007f;
        p = p * t - 0.248429805f;
        p = p * t + 0.333190978f;
        p = p * t - 0.499994934f;
        y[j] = high + (p * t + 0.99999994f) * t;
    }
}

static i64 first_maximum(const float *x, i64 n) {
    enum { BLOCK = 64 };
    int odd;
    const float top = largest(x, n, -INFINITY, 0, &odd);
    for (i64 start = 0; start < n; start += BLOCK) {
        const i64 end = n - start < BLOCK ? n : start + BLOCK;
        int found = 0;
#pragma omp simd reduction(| : found)
        for (i64 i = start; i < end; i++) found |= x[i] == top;
        if (found)
            for (i64 i = start; i < end; i++)
                if (x[i] == top) return i;
    }
    return 0;
}

/* A number that at least k values of x reach: the k-th largest of the maxima of CELLS parts of x; -infinity where there
   are not so many. */
static float reached_by(const float *x, i64 n, i64 k) {
    enum { CELLS = 64 };
    vf most[CELLS / LANES];
    float cells[CELLS], top[CELLS];
    i64 start = 0, count = 0;
    if (k > CELLS) return -INFINITY;
    for (int c = 0; c < CELLS / LANES; c++) most[c] = (vf){0} - INFINITY;
    for (; start + CELLS <= n; start += CELLS)
        for (int c = 0; c < CELLS / LANES; c++) most[c] = larger(load(x + start + c * LANES), most[c]);
    memcpy(cells, most, sizeof cells);
    for (i64 i = start; i < n; i++) cells[i - start] = x[i] > cells[i - start] ? x[i] : cells[i - start];
    for (int i = 0; i < CELLS; i++) {
        if (count == k && cells[i] <= top[k - 1]) continue;
        i64 at = count < k ? count++ : k - 1;
        for (; at > 0 && cells[i] > top[at - 1]; at--) top[at] = top[at - 1];
        top[at] = cells[i];
    }
    return top[k - 1];
}

/* The k best so far, and what a value must exceed to be one of them. */
typedef struct {
    scored_id *best;
    i64 count, k;
    float least;
} ranking;

static void rank(ranking *r, float value, int32_t id) {
    if (!(value > r->least)) return;
    i64 at = r->count < r->k ? r->count++ : r->k - 1;
    for (; at > 0 && value > r->best[at - 1].value; at--) r->best[at] = r->best[at - 1];
    r->best[at] = (scored_id){value, id};
    if (r->count == r->k) r->least = r->best[r->k - 1].value;
}

/* Blocks without a value above the least are passed over. */
static i64 add_best(const float *x, i64 n, float add, int32_t first_id, scored_id *best, i64 count, i64 k) {
    enum { BLOCK = 4 * LANES };
    if (k <= 0) return count;
    const float least = count == k ? best[k - 1].value : nextafterf(reached_by(x, n, k) + add, -INFINITY);
    ranking r = {best, count, k, least};
    i64 start = 0;
    for (; start + BLOCK <= n; start += BLOCK) {
        vf values[4], most = (vf){0} - INFINITY;
        for (int c = 0; c < 4; c++) values[c] = load(x + start + c * LANES) + add, most = larger(values[c], most);
        if (!lanes_above(most, r.least)) continue;
        for (int c = 0; c < 4; c++) {
            float lanes[LANES];
            memcpy(lanes, &values[c], sizeof lanes);
            for (unsigned left = lanes_above(values[c], r.least); left; left &= left - 1) {
                int lane = __builtin_ctz(left);
                rank(&r, lanes[lane], first_id + (int32_t)start + c * LANES + lane);
            }
        }
    }
    for (; start < n; start++) rank(&r, x[start] + add, first_id + (int32_t)start);
    return r.count;
}

/* --- products with matrices in strips (docs/engine_format.md): rows are taken a few at a time, outputs by vectors, and
   the sums of such a tile stay in registers over all inputs. An output adds its products in the order of the inputs,
   whatever the tile: no row of a result depends on the others --- */

/* Vectors in a strip; rows of a tile at most; vectors of a tile with so many rows, a multiple or a divisor of those of
   a strip: enough sums at once to hide how long an instruction takes, and no more than there are registers for. */
#define PARTS (STRIP / LANES)
#if LANES == 16
#define MOST_ROWS 8
#define WIDTH(rows) ((rows) <= 2 ? 8 : (rows) <= 4 ? 4 : 2)
#elif LANES == 8
#define MOST_ROWS 2
#define WIDTH(rows) ((rows) == 1 ? 8 : 4)
#elif defined(__aarch64__)
#define MOST_ROWS 4
#define WIDTH(rows) ((rows) <= 2 ? 8 : 4)
#else
#define MOST_ROWS 4
#define WIDTH(rows) ((rows) == 1 ? 4 : (rows) == 2 ? 2 : 1)
#endif
#define MOST_WIDTH 8

typedef struct {
    const char *values;
    const int32_t *sums;
    const float *scales, *bias;
    i64 groups, strip; /* groups of inputs; bytes of a strip */
    const char *x;     /* rows as the matrix needs them: floats, bf16 or int8, filled up with zeros to whole groups */
    i64 x_row;         /* bytes */
    const float *row_scales;
#ifdef INT8_TWO_GROUPS
    i64 amounts; /* bytes from an input to its amount */
    const int32_t *large; /* [rows][groups], see `amounts_of` */
#endif
    float *y;
    i64 ys;
} product;

INLINE const char *tile_values(const product *p, i64 part) {
    return p->values + part / PARTS * p->strip + part % PARTS * LANES * GROUP;
}

enum { INT8_VALUES = -2, INT8_POSITIVE }; /* the latter: all inputs are 0 or more */

/* One group of inputs of a tile of one strip, or with AVX2 `two` of them: to sums of the rows, in `width` vectors. */
INLINE void add_groups(const product *p, int8_sum (*sum)[PARTS], const char *x, const char *values, const int kind,
                       const int rows, const int width, const int two) {
#pragma GCC unroll 8
    for (int c = 0; c < width; c++) {
        vi v = load_integers(values + c * LANES * GROUP);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
#ifdef INT8_TWO_GROUPS
            const char *own = x + r * p->x_row;
            __m256i pairs = int8_pairs(v, own, p->amounts, kind == INT8_POSITIVE);
            if (two) {
                vi w = load_integers(values + (STRIP + c * LANES) * GROUP);
                pairs = _mm256_add_epi16(pairs, int8_pairs(w, own + GROUP, p->amounts, kind == INT8_POSITIVE));
            }
            sum[r][c] = int8_widened(sum[r][c], pairs);
#else
            int32_t group;
            memcpy(&group, x + r * p->x_row, sizeof group);
            sum[r][c] = int8_add(sum[r][c], v, group);
            (void)kind, (void)two;
#endif
        }
    }
}

/* Sums of so many neighbouring groups are kept apart with so many rows, to hide how long an instruction takes; integers
   can be added in any order. A matrix is read from its first byte to its last, as memory likes best. */
#define PHASES(rows) ((rows) == 1 ? 8 / PARTS : (rows) == 2 && PARTS <= 4 ? 4 / PARTS : 1)
#define MOST_PHASES (8 / PARTS)

/* A tile: `rows` rows from n on, `width` vectors of outputs of one strip from `part` on, all of them; both are known
   when this is compiled. */
INLINE void int8_tile(const product *p, i64 n, i64 part, const int kind, const int rows, const int width) {
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
#ifdef INT8_TWO_GROUPS
    for (; k + 2 <= p->groups; k += 2, x += 2 * GROUP, values += 2 * STRIP * GROUP) {
        const int32_t *large = p->large + n * p->groups + k;
        if (large[0] | large[(rows - 1) * p->groups]) { /* there are two rows at most */
            __asm__ volatile("" ::: "memory"); /* or gcc computes for both cases before it asks, and runs out of registers */
            add_groups(p, sum[0], x, values, kind, rows, width, 0);
            add_groups(p, sum[0], x + GROUP, values + STRIP * GROUP, kind, rows, width, 0);
        } else {
            add_groups(p, sum[0], x, values, kind, rows, width, 1);
        }
    }
#else
    for (; k + phases <= p->groups; k += phases, x += phases * GROUP, values += phases * STRIP * GROUP)
#pragma GCC unroll 4
        for (int q = 0; q < phases; q++)
            add_groups(p, sum[q], x + q * GROUP, values + q * STRIP * GROUP, kind, rows, width, 0);
#endif
    for (; k < p->groups; k++, x += GROUP, values += STRIP * GROUP)
        add_groups(p, sum[0], x, values, kind, rows, width, 0);
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
    for (i64 k = 0; k < p->groups; k++, values += STRIP * GROUP)
#pragma GCC unroll 8
        for (int c = 0; c < width; c++) {
            vi v = load_integers(values + c / PARTS * strip + c % PARTS * LANES * GROUP);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                const char *from = x + r * row + k * GROUP * (kind == BF16_VALUES ? 2 : 1);
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
    if (kind < 0) int8_tile(p, n, part, kind, rows, width);
    else float_tile(p, n, part, kind, rows, width);
}

/* The outputs from vector `start` to before `end` of `rows` rows from n on. */
INLINE void some_outputs(const product *p, i64 n, i64 start, i64 end, const int kind, const int rows) {
    const int width = kind < 0 && WIDTH(rows) > PARTS ? PARTS : WIDTH(rows), narrow = width < PARTS ? width : PARTS;
    i64 part = start;
    for (; part + width <= end; part += width) tile(p, n, part, kind, rows, width);
    for (; part < end; part += narrow) tile(p, n, part, kind, rows, narrow);
}

/* Rows are shared out evenly among the tiles that they need, and a few strips are multiplied with all of them before
   the next, so that these stay in the first cache. */
#define ROWS_CASE(count, kind) \
    case count: if (count <= MOST_ROWS) some_outputs(p, n, start, end, kind, count <= MOST_ROWS ? count : 1); break;
#define PRODUCT(name, kind)                                                                                  \
    static __attribute__((noinline)) void name##_tile(const product *p, i64 n, i64 start, i64 end, i64 rows) { \
        switch (rows) {                                                                                      \
            ROWS_CASE(1, kind) ROWS_CASE(2, kind) ROWS_CASE(3, kind) ROWS_CASE(4, kind)                      \
            ROWS_CASE(5, kind) ROWS_CASE(6, kind) ROWS_CASE(7, kind) ROWS_CASE(8, kind)                      \
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
    /* An incomplete strip is computed beside, with room for all its outputs. */
    struct {
        float bias[STRIP], scales[STRIP], y[MOST_ROWS * STRIP];
        int32_t sums[STRIP];
    } room = {0};
    product last = *p;
    const size_t bytes = (size_t)left * sizeof(float);
    last.values += whole / STRIP * p->strip, last.y = room.y, last.ys = STRIP;
    if (p->bias) last.bias = memcpy(room.bias, p->bias + whole, bytes);
    if (p->scales) last.scales = memcpy(room.scales, p->scales + whole, bytes);
    if (p->sums) last.sums = memcpy(room.sums, p->sums + whole, bytes);
    for (i64 t = 0, n = 0, next; t < tiles; t++, n = next) {
        next = rows * (t + 1) / tiles;
        last.x = p->x + n * p->x_row, last.row_scales = p->row_scales ? p->row_scales + n : 0;
        run(&last, 0, 0, PARTS, next - n);
        for (i64 r = 0; r < next - n; r++)
            memcpy(p->y + (n + r) * p->ys + whole, room.y + r * STRIP, (size_t)left * sizeof(float));
    }
}

PRODUCT(int8_product, INT8_VALUES)
#ifdef INT8_TWO_GROUPS
PRODUCT(positive_product, INT8_POSITIVE)
#endif
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

#ifdef INT8_TWO_GROUPS
/* Writes the amounts of n int8 inputs, and for each group of them whether the products of it and the next one may be
   more than an int16 holds when both are added to those of their neighbours. Whether all inputs are 0 or more. Up to 32
   bytes after the end of each are written. */
static bool amounts_of(const int8_t *x, i64 n, uint8_t *amounts, int32_t *large) {
    const __m256i ones = _mm256_set1_epi8(1), most = _mm256_set1_epi16(32767 / 127);
    uint8_t seen = 0;
#pragma omp simd reduction(| : seen)
    for (i64 i = 0; i < n; i++) seen |= (uint8_t)x[i], amounts[i] = (uint8_t)(x[i] < 0 ? -x[i] : x[i]);
    for (i64 i = 0; i < n; i += 32) {
        const __m256i these = _mm256_maddubs_epi16((__m256i)load_integers(amounts + i), ones),
                      next = _mm256_maddubs_epi16((__m256i)load_integers(amounts + i + GROUP), ones);
        const vi found = (vi)_mm256_cmpgt_epi16(_mm256_add_epi16(these, next), most);
        memcpy(large + i / GROUP, &found, sizeof found);
    }
    return seen < 128;
}
#endif

#ifdef __AVX512BF16__
static void bf16_row(const float *restrict x, i64 K, bf16 *restrict to, i64 width) {
#pragma omp simd
    for (i64 j = 0; j < K; j++) to[j] = store_bf16(x[j]);
    for (i64 j = K; j < width; j++) to[j] = 0;
}
#endif

static void linear(const tensor *w, const float *x, i64 xs, const float *bias, activation f, float *y, i64 ys,
                   i64 rows, void *scratch) {
    const i64 K = w->columns, groups = group_count(w);
    product p = {.values = w->values, .bias = bias, .groups = groups, .strip = groups * STRIP * GROUP,
                 .x = (const char *)x, .x_row = xs * (i64)sizeof *x, .y = y, .ys = ys};
    if (w->type == MATRIX_INT8) {
        float *scales = scratch;
        uint8_t *values = (uint8_t *)(scales + rows);
        for (i64 n = 0; n < rows; n++)
            scales[n] = int8_row(x + n * xs, K, values + n * groups * GROUP, groups * GROUP);
        p.x = (const char *)values, p.x_row = groups * GROUP, p.row_scales = scales;
        p.sums = w->sums, p.scales = w->scales;
#ifdef INT8_TWO_GROUPS
        const i64 n = rows * groups * GROUP;
        p.amounts = n, p.large = (int32_t *)(values + 2 * n);
        if (amounts_of((int8_t *)values, n, values + n, (int32_t *)(values + 2 * n)))
            positive_product(&p, w->rows, rows);
        else
#endif
        int8_product(&p, w->rows, rows);
    } else if (w->type == MATRIX_F32) {
        f32_product(&p, w->rows, rows);
    } else {
#ifdef __AVX512BF16__
        for (i64 n = 0; n < rows; n++) bf16_row(x + n * xs, K, (bf16 *)scratch + n * groups * 2, groups * 2);
        p.x = scratch, p.x_row = groups * GROUP;
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

#define TEXT(x) #x
#define TEXT_OF(x) TEXT(x)

extern const kernels JOIN(kernels, VERSION);
const kernels JOIN(kernels, VERSION) = {
    .name = TEXT_OF(VERSION),
    .halves = HALVES,
    .linear = linear,
    .embed = embed_row,
    .norm = norm_row,
    .add = add_rows,
    .tanh = tanh_row,
    .swiglu = swiglu_row,
    .powers = powers_row,
    .unit = {NAME(lrn_row), NAME(olrn_row), NAME(sru_row), NAME(ssru_row), NAME(min_gru_row), NAME(min_lstm_row),
             atr_row, rnn_row, gru_reset_row, gru_row, lstm_row},
    .attend_additive = attend_additive,
    .attend_dot = attend_dot,
    .log_sum_parts = log_sum_parts,
    .add_softmax = add_softmax,
    .add_log = add_log,
    .first_maximum = first_maximum,
    .add_best = add_best,
};
