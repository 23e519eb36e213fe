/* See subwords.h: a model opened and checked, text to ids, and ids to text. All of it gives the results of SentencePiece
   (Kudo and Richardson, 2018). */

#include "subwords.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "case.h"
#include "system.h"

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
#define IS_NONE "not a SentencePiece model"
#define MEMORY_ENDS "memory ends"

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
    span cases; /* the table of case marks, empty without them */
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
    case_marks *cases; /* null without them */
    bool whole_lines; /* a piece may cross the beginning of a word, or words depend on each other (`left_sizes`) */
};

static uint32_t little_u32(const void *from) {
    const uint8_t *b = from;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* Bytes of the character with which a text of at least one byte begins, as its first byte has it. */
static uint32_t char_size(const char *text, size_t size) {
    uint8_t first = (uint8_t)*text;
    uint32_t length = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    return length < size ? length : (uint32_t)size;
}

/* The same of valid UTF-8, 0 if it is not valid. */
static uint32_t valid_char_size(const char *text, size_t size) {
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

static bool begins_word(const char *text, size_t size) {
    return size >= WORD_BEGIN_SIZE && memcmp(text, WORD_BEGIN, WORD_BEGIN_SIZE) == 0;
}

/* --- the message ModelProto of a model file, read from its wire format (protobuf) without copying text. Field numbers
   are those of sentencepiece_model.proto. As protobuf has it, unknown fields are passed over, the last value of a field
   counts, and a message that comes twice is one --- */

typedef struct {
    uint32_t number, type;
    uint64_t value; /* of varints and fixed numbers */
    span bytes;     /* of strings and messages */
} field;

enum { VARINT, FIXED64, BYTES, FIXED32 = 5 };

static bool read_varint(span *rest, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 70 && rest->size; shift += 7) {
        uint8_t byte = (uint8_t)*rest->bytes++;
        rest->size--;
        if (shift < 64) *value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

/* The next field of a message: 1, 0 at its end, -1 if it is damaged. A group, which nothing uses, counts as damage. */
static int next_field(span *rest, field *found) {
    uint64_t tag;
    if (!rest->size) return 0;
    if (!read_varint(rest, &tag) || tag >> 32 || tag < 8) return -1;
    found->number = (uint32_t)tag >> 3, found->type = (uint32_t)tag & 7;
    if (found->type == VARINT) return read_varint(rest, &found->value) ? 1 : -1;
    uint64_t size = found->type == FIXED64 ? 8 : 4;
    if (found->type == BYTES) {
        if (!read_varint(rest, &size)) return -1;
    } else if (found->type != FIXED64 && found->type != FIXED32) {
        return -1;
    }
    if (size > rest->size) return -1;
    found->bytes = (span){rest->bytes, (size_t)size};
    if (found->type == FIXED32) found->value = little_u32(rest->bytes);
    rest->bytes += size, rest->size -= (size_t)size;
    return 1;
}

/* Each reader of a message returns 0, or -1 if it is damaged. */
static int read_trainer(span rest, model_spec *spec) {
    field f;
    int more;
    while ((more = next_field(&rest, &f)) > 0) {
        int32_t value = (int32_t)(uint32_t)f.value;
        if (f.type == VARINT && f.number == 3 && value >= 1 && value <= 4) spec->model_type = value;
        if (f.type == VARINT && f.number == 24) spec->space_is_suffix = f.value;
        if (f.type == VARINT && f.number == 35) spec->byte_fallback = f.value;
        if (f.type == BYTES && f.number == 44) spec->unknown_text = f.bytes;
    }
    return more;
}

static int read_normalizer(span rest, model_spec *spec) {
    field f;
    int more;
    while ((more = next_field(&rest, &f)) > 0) {
        if (f.type == BYTES && f.number == 2) spec->charsmap = f.bytes;
        if (f.type == VARINT && f.number == 3) spec->dummy_space = f.value;
        if (f.type == VARINT && f.number == 4) spec->remove_extra_spaces = f.value;
        if (f.type == VARINT && f.number == 5) spec->escape_spaces = f.value;
    }
    return more;
}

static int read_piece(span rest, const char *file, piece *to) {
    field f;
    int more;
    *to = (piece){.type = NORMAL};
    while ((more = next_field(&rest, &f)) > 0) {
        int32_t value = (int32_t)(uint32_t)f.value;
        if (f.type == BYTES && f.number == 1) {
            if (f.bytes.size >= 8000) return -1; /* SentencePiece's limit */
            to->offset = (uint32_t)(f.bytes.bytes - file), to->size = (uint16_t)f.bytes.size;
        }
        if (f.type == FIXED32 && f.number == 2) to->order = value;
        if (f.type == VARINT && f.number == 3 && value >= NORMAL && value <= BYTE) to->type = (uint8_t)value;
    }
    return more;
}

/* All but the pieces, which are only counted. This and what follows returns null, or what is wrong with the model. */
static const char *read_spec(span file, model_spec *spec) {
    model_spec denormalizer = {0};
    span rest = file;
    field f;
    int more = 0, result = 0;
    *spec = (model_spec){.model_type = UNIGRAM, .dummy_space = true, .remove_extra_spaces = true, .escape_spaces = true,
                         .unknown_text = {" \xe2\x81\x87 ", 5}};
    if (!file.size || file.size > UINT32_MAX) return IS_NONE;
    while (result == 0 && (more = next_field(&rest, &f)) > 0) {
        if (f.type != BYTES) continue;
        if (f.number == 1 && ++spec->count == INT32_MAX) return IS_NONE;
        if (f.number == 2) result = read_trainer(f.bytes, spec);
        if (f.number == 3) result = read_normalizer(f.bytes, spec);
        if (f.number == 5) result = read_normalizer(f.bytes, &denormalizer);
        if (f.number == 201) spec->cases = f.bytes; /* of nmt/case_marks/model.py; SentencePiece keeps 200 and above free */
    }
    if (more || result || !spec->count) return IS_NONE;
    if (spec->model_type != UNIGRAM && spec->model_type != BPE)
        return "a SentencePiece model of type word or char, but only bpe and unigram are supported";
    return denormalizer.charsmap.size ? "a SentencePiece model with rules of denormalization, which are not known here"
                                      : NULL;
}

static const char *read_pieces(span file, piece *pieces) {
    span rest = file;
    field f;
    int more;
    while ((more = next_field(&rest, &f)) > 0)
        if (f.type == BYTES && f.number == 1 && read_piece(f.bytes, file.bytes, pieces++)) return IS_NONE;
    return more ? IS_NONE : NULL;
}

/* --- pieces, and tries of them --- */

/* The byte that a piece like <0x0A> stands for, -1 if it is none. */
static int byte_of(const char *text, size_t size) {
    static const char digits[] = "0123456789ABCDEF";
    if (size != 6 || memcmp(text, "<0x", 3) || text[5] != '>' || !text[3] || !text[4]) return -1;
    const char *high = strchr(digits, text[3]), *low = strchr(digits, text[4]);
    return high && low ? (int)((high - digits) * 16 + (low - digits)) : -1;
}

/* Also notes its type and bytes. */
static const char *check_piece(subwords *model, int32_t id) {
    piece *p = &model->pieces[id];
    const char *text = model->bytes + p->offset;
    if (!p->size) return "a SentencePiece model with an empty piece";
    if (p->size > LONGEST_PIECE) return "a SentencePiece model with a piece of more than 1000 bytes";
    if (p->size == 1 && !*text && (model->spec.byte_fallback || p->type == UNUSED))
        p->type = UNUSED; /* as SentencePiece does for models of others */
    else if (memchr(text, 0, p->size))
        return "a SentencePiece model with a piece that has a byte 0";
    if (p->type == UNKNOWN) {
        if (model->unknown >= 0) return "a SentencePiece model with two unknown pieces";
        model->unknown = id;
    }
    if (p->type == BYTE) {
        int byte = byte_of(text, p->size);
        if (byte < 0 || !model->spec.byte_fallback) return "a SentencePiece model with byte pieces that it cannot have";
        p->byte = (uint8_t)byte;
        model->byte_ids[byte] = id;
    }
    return NULL;
}

static const char *check_pieces(subwords *model) {
    model->unknown = -1;
    for (int byte = 0; byte < 256; byte++) model->byte_ids[byte] = -1;
    for (int32_t id = 0; id < model->spec.count; id++) {
        const char *problem = check_piece(model, id), *text = model->bytes + model->pieces[id].offset;
        if (problem) return problem;
        const piece *p = &model->pieces[id];
        if (p->type == CONTROL || p->type == UNKNOWN || p->type == BYTE) continue;
        for (size_t i = 1; i < p->size; i++)
            if (text[i] == ' ' || begins_word(text + i, p->size - i)) model->whole_lines = true;
    }
    if (model->unknown < 0 && !model->spec.byte_fallback) return "a SentencePiece model without an unknown piece";
    for (int byte = 0; byte < 256 && model->spec.byte_fallback; byte++)
        if (model->byte_ids[byte] < 0) return "a SentencePiece model in which byte pieces are missing";
    return NULL;
}

static void prepare_bpe(subwords *model) {
    for (int32_t id = 0; id < model->spec.count; id++) {
        piece *p = &model->pieces[id];
        /* The bits of a score as an integer of the same order; NaN has a place, too. */
        p->order = p->order >= 0 ? p->order : ~(p->order & 0x7FFFFFFF);
        if (p->type == UNUSED) model->has_unused = model->whole_lines = true;
    }
}

static const char *prepare_unigram(subwords *model) {
    float least = FLT_MAX;
    for (int32_t id = 0; id < model->spec.count; id++) {
        piece *p = &model->pieces[id];
        if (!isfinite(p->score)) return "a SentencePiece model with a score that is not a number";
        if (p->type == NORMAL && p->score < least) least = p->score;
        /* Of user defined symbols long ones are better than several short ones, and any than what has a probability. */
        if (p->type == USER_DEFINED) p->score = (float)(0.1 * (p->size - 1));
    }
    model->unknown_score = least - 10.0f;
    return NULL;
}

/* Where the entry with a key is, or an empty one for it; NO_NODE if it cannot have one. */
static inline uint32_t trie_place(const trie *t, uint32_t key) {
    uint32_t place = (key * 0x9E3779B1u) >> t->shift;
    for (int probes = 0; probes < MOST_PROBES; probes++, place = (place + 1) & t->mask)
        if (t->entries[place].key == key || t->entries[place].key == NO_NODE) return place;
    return NO_NODE;
}

/* The node after `node` by a byte, NO_NODE if there is none. */
static inline uint32_t trie_step(const trie *t, uint32_t node, char byte) {
    uint32_t key = node << 8 | (uint8_t)byte, place = trie_place(t, key);
    return place != NO_NODE && t->entries[place].key == key ? place : NO_NODE;
}

/* The node after `node`, which may be NO_NODE, by some bytes. */
static uint32_t trie_walk(const trie *t, uint32_t node, const char *text, uint32_t size) {
    for (uint32_t i = 0; i < size && node != NO_NODE; i++) node = trie_step(t, node, text[i]);
    return node;
}

/* The piece that ends at a node, which may be NO_NODE; -1 for none. */
static int32_t trie_piece(const trie *t, uint32_t node) { return node == NO_NODE ? -1 : t->entries[node].piece; }

enum { MOST_BITS = 23 }; /* so that the number of a node and a byte fit into 32 bits, and no key is NO_NODE */
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
            uint32_t key = node << 8 | (uint8_t)text[i];
            if ((node = trie_place(t, key)) == NO_NODE) return FULL;
            if (t->entries[node].key == key) continue;
            if (!left--) return FULL;
            t->entries[node].key = key;
        }
        if (t->entries[node].piece >= 0) return TWICE;
        t->entries[node].piece = id;
    }
    return DONE;
}

