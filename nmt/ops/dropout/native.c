/* Dropout: values of x [N, W] times 0 or `scale`, by the random number of their place.

   The numbers are those of Philox4x32-10 (Salmon et al., SC 2011): a function of the key and of a counter of four
   words. The counters of row n are (i, low word of its place, high word of its place, layer), i = 0, 1, ...; channel
   64 b + 16 w + k has word w of the counter i = 16 b + k. `places` NULL: the place of row n is n. */

#include "simd.h"

INLINE void NAME(philox)(uint32_t *restrict numbers, uint64_t seed, uint32_t first, uint64_t place, uint32_t layer) {
#pragma omp simd
    for (uint32_t k = 0; k < 16; k++) {
        uint32_t a = first + k, b = (uint32_t)place, c = (uint32_t)(place >> 32), d = layer;
        uint32_t key = (uint32_t)seed, other = (uint32_t)(seed >> 32);
#pragma GCC unroll 10
        for (int round = 0; round < 10; round++) {
            uint64_t p = 0xD2511F53ull * a, q = 0xCD9E8D57ull * c;
            a = (uint32_t)(q >> 32) ^ b ^ key, b = (uint32_t)q;
            c = (uint32_t)(p >> 32) ^ d ^ other, d = (uint32_t)p;
            key += 0x9E3779B9u, other += 0xBB67AE85u;
        }
        numbers[k] = a, numbers[16 + k] = b, numbers[32 + k] = c, numbers[48 + k] = d;
    }
}

API void NAME(dropout)(const T *restrict x, T *restrict out, const i64 *OPTIONAL places, i64 N, i64 W, i64 key,
                       i64 layer, i64 threshold, float scale, i64 threads) {
    uint32_t limit = (uint32_t)threshold;
    PARALLEL_FOR(N * W)
    for (i64 n = 0; n < N; n++) {
        uint64_t place = places ? (uint64_t)places[n] : (uint64_t)n;
        const T *restrict from = x + n * W;
        T *restrict to = out + n * W;
        for (i64 start = 0; start < W; start += 64) {
            uint32_t numbers[64];
            NAME(philox)(numbers, (uint64_t)key, (uint32_t)(start / 4), place, (uint32_t)layer);
            i64 count = W - start < 64 ? W - start : 64;
#pragma omp simd
            for (i64 j = 0; j < count; j++)
                to[start + j] = STORE(LOAD(from[start + j]) * (numbers[j] < limit ? 0.0f : scale));
        }
    }
}
