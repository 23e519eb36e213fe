/* What the files subwords*.c share: an opened model, its trie, and small functions that each of them needs. */

#ifndef NMT_SUBWORDS_INTERNAL_H
#define NMT_SUBWORDS_INTERNAL_H

#include "subwords.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE }; /* types of pieces, as the model file numbers them */
enum { UNIGRAM = 1, BPE };                                         /* types of models */
enum { MOST_PROBES = 1024 };                                       /* of a search in a trie */
/* In bytes; so that a made-up model cannot make splitting slow, nor a short text long. */
enum { LONGEST_PIECE = 1000, LONGEST_MAPPED = 256, LONGEST_REPLACEMENT = 128 };

#define WORD_BEGIN "\xe2\x96\x81" /* U+2581, which stands for a space */
#define WORD_BEGIN_SIZE 3
#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */
#define NO_NODE UINT32_MAX
#define LARGEST_TEXT ((size_t)1 << 28) /* bytes of a normalised text, so that 12 for each are below 2^32 */

typedef struct {
    uint32_t offset; /* of its text in the model file */
    uint16_t size;   /* of its text in bytes */
    uint8_t type;
    uint8_t byte; /* that a piece of type BYTE stands for */
    union {
        float score;   /* of a unigram model; that of a user defined piece is its bonus */
        int32_t order; /* of a BPE model: greater is merged first */
    };
} piece;

/* A trie as one hash table with linear probing, in which the place of an entry is the number of its node: it needs no
   memory beside the table, and is built without sorting. No entry is MOST_PROBES or more places from where it is sought
   first, so that a made-up model cannot make searches long. */
typedef struct {
    uint32_t key;  /* number of the parent * 256 + byte; NO_NODE in an empty entry */
    int32_t piece; /* that ends at the node, -1 for none */
} trie_entry;

typedef struct {
    trie_entry *entries; /* null in a trie without pieces */
    uint32_t mask, root; /* number of entries - 1, number of entries */
    int shift;
} trie;

typedef struct {
    const char *bytes;
    size_t size;
} span;

/* What the model file says. */
typedef struct {
    int32_t count; /* of pieces */
    int32_t model_type;
    bool byte_fallback, space_is_suffix;
    bool dummy_space, remove_extra_spaces, escape_spaces;
    span charsmap, unknown_text;
} model_spec;

struct subwords {
    const char *bytes; /* the model file */
    model_spec spec;
    piece *pieces;
    trie known;   /* the pieces that text is split into */
    trie symbols; /* those of them that are user defined */
    span units;   /* the double array of the character map, empty without one; 4 bytes each */
    span strings; /* what it puts in place of text, each ended by a 0 */
    int32_t unknown;
    int32_t byte_ids[256];
    float unknown_score;
    bool has_unused;  /* BPE: there are unused pieces, which are taken apart again */
    bool whole_lines; /* BPE: a piece may cross the beginning of a word, or words depend on each other (`left_sizes`) */
};

/* Ids on their way out. */
typedef struct {
    const subwords *model;
    int32_t *ids; /* with room for one for each byte of the normalised text */
    int64_t count;
    bool after_unknown;
} id_sink;

/* subwords_proto.c: the fields of a model file. 0, or -1 with *problem. */
int subwords_read_spec(span file, model_spec *spec, const char **problem);
int subwords_read_pieces(span file, piece *pieces);

/* subwords_trie.c: a trie of the pieces whose types are in `types`, a bit for each. 0, or -1 with *problem. */
int subwords_build_trie(trie *t, const subwords *model, unsigned types, const char **problem);

/* subwords_normalize.c: checks the character map of the model; text as the model splits it, in *to, which is grown. */
int subwords_open_charsmap(subwords *model, const char **problem);
int64_t subwords_normalize(const subwords *model, const char *text, size_t size, char **to, size_t *room);

/* subwords_bpe.c, subwords_unigram.c: ids of a normalised text. 0, or -1 where memory ends. */
int subwords_split_bpe(const char *text, uint32_t size, id_sink *sink);
int subwords_split_unigram(const char *text, uint32_t size, id_sink *sink);