/* A trie of the pieces whose types are in `types`, a bit for each. */
static const char *build_trie(trie *t, const subwords *model, unsigned types) {
    int64_t count = 0;
    int bits = 6, result = FULL;
    for (int32_t id = 0; id < model->spec.count; id++) count += types >> model->pieces[id].type & 1;
    if (!count) return NULL;
    while (bits < MOST_BITS && (int64_t)1 << bits < count * 4) bits++;
    for (; result == FULL && bits <= MOST_BITS; bits++) {
        uint32_t entries = (uint32_t)1 << bits;
        free(t->entries);
        if (!(t->entries = malloc(entries * sizeof *t->entries))) return MEMORY_ENDS;
        for (uint32_t i = 0; i < entries; i++) t->entries[i] = (trie_entry){NO_NODE, -1};
        t->mask = entries - 1, t->root = entries, t->shift = 32 - bits;
        result = add_pieces(t, model, types);
    }
    if (result == FULL) return "a SentencePiece model with too much text in its pieces";
    return result == TWICE ? "a SentencePiece model with a piece twice" : NULL;
}

/* Bytes of the longest user defined symbol with which a text begins, 0 for none; of the 64 shortest, as SentencePiece
   has it. */
static size_t symbol_size(const subwords *model, const char *text, size_t size) {
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

/* --- text as a model splits it (section 3.2): characters replaced by the model's map, several spaces made one, a space
   put before the text, and spaces written as U+2581; equal to SentencePiece's Normalizer.

   The map is a double array (Aoe, 1989) in the form of darts-clone: from a unit with offset o, byte b leads to the unit
   at its place ^ o ^ b, if that has b as its label; the value of a unit with a leaf is at its place ^ o --- */

static uint32_t unit_at(span units, uint32_t place) { return little_u32(units.bytes + (size_t)4 * place); }
static uint32_t unit_label(uint32_t unit) { return unit & 0x800000FFu; } /* of a leaf above 255 */
static uint32_t unit_offset(uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }
static bool unit_has_leaf(uint32_t unit) { return unit >> 8 & 1; }

/* Whether no step can lead out of the units, and no value out of the strings. */
static bool is_sound(span units, size_t strings) {
    uint32_t count = (uint32_t)(units.size / 4), root = unit_at(units, 0);
    if (unit_label(root) || unit_has_leaf(root) || !unit_offset(root)) return false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t unit = unit_at(units, i), next = i ^ unit_offset(unit);
        if (unit_label(unit) > 0xFF) {
            if ((unit & 0x7FFFFFFFu) >= strings) return false;
        } else if ((next | 0xFF) >= count || (unit_has_leaf(unit) && unit_label(unit_at(units, next)) <= 0xFF)) {
            return false;
        }
    }
    return true;
}

