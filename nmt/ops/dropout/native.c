/* Dropout: value n of x [N] times 0 or `scale`, by the n-th random number of the seed.

   The numbers are those of Philox4x32-10 (Salmon et al., SC 2011) with the seed as its key: a function of the seed
   and the counter alone. Of the 64 numbers of a block, number 16 w + k is word w of counter 16 block + k. */

INLINE void NAME(philox)(uint32_t *restrict numbers, uint64_t seed, uint64_t block) {
#pragma omp simd
    for (uint32_t k = 0; k < 16; k++) {
        uint64_t counter = 16 * block + k;
        uint32_t a = (uint32_t)counter, b = (uint32_t)(counter >> 32), c = 0, d = 0;
        uint32_t key = (uint32_t)seed, other = (uint32_t)(seed >> 32);
        for (int round = 0; round < 10; round++) {
            uint64_t p = 0xD2511F53ull * a, q = 0xCD9E8D57ull * c;
            a = (uint32_t)(q >> 32) ^ b ^ key, b = (uint32_t)q;
            c = (uint32_t)(p >> 32) ^ d ^ other, d = (uint32_t)p;
            key += 0x9E3779B9u, other += 0xBB67AE85u;
        }
        numbers[k] = a, numbers[16 + k] = b, numbers[32 + k] = c, numbers[48 + k] = d;
    }
}

API void NAME(dropout)(const T *restrict x, T *restrict out, i64 N, i64 seed, i64 threshold, float scale, i64 threads) {
    SHARE(N)
    for (i64 start = 0; start < N; start += 64) {
        uint32_t numbers[64], limit = threshold > 0xffffffff ? 0xffffffffu : (uint32_t)threshold;
        NAME(philox)(numbers, (uint64_t)seed, (uint64_t)start / 64);
        i64 count = N - start < 64 ? N - start : 64;
#pragma omp simd
        for (i64 j = 0; j < count; j++)
            out[start + j] = STORE(LOAD(x[start + j]) * (numbers[j] < limit ? 0.0f : scale));
    }
}
