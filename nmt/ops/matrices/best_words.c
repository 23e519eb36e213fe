/* The k best values over all of P rows x [V]: (x - lse(x)) + before of each row, or x + before without normalising;
   largest first, and of equal values the first. The logits of a step are read while they are in the cache, and nothing
   of their size is written; products with a packed matrix do not have to leave the cache.

   logits [B, P, V], before [B, P] or none, values and places (p V + j) [B, k]. The value of the id `banned` counts as
   -infinity, except in the normalisation; `penalty` is subtracted from the value of the id `penalised`; -1: none. */

#include "tiles.h"

#define BEST_BLOCK 128

INLINE float NAME(best_maximum)(const T *restrict x, i64 n) {
    float top = -INFINITY;
#pragma omp simd reduction(max : top)
    for (i64 j = 0; j < n; j++) {
        float y = LOAD(x[j]);
        top = y > top ? y : top;
    }
    return top;
}

/* A lower bound of the k-th largest x that counts: the (k + 2)-th largest maximum of a block, because banned and
   penalised ids may be among the maxima. `largest` has room for k + 2. */
INLINE float NAME(best_bound)(const float *maxima, i64 blocks, i64 k, float *largest) {
    if (blocks < k + 2) return -INFINITY;
    for (i64 i = 0; i < blocks; i++) {
        i64 at = i < k + 2 ? i : k + 1;
        if (i >= k + 2 && !(maxima[i] > largest[at])) continue;
        for (; at > 0 && maxima[i] > largest[at - 1]; at--) largest[at] = largest[at - 1];
        largest[at] = maxima[i];
    }
    return largest[k + 1];
}

/* The k best of one group: logits [P, V], before [P] or none, value and place [k]. */
static void NAME(best_of_group)(const T *logits, const float *before, i64 P, i64 V, i64 k, i64 normalize, i64 banned,
                                i64 penalised, float penalty, float *value, i64 *place) {
    i64 whole = V / BEST_BLOCK, blocks = (V + BEST_BLOCK - 1) / BEST_BLOCK, found = 0;
    float maxima[blocks], largest[k + 2];
    for (i64 p = 0; p < P; p++) {
        const T *restrict x = logits + p * V;
        float shift = before ? before[p] : 0.0f, top = 0.0f, lse = 0.0f;
        if (normalize && found == k && !(shift > value[k - 1])) continue; /* a log-probability is 0 at most */
        for (i64 i = 0; i < whole; i++) maxima[i] = NAME(best_maximum)(x + i * BEST_BLOCK, BEST_BLOCK);
        if (whole < blocks) maxima[whole] = NAME(best_maximum)(x + whole * BEST_BLOCK, V - whole * BEST_BLOCK);
        if (normalize) {
            float total = 0.0f;
            top = maxima[0];
            for (i64 i = 1; i < blocks; i++) top = maxima[i] > top ? maxima[i] : top;
#pragma omp simd reduction(+ : total)
            for (i64 j = 0; j < V; j++) total += fast_exp(LOAD(x[j]) - top);
            lse = logf(total);
        } else { /* the sum above propagates NaN; maxima do not, and a row with a NaN has no best word */
            int bad = 0;
#pragma omp simd reduction(| : bad)
            for (i64 j = 0; j < V; j++) bad |= LOAD(x[j]) != LOAD(x[j]);
            if (bad) lse = NAN;
        }
        float bound = NAME(best_bound)(maxima, blocks, k, largest);
        for (i64 i = 0; i < blocks; i++) {
            if (maxima[i] < bound) continue;
            if (found == k && !(((maxima[i] - top) - lse) + shift > value[k - 1])) continue;
            i64 end = i < whole ? (i + 1) * BEST_BLOCK : V;
            for (i64 j = i * BEST_BLOCK; j < end; j++) {
                if (LOAD(x[j]) < bound) continue;
                float y = (LOAD(x[j]) - top) - lse;
                if (j == penalised) y -= penalty;
                if (j == banned && y == y) y = -INFINITY; /* nothing is known about a row with a NaN */
                y += shift;
                if (found == k && !(y > value[k - 1])) continue;
                i64 at = found < k ? found++ : k - 1;
                for (; at > 0 && y > value[at - 1]; at--) value[at] = value[at - 1], place[at] = place[at - 1];
                value[at] = y, place[at] = p * V + j;
            }
        }
    }
}