static const char *open_charsmap(subwords *model) {
    static const char DAMAGED[] = "a SentencePiece model with a damaged map of characters";
    span map = model->spec.charsmap;
    if (!map.size) return NULL;
    size_t size = map.size > 4 ? little_u32(map.bytes) : 0, length = 0;
    if (size < 1024 || size % 1024 || size >= map.size - 4 || map.bytes[map.size - 1]) return DAMAGED;
    model->units = (span){map.bytes + 4, size};
    model->strings = (span){map.bytes + 4 + size, map.size - 4 - size};
    if (!is_sound(model->units, model->strings.size)) return DAMAGED;
    for (size_t i = 0; i < model->strings.size && length <= LONGEST_REPLACEMENT; i++)
        length = model->strings.bytes[i] ? length + 1 : 0; /* the last byte is 0 */
    return length ? "a SentencePiece model whose map of characters has a text of more than 128 bytes" : NULL;
}

/* Bytes of the longest text in the map with which `text` begins, 0 for none; *value is where its replacement begins.
   SentencePiece sees the 32 shortest. Texts in the map are a few characters; in a made-up one units may lead in a
   circle. */
static size_t mapped_size(span units, const char *text, size_t size, uint32_t *value) {
    size_t longest = 0;
    uint32_t place = unit_offset(unit_at(units, 0));
    for (size_t i = 0, found = 0; i < size && i < LONGEST_MAPPED && found < 32; i++) {
        place ^= (uint8_t)text[i];
        uint32_t unit = unit_at(units, place);
        if (unit_label(unit) != (uint8_t)text[i]) break;
        place ^= unit_offset(unit);
        if (!unit_has_leaf(unit)) continue;
        *value = unit_at(units, place) & 0x7FFFFFFFu;
        longest = i + 1, found++;
    }
    return longest;
}