/* subwords.c: adds what becomes of a part of a text that has this id. */
void subwords_add_id(id_sink *sink, const char *text, uint32_t size, int32_t id);

static inline uint32_t little_u32(const void *from) {
    const uint8_t *b = from;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* Where a key is sought first. */
static inline uint32_t trie_place(const trie *t, uint32_t key) { return (key * 0x9E3779B1u) >> t->shift; }

/* The node after `node` by a byte, NO_NODE if there is none. */
static inline uint32_t trie_step(const trie *t, uint32_t node, char byte) {
    uint32_t key = node << 8 | (uint8_t)byte, place = trie_place(t, key);
    for (int probes = 0; probes < MOST_PROBES; probes++, place = (place + 1) & t->mask) {
        uint32_t found = t->entries[place].key;
        if (found == key) return place;
        if (found == NO_NODE) break;
    }
    return NO_NODE;
}

/* The node after `node`, which may be NO_NODE, by some bytes. */
static inline uint32_t trie_walk(const trie *t, uint32_t node, const char *text, uint32_t size) {
    for (uint32_t i = 0; i < size && node != NO_NODE; i++) node = trie_step(t, node, text[i]);
    return node;
}

/* The piece that ends at a node, which may be NO_NODE; -1 for none. */
static inline int32_t trie_piece(const trie *t, uint32_t node) { return node == NO_NODE ? -1 : t->entries[node].piece; }

/* Bytes of the longest user defined symbol with which a text begins, 0 for none; of the 64 shortest, as SentencePiece
   has it. */
static inline size_t symbol_size(const subwords *model, const char *text, size_t size) {
    const trie *t = &model->symbols;
    size_t longest = 0;
    if (!t->entries) return 0;
    uint32_t node = t->root;
    for (size_t i = 0, found = 0; i < size && found < 64; i++) {
        node = trie_step(t, node, text[i]);
        if (node == NO_NODE) break;
        if (t->entries[node].piece >= 0) longest = i + 1, found++;
    }
    return longest;
}

/* Bytes of the character with which a text of at least one byte begins, as its first byte has it. */
static inline uint32_t char_size(const char *text, size_t size) {
    uint8_t first = (uint8_t)*text;
    uint32_t length = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    return length < size ? length : (uint32_t)size;
}

/* The same of valid UTF-8, 0 if it is not valid. */
static inline uint32_t valid_char_size(const char *text, size_t size) {
    const uint8_t *b = (const uint8_t *)text;
    uint32_t length = char_size(text, size), code = b[0];
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < 0x80) return 1;
    if (length < 2 || code >= 0xF8) return 0;
    code &= 0x7Fu >> length;
    for (uint32_t i = 1; i < length; i++) {
        if ((b[i] & 0xC0) != 0x80) return 0;
        code = code << 6 | (b[i] & 0x3F);
    }
    bool is_surrogate = code >= 0xD800 && code < 0xE000;
    /* A text that ends within a character has a length that is too short for its first byte. */
    bool is_cut = length < (b[0] < 0xE0 ? 2u : b[0] < 0xF0 ? 3u : 4u);
    return is_cut || is_surrogate || code < least[length] || code > 0x10FFFF ? 0 : length;
}

static inline bool begins_word(const char *text, size_t size) {
    return size >= WORD_BEGIN_SIZE && memcmp(text, WORD_BEGIN, WORD_BEGIN_SIZE) == 0;
}

/* Makes room for `needed` items, at least twice as many as there was: 0, or -1 where memory ends. */
static inline int make_room(void **items, size_t *room, size_t needed, size_t item) {
    if (needed <= *room) return 0;
    size_t larger = *room > SIZE_MAX / 2 || needed > *room * 2 ? needed : *room * 2;
    if (larger > SIZE_MAX / 2 / item) return -1;
    void *moved = realloc(*items, larger * item);
    if (!moved) return -1;
    *items = moved, *room = larger;
    return 0;
}

#endif