API void NAME(best)(const T *logits, const float *OPTIONAL before, i64 B, i64 P, i64 V, i64 k, i64 normalize,
                    i64 banned, i64 penalised, float penalty, float *values, i64 *places, i64 threads) {
    PARALLEL_FOR(B * P * V)
    for (i64 b = 0; b < B; b++)
        NAME(best_of_group)(logits + b * P * V, before ? before + b * P : 0, P, V, k, normalize, banned, penalised,
                            penalty, values + b * k, places + b * k);
}

#if defined(FIRST_VERSION) && (defined(BF16_TILES) || defined(INT8_TILES))
/* The same for the outputs of a product. With `shared`, for few rows, there is room for all outputs; else there is room
   for the outputs of `at_once` groups for each thread. */
static void best_of_product(TileFunction tile, const Product *p, i64 shared, i64 at_once, const float *before, i64 P,
                            i64 k, i64 normalize, i64 banned, i64 penalised, float penalty, float *values, i64 *places,
                            i64 threads) {
    i64 B = p->N / P, V = p->M;
    if (shared) {
        whole_product(tile, p, threads);
        NAME(best)(p->out, before, B, P, V, k, normalize, banned, penalised, penalty, values, places,
                   threads);
        return;
    }
    PARALLEL_FOR(PARALLEL_FROM)
    for (i64 thread = 0; thread < threads; thread++) {
        float *room = (float *)p->out + thread * at_once * P * V;
        for (i64 first = thread * at_once; first < B; first += threads * at_once) {
            i64 last = least(first + at_once, B), skipped = first * P;
            Product own = *p;
            own.x = (const char *)p->x + skipped * p->x_row, own.out = room;
            if (p->rows) own.rows += skipped, own.excess += skipped;
            for (i64 j = 0; j < V; j += STRIP) rows_of_strip(tile, &own, 0, (last - first) * P, j);
            for (i64 b = first; b < last; b++)
                NAME(best_of_group)(room + (b - first) * P * V, before ? before + b * P : 0, P, V, k, normalize,
                                    banned, penalised, penalty, values + b * k, places + b * k);
        }
    }
}
#endif

#if defined(FIRST_VERSION) && defined(BF16_TILES)
API void NAME(bf16_best)(const bf16 *x, const bf16 *packed, float *room, i64 shared, i64 at_once, i64 N, i64 K, i64 V,
                         const float *OPTIONAL before, i64 P, i64 k, i64 normalize, i64 banned, i64 penalised,
                         float penalty, float *values, i64 *places, i64 threads) {
    Product p = {x, packed, 0, room, K * sizeof(bf16), GROUP, K * sizeof(bf16) * STRIP, 0,
                 V * sizeof(float), 1, K / 2, N, V, 0, 0, 0};
    best_of_product(bf16_tile, &p, shared, at_once, before, P, k, normalize, banned, penalised, penalty, values,
                    places, threads);
}
#endif

#if defined(FIRST_VERSION) && defined(INT8_TILES)
API void NAME(int8_best)(const int8_t *x, const int32_t *excess, const float *rows, const bf16 *packed,
                         const float *columns, float *room, i64 shared, i64 at_once, i64 N, i64 K, i64 V,
                         const float *OPTIONAL before, i64 P, i64 k, i64 normalize, i64 banned, i64 penalised,
                         float penalty, float *values, i64 *places, i64 threads) {
    Product p = {x, packed, 0, room, K, GROUP, K * STRIP, 0,
                 V * sizeof(float), 1, K / GROUP, N, V, excess, rows, columns};
    best_of_product(int8_tile, &p, shared, at_once, before, P, k, normalize, banned, penalised, penalty, values,
                    places, threads);
}
#endif