/* What becomes of the beginning of a text that is not empty; returns how many of its bytes that is. */
static size_t normalize_prefix(const subwords *model, const char *text, size_t size, span *result) {
    uint32_t value = 0;
    size_t length = symbol_size(model, text, size);
    *result = (span){text, length};
    if (length) return length;
    if (model->units.size && (length = mapped_size(model->units, text, size, &value))) {
        const char *string = model->strings.bytes + value; /* the strings end with a 0 */
        *result = (span){string, strlen(string)};
        return length;
    }
    length = valid_char_size(text, size);
    *result = length ? (span){text, length} : (span){REPLACEMENT, 3};
    return length ? length : 1;
}

static size_t without_first_spaces(const subwords *model, const char *text, size_t size) {
    size_t begin = 0;
    span part;
    while (begin < size) {
        size_t length = normalize_prefix(model, text + begin, size - begin, &part);
        if (part.size != 1 || *part.bytes != ' ') break;
        begin += length;
    }
    return begin;
}

/* Writes a text with `space` for each space, for which there is room; returns how many bytes that are. */
static size_t write_escaped(char *to, span from, span space) {
    size_t size = 0;
    for (size_t i = 0; i < from.size; i++) {
        if (from.bytes[i] == ' ') {
            memcpy(to + size, space.bytes, space.size);
            size += space.size;
        } else {
            to[size++] = from.bytes[i];
        }
    }
    return size;
}

/* Where in a text each byte of its normalised form is from, and its end. */
typedef struct {
    uint32_t *all;
    size_t room;
} origin_list;

/* Notes that the bytes of the normalised text up to `last` are from `origin`. False where memory ends, as below. */
static bool note_origin(origin_list *origins, size_t first, size_t last, size_t origin) {
    if (!origins) return true;
    if (!grown(&origins->all, sizeof *origins->all, &origins->room, last + 1)) return false;
    for (size_t i = first; i <= last; i++) origins->all[i] = (uint32_t)origin;
    return true;
}

/* Writes it to *to, which is grown; returns its size, or -1 as subwords_encode does. `origins` may be null. */
static int64_t normalize(const subwords *model, const char *text, size_t size, char **to, size_t *room, origin_list *origins) {
    const model_spec *spec = &model->spec;
    const span space = spec->escape_spaces ? (span){WORD_BEGIN, WORD_BEGIN_SIZE} : (span){" ", 1};
    const span dummy = {" ", spec->dummy_space ? 1 : 0};
    size_t at = spec->remove_extra_spaces ? without_first_spaces(model, text, size) : 0, written = 0;
    bool after_space = spec->remove_extra_spaces;
    if (at == size) return 0;
    if (size > LARGEST_TEXT || !grown(to, 1, room, size + size / 2 + 16)) return -1;
    if (!spec->space_is_suffix) written = write_escaped(*to, dummy, space);
    if (!note_origin(origins, 0, written, at)) return -1;
    while (at < size) {
        span part;
        size_t begin = at, before = written;
        at += normalize_prefix(model, text + at, size - at, &part);
        while (after_space && part.size && *part.bytes == ' ') part.bytes++, part.size--;
        if (!part.size) {
            if (!note_origin(origins, written, written, at)) return -1;
            continue;
        }
        if (part.size > LARGEST_TEXT / WORD_BEGIN_SIZE) return -1;
        size_t needed = written + WORD_BEGIN_SIZE * (part.size + 1); /* with a space after it */
        if (needed > LARGEST_TEXT || !grown(to, 1, room, needed)) return -1;
        written += write_escaped(*to + written, part, space);
        if (!note_origin(origins, before, written, begin) || !note_origin(origins, written, written, at)) return -1;
        after_space = spec->remove_extra_spaces && part.bytes[part.size - 1] == ' ';
    }
    while (spec->remove_extra_spaces && written >= space.size &&
           memcmp(*to + written - space.size, space.bytes, space.size) == 0)
        written -= space.size;
    size_t before = written;
    if (spec->space_is_suffix) written += write_escaped(*to + written, dummy, space);
    if (origins && !note_origin(origins, before, written, origins->all[before])) return -1;
    return (int64_t)written;
}

/* --- ids of a normalised text --- */

/* Ids on their way out. */
typedef struct {
    const subwords *model;
    int32_t *ids; /* with room for one for each byte of the normalised text */
    int64_t count;
    word_state state; /* before what follows */
    const char *whole; /* the normalised text */
    token_span *spans; /* of the ids in it; null: not wanted */
} id_sink;

static void add_one(id_sink *sink, const char *text, uint32_t begin, uint32_t end, int32_t id) {
    if (sink->spans) sink->spans[sink->count] = (token_span){(uint32_t)(text - sink->whole) + begin, (uint32_t)(text - sink->whole) + end};
    sink->ids[sink->count++] = id;
}

