/* The text of ids (Kudo and Richardson, 2018): pieces one after the other, U+2581 as a space, without the space before
   the first word; bytes joined to characters. Equal to DecodeOptimized of SentencePiece. */

#include "subwords_internal.h"

typedef struct {
    const subwords *model;
    char **text;
    size_t *room, size;
} writer;

static int write_bytes(writer *w, span from) {
    if (!from.size) return 0;
    if (from.size > SIZE_MAX / 4 - w->size || make_room((void **)w->text, w->room, w->size + from.size, 1)) return -1;
    memcpy(*w->text + w->size, from.bytes, from.size);
    w->size += from.size;
    return 0;
}

/* The same with a space for each U+2581. */
static int write_spaced(writer *w, span from) {
    while (from.size) {
        bool is_space = begins_word(from.bytes, from.size);
        size_t length = is_space ? WORD_BEGIN_SIZE : 1;
        while (!is_space && length < from.size && !begins_word(from.bytes + length, from.size - length)) length++;
        if (write_bytes(w, is_space ? (span){" ", 1} : (span){from.bytes, length})) return -1;
        from.bytes += length, from.size -= length;
    }
    return 0;
}

static const piece *piece_of(const subwords *model, int32_t id) {
    return id < 0 || id >= model->spec.count ? NULL : &model->pieces[id];
}

/* Writes the characters of a run of byte pieces, U+FFFD for each that is of none; *run is how many ids it has. */
static int write_byte_run(writer *w, const int32_t *ids, int64_t count, int64_t *run) {
    char bytes[4];
    uint32_t size = 0;
    int64_t next = 0;
    for (;;) {
        const piece *p;
        while (size < 4 && next < count && (p = piece_of(w->model, ids[next])) && p->type == BYTE) {
            bytes[size++] = (char)p->byte, next++;
        }
        if (!size) break;
        uint32_t length = valid_char_size(bytes, size);
        if (write_bytes(w, length ? (span){bytes, length} : (span){REPLACEMENT, 3})) return -1;
        if (!length) length = 1;
        size -= length;
        memmove(bytes, bytes + length, size);
    }
    *run = next;
    return 0;
}

int64_t subwords_decode(const subwords *model, const int32_t *ids, int64_t count, char **text, size_t *room) {
    const model_spec *spec = &model->spec;
    const span unknown = spec->unknown_text;
    writer w = {.model = model, .text = text, .room = room};
    bool at_begin = true;
    for (int64_t i = 0; i < count;) {
        int64_t run;
        if (write_byte_run(&w, ids + i, count - i, &run)) return -1;
        i += run;
        if (w.size) at_begin = false;
        if (i == count) break;
        const piece *p = piece_of(model, ids[i++]);
        if (p && p->type == CONTROL) continue;
        span part = p ? (span){model->bytes + p->offset, p->size} : (span){NULL, 0};
        bool lost_space = false;
        if (at_begin && (spec->dummy_space || spec->remove_extra_spaces) && begins_word(part.bytes, part.size)) {
            part.bytes += WORD_BEGIN_SIZE, part.size -= WORD_BEGIN_SIZE;
            lost_space = !spec->remove_extra_spaces; /* else all spaces before the first word are lost */
        }
        bool is_unknown = !p || p->type == UNKNOWN;
        if (is_unknown ? write_bytes(&w, unknown) : write_spaced(&w, part)) return -1;
        if (lost_space || w.size) at_begin = false;
    }
    return (int64_t)w.size;
}
