/* The trie over the pieces of a model, see `trie` in subwords_internal.h. */

#include "subwords_internal.h"

enum { MOST_BITS = 23 }; /* so that the number of a node and a byte fit into 32 bits, and no key is NO_NODE */

static int make_empty(trie *t, int bits) {
    uint32_t entries = (uint32_t)1 << bits;
    free(t->entries);
    t->entries = malloc(entries * sizeof *t->entries);
    if (!t->entries) return -1;
    for (uint32_t i = 0; i < entries; i++) t->entries[i] = (trie_entry){NO_NODE, -1};
    t->mask = entries - 1, t->root = entries, t->shift = 32 - bits;
    return 0;
}

/* The node after `node` by a byte, which is made if there is none, with one of *left entries. NO_NODE where none is
   left. */
static uint32_t step_or_add(const trie *t, uint32_t node, char byte, uint32_t *left) {
    uint32_t key = node << 8 | (uint8_t)byte, place = trie_place(t, key);
    for (int probes = 0; probes < MOST_PROBES; probes++, place = (place + 1) & t->mask) {
        if (t->entries[place].key == key) return place;
        if (t->entries[place].key != NO_NODE) continue;
        if (!*left) break;
        t->entries[place].key = key, (*left)--;
        return place;
    }
    return NO_NODE;
}

enum { DONE, FULL, TWICE };

/* Adds all pieces; FULL where that would take more than 5 of 8 entries, TWICE where two pieces are the same. */
static int add_pieces(const trie *t, const subwords *model, unsigned types) {
    uint32_t left = (t->mask + 1) / 8 * 5;
    for (int32_t id = 0; id < model->spec.count; id++) {
        const piece *p = &model->pieces[id];
        const char *text = model->bytes + p->offset;
        uint32_t node = t->root;
        if (!(types >> p->type & 1) || !*text) continue; /* the latter as SentencePiece passes over a piece "\0" */
        for (uint32_t i = 0; i < p->size; i++) {
            node = step_or_add(t, node, text[i], &left);
            if (node == NO_NODE) return FULL;
        }
        if (t->entries[node].piece >= 0) return TWICE;
        t->entries[node].piece = id;
    }
    return DONE;
}

int subwords_build_trie(trie *t, const subwords *model, unsigned types, const char **problem) {
    int64_t count = 0;
    int bits = 6, result = FULL;
    for (int32_t id = 0; id < model->spec.count; id++) count += types >> model->pieces[id].type & 1;
    if (!count) return 0;
    while (bits < MOST_BITS && (int64_t)1 << bits < count * 4) bits++;
    for (; result == FULL && bits <= MOST_BITS; bits++) {
        *problem = "memory ends";
        if (make_empty(t, bits)) return -1;
        result = add_pieces(t, model, types);
    }
    *problem = "a SentencePiece model with a piece twice";
    if (result == FULL) *problem = "a SentencePiece model with too much text in its pieces";
    return result == DONE ? 0 : -1;
}
