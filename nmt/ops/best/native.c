/* The k best of P rows x [V] together: (x - lse(x)) + before of each row, or x + before without normalising; largest
   first, of equal ones the one that comes first. The logits of a step are read while they are in the cache, and
   nothing as large as they are is written.

   logits [B, P, V], before [B, P] or none, values and places (p V + j) [B, k]. `banned` is an id that counts as
   -infinity, but in the normalisation, `penalised` one from whose value `penalty` is taken; -1 for none. */

#define BEST_BLOCK 64

API void NAME(best)(const T *logits, const float *before, i64 B, i64 P, i64 V, i64 k, i64 normalize, i64 banned,
                    i64 penalised, float penalty, float *values, i64 *places, i64 threads) {
#pragma omp parallel for num_threads(threads) if (B * P * V >= PARALLEL_FROM)
    for (i64 b = 0; b < B; b++) {
        float *value = values + b * k;
        i64 *place = places + b * k, found = 0;
        for (i64 p = 0; p < P; p++) {
            const T *restrict x = logits + (b * P + p) * V;
            float shift = before ? before[b * P + p] : 0.0f, top = 0.0f, lse = 0.0f;
            if (normalize) {
                if (found == k && !(shift > value[k - 1])) continue; /* a log-probability is 0 at most */
                float total = 0.0f;
                top = -INFINITY;
#pragma omp simd reduction(max : top)
                for (i64 j = 0; j < V; j++) {
                    float y = LOAD(x[j]);
                    top = y > top ? y : top;
                }
#pragma omp simd reduction(+ : total)
                for (i64 j = 0; j < V; j++) total += fast_exp(LOAD(x[j]) - top);
                lse = logf(total);
            }
            for (i64 start = 0; start < V; start += BEST_BLOCK) {
                i64 n = V - start < BEST_BLOCK ? V - start : BEST_BLOCK;
                float y[BEST_BLOCK], best = -INFINITY;
#pragma omp simd reduction(max : best)
                for (i64 j = 0; j < n; j++) {
                    y[j] = ((LOAD(x[start + j]) - top) - lse) + shift;
                    best = y[j] > best ? y[j] : best;
                }
                if (found == k && !(best > value[k - 1])) continue;
                if (penalised >= start && penalised < start + n)
                    y[penalised - start] = (((LOAD(x[penalised]) - top) - lse) - penalty) + shift;
                if (banned >= start && banned < start + n) y[banned - start] = -INFINITY;
                for (i64 j = 0; j < n; j++) {
                    if (found == k && !(y[j] > value[k - 1])) continue;
                    i64 at = found < k ? found++ : k - 1;
                    for (; at > 0 && y[j] > value[at - 1]; at--)
                        value[at] = value[at - 1], place[at] = place[at - 1];
                    value[at] = y[j], place[at] = p * V + start + j;
                }
            }
        }
    }
}

#undef BEST_BLOCK
