/* Text as a model splits it: characters replaced by the model's map, several spaces made one, a space put before the
   text, and spaces written as U+2581. After Kudo and Richardson (2018), section 3.2; equal to the Normalizer of
   SentencePiece.

   The map is a double array (Aoe, 1989) in the form of darts-clone: from a unit with offset o, byte b leads to the unit
   at its place ^ o ^ b, if that has b as its label; the value of a unit with a leaf is at its place ^ o. */

#include "subwords_internal.h"

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

/* Whether no text is replaced by a long one; the last byte of the strings is 0. */
static bool are_short(span strings) {
    size_t length = 0;
    for (size_t i = 0; i < strings.size && length <= LONGEST_REPLACEMENT; i++)
        length = strings.bytes[i] ? length + 1 : 0;
    return !length;
}

int subwords_open_charsmap(subwords *model, const char **problem) {
    span map = model->spec.charsmap;
    if (!map.size) return 0;
    *problem = "a SentencePiece model with a damaged map of characters";
    if (map.size <= 4) return -1;
    size_t size = little_u32(map.bytes);
    if (size < 1024 || size % 1024 || size >= map.size - 4 || map.bytes[map.size - 1]) return -1;
    model->units = (span){map.bytes + 4, size};
    model->strings = (span){map.bytes + 4 + size, map.size - 4 - size};
    if (!is_sound(model->units, model->strings.size)) return -1;
    *problem = "a SentencePiece model whose map of characters has a text of more than 128 bytes";
    return are_short(model->strings) ? 0 : -1;
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

typedef struct {
    char *text;
    size_t size;
    span space;
} writer;

static void write_escaped(writer *w, span from) {
    for (size_t i = 0; i < from.size; i++) {
        if (from.bytes[i] == ' ') {
            memcpy(w->text + w->size, w->space.bytes, w->space.size);
            w->size += w->space.size;
        } else {
            w->text[w->size++] = from.bytes[i];
        }
    }
}

static bool ends_with_space(const writer *w) {
    size_t size = w->space.size;
    return w->size >= size && memcmp(w->text + w->size - size, w->space.bytes, size) == 0;
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

int64_t subwords_normalize(const subwords *model, const char *text, size_t size, char **to, size_t *room) {
    const model_spec *spec = &model->spec;
    writer w = {.space = spec->escape_spaces ? (span){WORD_BEGIN, WORD_BEGIN_SIZE} : (span){" ", 1}};
    const span dummy = {" ", spec->dummy_space ? 1 : 0};
    size_t at = spec->remove_extra_spaces ? without_first_spaces(model, text, size) : 0;
    bool after_space = spec->remove_extra_spaces;
    if (at == size) return 0;
    if (size > LARGEST_TEXT || make_room((void **)to, room, size + size / 2 + 16, 1)) return -1;
    w.text = *to;
    if (!spec->space_is_suffix) write_escaped(&w, dummy);
    while (at < size) {
        span part;
        at += normalize_prefix(model, text + at, size - at, &part);
        while (after_space && part.size && *part.bytes == ' ') part.bytes++, part.size--;
        if (!part.size) continue;
        if (part.size > LARGEST_TEXT / WORD_BEGIN_SIZE) return -1;
        size_t needed = w.size + WORD_BEGIN_SIZE * (part.size + 1); /* with a space after it */
        if (needed > LARGEST_TEXT || make_room((void **)to, room, needed, 1)) return -1;
        w.text = *to;
        write_escaped(&w, part);
        after_space = spec->remove_extra_spaces && part.bytes[part.size - 1] == ' ';
    }
    while (spec->remove_extra_spaces && ends_with_space(&w)) w.size -= w.space.size;
    if (spec->space_is_suffix) write_escaped(&w, dummy);
    return (int64_t)w.size;
}
