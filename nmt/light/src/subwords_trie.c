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

/* The node after `node` by a byte, which is made if there is none; *free_entries goes down then. */
static uint32_t step_or_add(const trie *t, uint32_t node, char byte, uint32_t *free_entries) {
    uint32_t key = node << 8 | (uint8_t)byte, place = (key * 0x9E3779B1u) >> t->shift;
    while (t->entries[place].key != key) {
        if (t->entries[place].key == NO_NODE) {
            t->entries[place].key = key, (*free_entries)--;
            break;
        }
        place = (place + 1) & t->mask;
    }
    return place;
}

enum { DONE, FULL, TWICE };

/* Adds all pieces; FULL when more than 5 of 8 entries are taken, TWICE where two pieces are the same. */
static int add_pieces(const trie *t, const subwords *model, unsigned types) {
    uint32_t free_entries = (t->mask + 1) / 8 * 5;
    for (int32_t id = 0; id < model->spec.count; id++) {
        const piece *p = &model->pieces[id];
        const char *text = model->bytes + p->offset;
        uint32_t node = t->root;
        if (!(types >> p->type & 1) || !*text) continue; /* the latter as SentencePiece passes over a piece "\0" */
        for (uint32_t i = 0; i < p->size; i++) {
            if (!free_entries) return FULL;
            node = step_or_add(t, node, text[i], &free_entries);
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
    *problem = result == FULL ? "a SentencePiece model with too much text in its pieces" : "a SentencePiece model with a piece twice";
    return result == DONE ? 0 : -1;
}
