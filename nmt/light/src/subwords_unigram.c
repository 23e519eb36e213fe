/* The most probable way to split a text by a unigram language model (Kudo, 2018): Viterbi's algorithm over the places
   of the text, equal to EncodeOptimized of SentencePiece down to the rounding of its sums. */

#include "subwords_internal.h"

/* The best way to a place that ends with the piece `id`. */
typedef struct {
    int32_t id;
    float score;
    int32_t start; /* where that piece begins, -1 where no way is known */
} arrival;

static const float FARTHEST = 100000.0f; /* sums beyond it are made small again, so that they keep their digits */

static void arrive(arrival *at, int32_t id, float score, uint32_t start) {
    if (at->start < 0 || score > at->score) *at = (arrival){id, score, (int32_t)start};
}

static void lower_scores(arrival *at, uint32_t from, uint32_t to) {
    float offset = at[from].score;
    for (uint32_t i = from; i <= to; i++) {
        if (i == from || at[i].start >= 0) at[i].score -= offset;
    }
}

static void find_ways(const subwords *model, const char *text, uint32_t size, arrival *at) {
    const trie *t = &model->known;
    uint32_t frontier = 0, length;
    for (uint32_t start = 0; start < size; start += length) {
        if (at[start].score < -FARTHEST || at[start].score > FARTHEST) lower_scores(at, start, frontier);
        float score = at[start].score;
        bool has_char = false;
        uint32_t node = t->root;
        length = char_size(text + start, size - start);
        for (uint32_t end = start; end < size;) {
            node = trie_step(t, node, text[end++]);
            if (node == NO_NODE) break;
            int32_t id = t->entries[node].piece;
            if (id < 0) continue;
            if (end > frontier) frontier = end;
            arrive(&at[end], id, model->pieces[id].score + score, start);
            if (end - start == length) has_char = true;
        }
        if (has_char) continue;
        if (start + length > frontier) frontier = start + length;
        arrive(&at[start + length], model->unknown, model->unknown_score + score, start);
    }
}

/* Adds the ids of the best way. The end of each piece is noted where it begins, on the way back. */
static void add_way(const char *text, uint32_t size, arrival *at, id_sink *sink) {
    int32_t end = (int32_t)size, id = at[size].id;
    for (int32_t start = at[size].start; start >= 0;) {
        int32_t before = at[start].start, id_before = at[start].id;
        at[start] = (arrival){id, 0.0f, end};
        end = start, start = before, id = id_before;
    }
    for (uint32_t start = 0; start < size; start = (uint32_t)at[start].start) {
        subwords_add_id(sink, text + start, (uint32_t)at[start].start - start, at[start].id);
    }
}

int subwords_split_unigram(const char *text, uint32_t size, id_sink *sink) {
    arrival *at = malloc(((size_t)size + 1) * sizeof *at); /* no overflow, see LARGEST_TEXT */
    if (!at) return -1;
    for (uint32_t i = 0; i <= size; i++) at[i] = (arrival){-1, 0.0f, -1};
    find_ways(sink->model, text, size, at);
    add_way(text, size, at, sink);
    free(at);
    return 0;
}
