/* What a search asks of the logits of a row: their sum in the softmax, the largest, the k best. */

#ifndef NMT_BEST_H
#define NMT_BEST_H

#include "kernels.h"
#include "vectors.h"

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
#define TERM some_of(falling_exp(load_some(x + start + j, width - j) - top), width - j)
        SUM_OF_VECTORS(part, width, TERM);
#undef TERM
        *sum += (double)part;
    }
    return top;
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

#endif
