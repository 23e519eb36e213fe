/* Byte-pair merges (Sennrich, Haddow and Birch, 2016) as SentencePiece makes them: of all neighbours that make a piece
   those of the best score are merged first, the leftmost of equals; user defined symbols stay as they are.

   Words are split one by one where no piece crosses the beginning of a word, since merges in one word then have no
   influence on those in another. */

#include "subwords_internal.h"

enum { DEEPEST = 100 }; /* SentencePiece's limit of how often unused pieces are taken apart */

typedef struct {
    uint32_t start, size; /* size 0: has become part of the one before */
    uint32_t node;        /* of its text in the trie */
    int32_t before, after;
    bool is_frozen;
} symbol;

typedef struct {
    uint64_t priority; /* greater is better: score, then place */
    int32_t right;
    uint32_t node;
} candidate;

typedef struct {
    const subwords *model;
    const char *text;
    symbol *symbols;
    candidate *heap;
    size_t symbol_room, heap_room;
    int32_t count, waiting; /* symbols, candidates */
    uint32_t *left_sizes;   /* of an unused piece's left part when it last was a candidate; null without such pieces */
    id_sink *sink;
} splitting;

static void push(splitting *s, candidate new) {
    int32_t place = s->waiting++;
    for (int32_t parent; place && s->heap[parent = (place - 1) / 2].priority < new.priority; place = parent) {
        s->heap[place] = s->heap[parent];
    }
    s->heap[place] = new;
}

static candidate pop(splitting *s) {
    candidate best = s->heap[0], moved = s->heap[--s->waiting];
    int32_t place = 0;
    for (int32_t child; (child = 2 * place + 1) < s->waiting; place = child) {
        if (child + 1 < s->waiting && s->heap[child + 1].priority > s->heap[child].priority) child++;
        if (s->heap[child].priority <= moved.priority) break;
        s->heap[place] = s->heap[child];
    }
    s->heap[place] = moved;
    return best;
}

/* Makes two neighbours a candidate, if their text is a piece. */
static void offer(splitting *s, int32_t left, int32_t right) {
    const trie *t = &s->model->known;
    if (left < 0 || right < 0) return;
    const symbol *l = &s->symbols[left], *r = &s->symbols[right];
    if (l->is_frozen || r->is_frozen) return;
    uint32_t node = trie_walk(t, l->node, s->text + r->start, r->size);
    int32_t id = trie_piece(t, node);
    if (id < 0) return;
    const piece *p = &s->model->pieces[id];
    uint64_t order = (uint32_t)p->order ^ 0x80000000u;
    if (p->type == UNUSED) s->left_sizes[id] = l->size;
    push(s, (candidate){order << 32 | (uint32_t)~left, right, node});
}

static void merge_all(splitting *s) {
    const trie *t = &s->model->known;
    s->waiting = 0;
    for (int32_t i = 0; i + 1 < s->count; i++) offer(s, i, i + 1);
    while (s->waiting) {
        candidate best = pop(s);
        int32_t left = (int32_t)~(uint32_t)best.priority;
        symbol *l = &s->symbols[left], *r = &s->symbols[best.right];
        uint32_t size = s->model->pieces[t->entries[best.node].piece].size;
        if (!l->size || !r->size || l->size + r->size != size) continue; /* one of them has been merged since */
        l->size = size, l->node = best.node, l->after = r->after, r->size = 0;
        if (r->after >= 0) s->symbols[r->after].before = left;
        offer(s, l->before, left);
        offer(s, left, l->after);
    }
}

/* Adds a piece, or of an unused one the two that it was made of. */
static void add_piece(splitting *s, const char *text, uint32_t size, int depth) {
    const trie *t = &s->model->known;
    int32_t id = trie_piece(t, trie_walk(t, t->root, text, size));
    uint32_t left = 0;
    if (id < 0) id = s->model->unknown;
    else if (s->model->pieces[id].type == UNUSED && depth <= DEEPEST) {
        left = s->left_sizes[id];
        if (!left) id = s->model->unknown;
    }
    if (!left) {
        subwords_add_id(s->sink, text, size, id);
        return;
    }
    add_piece(s, text, left, depth + 1);
    add_piece(s, text + left, size - left, depth + 1);
}

/* Adds the ids of the symbols that have been gathered; none is left. */
static int split_gathered(splitting *s) {
    if (s->count > 1) {
        /* One for each two neighbours at first, two more for each merge. */
        if (make_room((void **)&s->heap, &s->heap_room, (size_t)s->count * 3, sizeof *s->heap)) return -1;
        merge_all(s);
    }
    for (int32_t i = s->count ? 0 : -1; i >= 0; i = s->symbols[i].after) {
        const symbol *one = &s->symbols[i];
        if (s->left_sizes) {
            add_piece(s, s->text + one->start, one->size, 0);
        } else {
            int32_t id = trie_piece(&s->model->known, one->node);
            subwords_add_id(s->sink, s->text + one->start, one->size, id < 0 ? s->model->unknown : id);
        }
    }
    s->count = 0;
    return 0;
}

static int gather(splitting *s, uint32_t start, uint32_t size, bool is_frozen) {
    const trie *t = &s->model->known;
    int32_t i = s->count;
    if (make_room((void **)&s->symbols, &s->symbol_room, (size_t)i + 1, sizeof *s->symbols)) return -1;
    if (i) s->symbols[i - 1].after = i;
    s->symbols[i] = (symbol){start, size, trie_walk(t, t->root, s->text + start, size), i - 1, -1, is_frozen};
    s->count++;
    return 0;
}

static int split_text(splitting *s, uint32_t size) {
    bool whole = s->model->whole_lines;
    for (uint32_t at = 0; at < size;) {
        uint32_t length = (uint32_t)symbol_size(s->model, s->text + at, size - at);
        bool is_frozen = length > 0;
        if (!is_frozen) length = char_size(s->text + at, size - at);
        if (!whole && (is_frozen || begins_word(s->text + at, size - at)) && split_gathered(s)) return -1;
        if (gather(s, at, length, is_frozen)) return -1;
        if (!whole && is_frozen && split_gathered(s)) return -1;
        at += length;
    }
    return split_gathered(s);
}

int subwords_split_bpe(const char *text, uint32_t size, id_sink *sink) {
    const subwords *model = sink->model;
    splitting s = {.model = model, .text = text, .sink = sink, .symbol_room = 64, .heap_room = 192};
    s.symbols = malloc(s.symbol_room * sizeof *s.symbols);
    s.heap = malloc(s.heap_room * sizeof *s.heap);
    if (model->has_unused) s.left_sizes = calloc((size_t)model->spec.count, sizeof *s.left_sizes);
    int result = -1;
    if (s.symbols && s.heap && (s.left_sizes || !model->has_unused)) result = split_text(&s, size);
    free(s.symbols), free(s.heap), free(s.left_sizes);
    return result;
}