/* Adds what becomes of a part of a text that has this id. An unknown part becomes its bytes, where the model has them;
   else several unknown parts in a row are one. */
static void add_id(id_sink *sink, const char *text, uint32_t size, int32_t id) {
    bool is_unknown = id == sink->model->unknown;
    if (is_unknown && sink->model->spec.byte_fallback)
        for (uint32_t i = 0; i < size; i++) /* the last one has the whole part */
            add_one(sink, text, 0, i + 1 < size ? 0 : size, sink->model->byte_ids[(uint8_t)text[i]]);
    else if (!is_unknown || !sink->state.after_unknown)
        add_one(sink, text, 0, size, id);
    else if (sink->spans)
        sink->spans[sink->count - 1].end += size;
    sink->state.after_unknown = is_unknown;
}

/* Byte-pair merges (Sennrich, Haddow and Birch, 2016) as SentencePiece makes them: of all neighbours that make a piece
   those of the best score are merged first, the leftmost of equals; user defined symbols stay as they are. Words are
   split one by one where no piece crosses the beginning of a word, since merges in one word then have no influence on
   those in another. */

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
} merging;

static void push(merging *s, candidate new) {
    int32_t place = s->waiting++;
    for (int32_t parent; place && s->heap[parent = (place - 1) / 2].priority < new.priority; place = parent)
        s->heap[place] = s->heap[parent];
    s->heap[place] = new;
}

