/* Sentences split into random subwords: merges left out at random (BPE), or a path drawn through a lattice (unigram).

   The numbers are those of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), one generator for each sentence, so neither
   the order of the sentences nor a library has an influence. The Python files of this folder compute the same bits. */

#include "simd.h"

#ifdef FIRST_VERSION

typedef struct {
    const i64 *first; /* of token i the characters are chars[first[i]] up to chars[first[i + 1]] */
    const int32_t *chars;
    const uint8_t *frozen; /* tokens that stay as they are */
    const uint8_t *starts; /* characters with which a word begins */
} alphabet;

typedef struct {
    const i64 *keys;
    const int32_t *values;
    i64 mask;
} table;

/* The value of the key (a, b), -1 if it is not in the table; table.py fills it. */
INLINE int32_t look_up(table t, int32_t a, int32_t b) {
    uint64_t key = (uint64_t)a << 32 | (uint32_t)b;
    uint64_t place = (key * 0x9E3779B97F4A7C15ull) >> 32;
    for (;; place++) {
        i64 found = t.keys[place & (uint64_t)t.mask];
        if (found == (i64)key) return t.values[place & (uint64_t)t.mask];
        if (found < 0) return -1;
    }
}

INLINE uint64_t next_number(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

typedef struct {
    table merges;
    const int32_t *ranks;
    uint64_t threshold; /* p * 2^62 */
    int32_t *merged;    /* scratch: what the pair that begins at each place becomes, -1 for nothing */
} merging;

/* Each pair of neighbours that makes a piece is left out with probability p; the best of the others, and the leftmost
   of equals, is merged, until no pair is left (Provilkov et al., ACL 2020, algorithm 1). */
INLINE i64 merge_word(const merging *m, int32_t *word, i64 length, uint64_t *state) {
    for (i64 i = 0; i + 1 < length; i++) m->merged[i] = look_up(m->merges, word[i], word[i + 1]);
    for (;;) {
        i64 best = -1;
        for (i64 i = 0; i + 1 < length; i++) {
            if (m->merged[i] < 0) continue;
            if (m->threshold && next_number(state) >> 2 < m->threshold) continue;
            if (best < 0 || m->ranks[m->merged[i]] < m->ranks[m->merged[best]]) best = i;
        }
        if (best < 0) return length;
        word[best] = m->merged[best];
        for (i64 i = best + 1; i + 1 < length; i++) word[i] = word[i + 1], m->merged[i] = m->merged[i + 1];
        length--;
        if (best > 0) m->merged[best - 1] = look_up(m->merges, word[best - 1], word[best]);
        if (best + 1 < length) m->merged[best] = look_up(m->merges, word[best], word[best + 1]);
    }
}

typedef struct {
    table children;
    const int32_t *pieces; /* of each node of the trie, -1 for none */
    const double *weights; /* of each piece: its probability to the power of alpha */
    double *mantissas;     /* scratch: the sum over all ways from a place to the end, as mantissa * 2^exponent */
    i64 *exponents;
    i64 *ends; /* scratch: where the pieces that begin at a place end, and what they add to its sum */
    int32_t *found;
    double *terms;
} lattice;

/* The number of pieces that begin at place i; their terms are relative to *exponent. */
INLINE i64 edges(const lattice *l, const int32_t *word, i64 length, i64 i, i64 *exponent) {
    i64 count = 0, largest = 0;
    int32_t node = 0;
    for (i64 j = i; j < length; j++) {
        node = look_up(l->children, node, word[j]);
        if (node < 0) break;
        if (l->pieces[node] < 0) continue;
        l->ends[count] = j + 1, l->found[count] = l->pieces[node];
        if (!count || l->exponents[j + 1] > largest) largest = l->exponents[j + 1];
        count++;
    }
    for (i64 k = 0; k < count; k++) {
        i64 below = l->exponents[l->ends[k]] - largest;
        l->terms[k] = ldexp(l->weights[l->found[k]] * l->mantissas[l->ends[k]], below < -4000 ? -4000 : (int)below);
    }
    *exponent = largest;
    return count;
}

/* Sums are rounded at each step, as in the reference: the compiler must not join products and sums. */
INLINE double added(double a, double b) {
    volatile double sum = a + b;
    return sum;
}

/* A segmentation with probability in proportion to the product of its weights: sums from the end to the beginning, then
   draws from the beginning to the end (Kudo, ACL 2018, with all segmentations instead of the best l). */
INLINE i64 draw_word(const lattice *l, int32_t *word, i64 length, uint64_t *state) {
    i64 exponent, written = 0;
    l->mantissas[length] = 1.0, l->exponents[length] = 0;
    for (i64 i = length - 1; i >= 0; i--) {
        i64 count = edges(l, word, length, i, &exponent);
        double sum = 0.0;
        int own;
        for (i64 k = 0; k < count; k++) sum = added(sum, l->terms[k]);
        l->mantissas[i] = frexp(sum, &own);
        l->exponents[i] = exponent + own;
    }
    for (i64 i = 0; i < length;) {
        i64 count = edges(l, word, length, i, &exponent), chosen = 0;
        double sum = 0.0, reached = 0.0;
        for (i64 k = 0; k < count; k++) sum = added(sum, l->terms[k]);
        double drawn = (double)(next_number(state) >> 11) * 0x1p-53;
        drawn = added(drawn * sum, 0.0);
        for (chosen = 0; chosen + 1 < count; chosen++) {
            reached = added(reached, l->terms[chosen]);
            if (drawn < reached) break;
        }
        word[written++] = l->found[chosen]; /* never beyond what has been read */
        i = l->ends[chosen];
    }
    return written;
}

/* Sentence s is ids[offsets[s]] up to ids[offsets[s + 1]]; the results are in `out` one after the other, with their
   lengths. A sentence with more than `limit` tokens is not changed, and kept[s] is 1. */
#define SENTENCES(split)                                                                                               \
    i64 end = 0;                                                                                                       \
    for (i64 s = 0; s < count; s++) {                                                                                  \
        uint64_t state = (uint64_t)seeds[s];                                                                           \
        i64 begin = end, length = 0;                                                                                   \
        for (i64 i = offsets[s]; i < offsets[s + 1]; i++) {                                                            \
            int32_t id = ids[i];                                                                                       \
            for (i64 c = a.first[id]; c < a.first[id + 1]; c++) {                                                      \
                if (length && (a.frozen[id] || a.starts[a.chars[c]])) end += split, length = 0;                        \
                out[end + length++] = a.chars[c];                                                                      \
                if (a.frozen[id]) end++, length = 0;                                                                   \
            }                                                                                                          \
        }                                                                                                              \
        if (length) end += split;                                                                                      \
        kept[s] = end - begin > limit;                                                                                 \
        if (kept[s]) {                                                                                                 \
            end = begin;                                                                                               \
            for (i64 i = offsets[s]; i < offsets[s + 1]; i++) out[end++] = ids[i];                                     \
        }                                                                                                              \
        lengths[s] = end - begin;                                                                                      \
    }

API void NAME(draw_merges)(const int32_t *ids, const i64 *offsets, const i64 *seeds, i64 count, i64 limit,
                           const i64 *first, const int32_t *chars, const uint8_t *frozen, const uint8_t *starts,
                           const i64 *keys, const int32_t *values, i64 mask, const int32_t *ranks, i64 threshold,
                           int32_t *merged, int32_t *out, i64 *lengths, uint8_t *kept, i64 threads) {
    (void)threads;
    alphabet a = {first, chars, frozen, starts};
    merging m = {{keys, values, mask}, ranks, (uint64_t)threshold, merged};
    SENTENCES(merge_word(&m, out + end, length, &state))
}

API void NAME(draw_paths)(const int32_t *ids, const i64 *offsets, const i64 *seeds, i64 count, i64 limit,
                          const i64 *first, const int32_t *chars, const uint8_t *frozen, const uint8_t *starts,
                          const i64 *keys, const int32_t *values, i64 mask, const int32_t *pieces, const char *weights,
                          char *mantissas, i64 *exponents, i64 *ends, int32_t *found, char *terms, int32_t *out,
                          i64 *lengths, uint8_t *kept, i64 threads) {
    (void)threads;
    alphabet a = {first, chars, frozen, starts};
    lattice l = {{keys, values, mask}, pieces, (const double *)weights, (double *)mantissas, exponents, ends, found,
                 (double *)terms};
    SENTENCES(draw_word(&l, out + end, length, &state))
}
#endif