static candidate pop(merging *s) {
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
static void offer(merging *s, int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const symbol *l = &s->symbols[left], *r = &s->symbols[right];
    if (l->is_frozen || r->is_frozen) return;
    uint32_t node = trie_walk(&s->model->known, l->node, s->text + r->start, r->size);
    int32_t id = trie_piece(&s->model->known, node);
    if (id < 0) return;
    const piece *p = &s->model->pieces[id];
    uint64_t order = (uint32_t)p->order ^ 0x80000000u;
    if (p->type == UNUSED) s->left_sizes[id] = l->size;
    push(s, (candidate){order << 32 | (uint32_t)~left, right, node});
}

static void merge_all(merging *s) {
    s->waiting = 0;
    for (int32_t i = 0; i + 1 < s->count; i++) offer(s, i, i + 1);
    while (s->waiting) {
        candidate best = pop(s);
        int32_t left = (int32_t)~(uint32_t)best.priority;
        symbol *l = &s->symbols[left], *r = &s->symbols[best.right];
        uint32_t size = s->model->pieces[s->model->known.entries[best.node].piece].size;
        if (!l->size || !r->size || l->size + r->size != size) continue; /* one of them has been merged since */
        l->size = size, l->node = best.node, l->after = r->after, r->size = 0;
        if (r->after >= 0) s->symbols[r->after].before = left;
        offer(s, l->before, left);
        offer(s, left, l->after);
    }
}

/* Adds a piece, or of an unused one the two that it was made of. */
static void add_piece(merging *s, const char *text, uint32_t size, int depth) {
    const trie *t = &s->model->known;
    int32_t id = trie_piece(t, trie_walk(t, t->root, text, size));
    uint32_t left = 0;
    if (id < 0) id = s->model->unknown;
    else if (s->model->pieces[id].type == UNUSED && depth <= DEEPEST) {
        left = s->left_sizes[id];
        if (!left) id = s->model->unknown;
    }
    if (!left) {
        add_id(s->sink, text, size, id);
        return;
    }
    add_piece(s, text, left, depth + 1);
    add_piece(s, text + left, size - left, depth + 1);
}

/* Adds the ids of the symbols that have been gathered; none is left. False where memory ends, as below. */
static bool split_gathered(merging *s) {
    if (s->count > 1) {
        /* One for each two neighbours at first, two more for each merge. */
        if (!grown(&s->heap, sizeof *s->heap, &s->heap_room, (size_t)s->count * 3)) return false;
        merge_all(s);
    }
    for (int32_t i = s->count ? 0 : -1; i >= 0; i = s->symbols[i].after) {
        const symbol *one = &s->symbols[i];
        if (s->left_sizes) {
            add_piece(s, s->text + one->start, one->size, 0);
        } else {
            int32_t id = trie_piece(&s->model->known, one->node);
            add_id(s->sink, s->text + one->start, one->size, id < 0 ? s->model->unknown : id);
        }
    }
    s->count = 0;
    return true;
}

static bool merge_text(merging *s, uint32_t size) {
    const trie *t = &s->model->known;
    bool whole = s->model->whole_lines;
    for (uint32_t at = 0, length; at < size; at += length) {
        const char *text = s->text + at;
        length = (uint32_t)symbol_size(s->model, text, size - at);
        bool is_frozen = length > 0;
        if (!is_frozen) length = char_size(text, size - at);
        if (!whole && (is_frozen || begins_word(text, size - at)) && !split_gathered(s)) return false;
        int32_t i = s->count++;
        if (!grown(&s->symbols, sizeof *s->symbols, &s->symbol_room, (size_t)s->count)) return false;
        if (i) s->symbols[i - 1].after = i;
        s->symbols[i] = (symbol){at, length, trie_walk(t, t->root, text, length), i - 1, -1, is_frozen};
        if (!whole && is_frozen && !split_gathered(s)) return false;
    }
    return split_gathered(s);
}

static bool split_bpe(const char *text, uint32_t size, id_sink *sink) {
    const subwords *model = sink->model;
    merging s = {.model = model, .text = text, .sink = sink, .symbol_room = 64, .heap_room = 192};
    s.symbols = malloc(s.symbol_room * sizeof *s.symbols);
    s.heap = malloc(s.heap_room * sizeof *s.heap);
    if (model->has_unused) s.left_sizes = calloc((size_t)model->spec.count, sizeof *s.left_sizes);
    bool fine = s.symbols && s.heap && (s.left_sizes || !model->has_unused) && merge_text(&s, size);
    free(s.symbols), free(s.heap), free(s.left_sizes);
    return fine;
}

/* The most probable way to split a text by a unigram language model (Kudo, 2018): Viterbi's algorithm over the places
   of the text, equal to EncodeOptimized of SentencePiece down to the rounding of its sums. */

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

static void find_ways(const subwords *model, const char *text, uint32_t size, arrival *at) {
    const trie *t = &model->known;
    uint32_t frontier = 0, length;
    for (uint32_t start = 0; start < size; start += length) {
        float score = at[start].score;
        if (score < -FARTHEST || score > FARTHEST) {
            for (uint32_t i = start; i <= frontier; i++)
                if (i == start || at[i].start >= 0) at[i].score -= score;
            score = at[start].score;
        }
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

static bool split_unigram(const char *text, uint32_t size, id_sink *sink) {
    arrival *at = malloc(((size_t)size + 1) * sizeof *at); /* no overflow, see LARGEST_TEXT */
    if (!at) return false;
    for (uint32_t i = 0; i <= size; i++) at[i] = (arrival){-1, 0.0f, -1};
    at[0].score = sink->state.score;
    find_ways(sink->model, text, size, at);
    sink->state.score = at[size].score;
    /* On the way back the end of each piece is noted where it begins. */
    int32_t end = (int32_t)size, id = at[size].id;
    for (int32_t start = at[size].start; start >= 0;) {
        int32_t before = at[start].start, id_before = at[start].id;
        at[start] = (arrival){id, 0.0f, end};
        end = start, start = before, id = id_before;
    }
    for (uint32_t start = 0; start < size; start = (uint32_t)at[start].start)
        add_id(sink, text + start, (uint32_t)at[start].start - start, at[start].id);
    free(at);
    return true;
}

static int64_t encode(const subwords *model, const char *text, size_t size, int32_t **ids, size_t *room, token_span **spans,
                      size_t *span_room, word_state *state) {
    char *normal = NULL;
    size_t normal_room = 0;
    origin_list origins = {0};
    int64_t count = normalize(model, text, size, &normal, &normal_room, spans ? &origins : NULL);
    if (count > 0) {
        bool fine = grown(ids, sizeof **ids, room, (size_t)count);
        fine = fine && (!spans || grown(spans, sizeof **spans, span_room, (size_t)count));
        id_sink sink = {.model = model, .ids = *ids, .whole = normal, .spans = spans ? *spans : NULL};
        if (state) sink.state = *state;
        fine = fine && (model->spec.model_type == BPE ? split_bpe : split_unigram)(normal, (uint32_t)count, &sink);
        count = fine ? sink.count : -1;
        if (state) *state = sink.state;
    }
    for (int64_t i = 0; spans && i < count; i++)
        (*spans)[i] = (token_span){origins.all[(*spans)[i].begin], origins.all[(*spans)[i].end]};
    free(normal);
    free(origins.all);
    return count;
}

/* A text as it is read, normalised, with spaces; without those at its ends. */
static int64_t read_text(const subwords *model, const char *text, size_t size, char **to, size_t *room, size_t *begin,
                         origin_list *origins) {
    int64_t count = normalize(model, text, size, to, room, origins);
    size_t used = 0;
    for (int64_t i = 0; i < count; used++) {
        bool is_space = begins_word(*to + i, (size_t)(count - i));
        (*to)[used] = is_space ? ' ' : (*to)[i];
        if (origins) origins->all[used] = origins->all[i];
        i += is_space ? WORD_BEGIN_SIZE : 1;
    }
    if (origins && count > 0) origins->all[used] = origins->all[count];
    for (*begin = 0; *begin < used && (*to)[*begin] == ' ';) ++*begin;
    while (used > *begin && (*to)[used - 1] == ' ') used--;
    return count < 0 ? -1 : (int64_t)(used - *begin);
}

int64_t subwords_read(const subwords *model, const char *text, size_t size, char **to, size_t *room) {
    size_t begin = 0;
    const int64_t count = read_text(model, text, size, to, room, &begin, NULL);
    if (count > 0) memmove(*to, *to + begin, (size_t)count);
    return count;
}

/* `inside`: the text does not begin its line. */
static int64_t encode_marked(const subwords *model, const char *text, size_t size, bool inside, int32_t **ids, size_t *room,
                             token_span **spans, size_t *span_room, word_state *state) {
    char *plain = NULL, *marked = NULL;
    size_t plain_room = 0, marked_room = 0, begin = 0;
    origin_list origins = {0};
    case_origins marks = {0};
    int64_t count = read_text(model, text, size, &plain, &plain_room, &begin, spans ? &origins : NULL);
    if (count >= 0)
        count = case_mark(model->cases, plain ? plain + begin : "", (size_t)count, inside, &marked, &marked_room,
                          spans ? &marks : NULL);
    const int64_t marked_size = count;
    if (count >= 0) count = encode(model, marked ? marked : "", (size_t)count, ids, room, spans, span_room, state);
    for (int64_t i = 0; spans && i < count; i++) {
        token_span *own = &(*spans)[i];
        *own = (token_span){origins.all[begin + marks.all[own->begin]], origins.all[begin + marks.all[own->end]]};
    }
    /* Before a mark inside a line there is no space of its own. */
    if (inside && count > 0 && case_begins_with_mark(marked, (size_t)marked_size)) {
        const piece *first = &model->pieces[(*ids)[0]];
        if (first->size == WORD_BEGIN_SIZE && begins_word(model->bytes + first->offset, first->size))
            memmove(*ids, *ids + 1, (size_t)--count * sizeof **ids);
    }
    free(plain), free(marked), free(origins.all), free(marks.all);
    return count;
}

int64_t subwords_encode_spans(const subwords *model, const char *text, size_t size, int32_t **ids, size_t *room,
                              token_span **spans, size_t *span_room) {
    if (model->cases) return encode_marked(model, text, size, false, ids, room, spans, span_room, NULL);
    return encode(model, text, size, ids, room, spans, span_room, NULL);
}

int64_t subwords_encode(const subwords *model, const char *text, size_t size, int32_t **ids, size_t *room) {
    return subwords_encode_spans(model, text, size, ids, room, NULL, NULL);
}

bool subwords_by_words(const subwords *model) {
    const model_spec *spec = &model->spec;
    return spec->dummy_space && spec->remove_extra_spaces && spec->escape_spaces && !spec->space_is_suffix && !model->whole_lines;
}

int64_t subwords_encode_word(const subwords *model, const char *text, size_t size, bool inside, word_state *state, int32_t **ids,
                             size_t *room) {
    if (model->cases) return encode_marked(model, text, size, inside, ids, room, NULL, NULL, state);
    return encode(model, text, size, ids, room, NULL, NULL, state);
}

int64_t subwords_spelled(const subwords *model, const char *text, size_t size, char **to, size_t *room) {
    if (model->cases) return case_lower(text, size, to, room);
    if (!grown(to, 1, room, size + 1)) return -1;
    memcpy(*to, text, size);
    return (int64_t)size;
}

/* --- the text of ids: pieces one after the other, U+2581 as a space, without the space before the first word; bytes
   joined to characters. Equal to DecodeOptimized of SentencePiece --- */

typedef struct {
    const subwords *model;
    char **text;
    size_t *room, size;
} writer;

static bool write_bytes(writer *w, span from) {
    if (!from.size) return true;
    if (from.size > SIZE_MAX / 4 - w->size || !grown(w->text, 1, w->room, w->size + from.size)) return false;
    memcpy(*w->text + w->size, from.bytes, from.size);
    w->size += from.size;
    return true;
}

/* The same with a space for each U+2581. */
static bool write_spaced(writer *w, span from) {
    while (from.size) {
        bool is_space = begins_word(from.bytes, from.size);
        size_t length = is_space ? WORD_BEGIN_SIZE : 1;
        while (!is_space && length < from.size && !begins_word(from.bytes + length, from.size - length)) length++;
        if (!write_bytes(w, is_space ? (span){" ", 1} : (span){from.bytes, length})) return false;
        from.bytes += length, from.size -= length;
    }
    return true;
}

static const piece *piece_of(const subwords *model, int32_t id) {
    return id < 0 || id >= model->spec.count ? NULL : &model->pieces[id];
}

/* Writes the characters of a run of byte pieces, U+FFFD for each that is of none; how many ids it has, -1 where memory
   ends. */
static int64_t write_byte_run(writer *w, const int32_t *ids, int64_t count, size_t *ends) {
    char bytes[4];
    uint32_t size = 0;
    int64_t next = 0;
    for (;;) {
        const piece *p;
        while (size < 4 && next < count && (p = piece_of(w->model, ids[next])) && p->type == BYTE)
            bytes[size++] = (char)p->byte, next++;
        if (!size) return next;
        uint32_t length = valid_char_size(bytes, size);
        int64_t first = next - size;
        for (uint32_t i = 0; ends && i < length; i++) ends[first + i] = w->size;
        if (!write_bytes(w, length ? (span){bytes, length} : (span){REPLACEMENT, 3})) return -1;
        if (!length) length = 1;
        if (ends) ends[first + length - 1] = w->size; /* the last one has the whole character */
        size -= length;
        memmove(bytes, bytes + length, size);
    }
}

static int64_t decode(const subwords *model, const int32_t *ids, int64_t count, char **text, size_t *room, size_t *ends) {
    const model_spec *spec = &model->spec;
    writer w = {.model = model, .text = text, .room = room};
    bool at_begin = true;
    for (int64_t i = 0; i < count;) {
        int64_t run = write_byte_run(&w, ids + i, count - i, ends ? ends + i : NULL);
        if (run < 0) return -1;
        i += run;
        if (w.size) at_begin = false;
        if (i == count) break;
        const piece *p = piece_of(model, ids[i++]);
        if (ends) ends[i - 1] = w.size;
        if (p && p->type == CONTROL) continue;
        span part = p ? (span){model->bytes + p->offset, p->size} : (span){NULL, 0};
        bool lost_space = false;
        if (at_begin && (spec->dummy_space || spec->remove_extra_spaces) && begins_word(part.bytes, part.size)) {
            part.bytes += WORD_BEGIN_SIZE, part.size -= WORD_BEGIN_SIZE;
            lost_space = !spec->remove_extra_spaces; /* else all spaces before the first word are lost */
        }
        bool is_unknown = !p || p->type == UNKNOWN;
        if (!(is_unknown ? write_bytes(&w, spec->unknown_text) : write_spaced(&w, part))) return -1;
        if (lost_space || w.size) at_begin = false;
        if (ends) ends[i - 1] = w.size;
    }
    return (int64_t)w.size;
}

int64_t subwords_decode_ends(const subwords *model, const int32_t *ids, int64_t count, char **text, size_t *room,
                             size_t *ends) {
    char *marked = NULL;
    size_t marked_room = 0, *places = NULL;
    if (!model->cases) return decode(model, ids, count, text, room, ends);
    int64_t size = decode(model, ids, count, &marked, &marked_room, ends);
    if (size >= 0 && ends && !(places = malloc(((size_t)size + 1) * sizeof *places))) size = -1;
    if (size >= 0) size = case_unmark(model->cases, marked ? marked : "", (size_t)size, text, room, places);
    for (int64_t i = 0; places && size >= 0 && i < count; i++) ends[i] = places[ends[i]];
    free(marked), free(places);
    return size;
}

int64_t subwords_decode(const subwords *model, const int32_t *ids, int64_t count, char **text, size_t *room) {
    return subwords_decode_ends(model, ids, count, text, room, NULL);
}

int64_t subwords_added(const subwords *model, int32_t id, char **text, size_t *room) {
    writer w = {.model = model, .text = text, .room = room};
    const piece *p = piece_of(model, id);
    if (!p || p->type == CONTROL || p->type == UNUSED || subwords_is_mark(model, id)) return 0;
    char byte = p->type == BYTE && (p->byte == '\n' || p->byte == '\r') ? ' ' : (char)p->byte;
    bool fine = p->type == BYTE      ? write_bytes(&w, (span){&byte, 1})
                : p->type == UNKNOWN ? write_bytes(&w, model->spec.unknown_text)
                                     : write_spaced(&w, (span){model->bytes + p->offset, p->size});
    return fine ? (int64_t)w.size : -1;
}

bool subwords_is_mark(const subwords *model, int32_t id) {
    const piece *p = piece_of(model, id);
    return p && model->cases && case_is_mark(model->bytes + p->offset, p->size);
}

bool subwords_is_byte(const subwords *model, int32_t id) {
    const piece *p = piece_of(model, id);
    return p && p->type == BYTE;
}

/* --- models --- */

static size_t symbol_size_of_model(const void *model, const char *text, size_t size) {
    return symbol_size(model, text, size);
}

static const char *open_model(subwords *model, span file) {
    const char *problem = read_spec(file, &model->spec);
    if (problem) return problem;
    bool is_bpe = model->spec.model_type == BPE;
    model->pieces = malloc((size_t)model->spec.count * sizeof *model->pieces);
    if (!model->pieces) return MEMORY_ENDS;
    if ((problem = read_pieces(file, model->pieces)) || (problem = check_pieces(model))) return problem;
    if (is_bpe) prepare_bpe(model);
    else problem = prepare_unigram(model);
    if (problem || (problem = open_charsmap(model))) return problem;
    unsigned used = 1u << NORMAL | 1u << USER_DEFINED | (is_bpe ? 1u << UNUSED : 0);
    if ((problem = build_trie(&model->known, model, used))) return problem;
    if ((problem = build_trie(&model->symbols, model, 1u << USER_DEFINED))) return problem;
    const span cases = model->spec.cases;
    if (cases.size && !(model->cases = case_open(cases.bytes, cases.size, symbol_size_of_model, model, &problem))) return problem;
    return model->known.entries ? NULL : "a SentencePiece model without pieces to split text into";
}

subwords *subwords_open(const void *bytes, size_t size, const char **problem) {
    subwords *model = calloc(1, sizeof *model);
    *problem = MEMORY_ENDS;
    if (!model) return NULL;
    model->bytes = bytes;
    if (!(*problem = open_model(model, (span){bytes, size}))) return model;
    subwords_close(model);
    return NULL;
}

void subwords_close(subwords *model) {
    if (!model) return;
    case_close(model->cases);
    free(model->pieces), free(model->known.entries), free(model->symbols.entries);
    free(model);
}

int32_t subwords_size(const subwords *model) { return model->spec.count; }

const char *subwords_piece(const subwords *model, int32_t id, size_t *size) {
    const piece *p = piece_of(model, id);
    if (!p) return NULL;
    *size = p->size;
    return model->bytes + p->offset;
}

const char *subwords_word(const subwords *model, int32_t id, size_t *size) {
    const piece *p = piece_of(model, id);
    *size = 0;
    if (!p || (p->type != NORMAL && p->type != USER_DEFINED)) return NULL;
    const char *text = model->bytes + p->offset;
    size_t space = begins_word(text, p->size) ? WORD_BEGIN_SIZE : 0;
    return *size = p->size - space, text + space;
}
