/* libFuzzer: any bytes as a model file, whose size and checksum are made right; what opens translates, a short line with the
   options of the file. Mutations change one or two sections and put the file together again, so that most inputs get
   beyond the table. */

#define _POSIX_C_SOURCE 200809L

#include <stdbool.h>

#include "engine_use.h"
#include "fuzz_counts.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *one, size_t one_size, const uint8_t *other, size_t other_size,
                                 uint8_t *to, size_t most, unsigned seed);

enum { SECTIONS = 11, TEXTS = 3 };

static const char *const texts[TEXTS] = {"一丁 丂", "", "七. 丄\xff一 x 丅丆 万丈三 上 下"};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char problem[ROOM] = "";
    size_t sizes[TEXTS], length;
    content file = room_for(size);
    if (size) memcpy(file.bytes, data, size);
    repair(file);
    nmt_model *m = nmt_open_memory(file.bytes, file.size, "plain", problem, ROOM);
    if (m) {
        count_taken();
        for (int i = 0; i < TEXTS; i++) sizes[i] = strlen(texts[i]);
        nmt_card(m, 0, &length), nmt_piece(m, 0, 0, &length), nmt_piece(m, 1, INT32_MAX, &length);
        nmt_options o = nmt_defaults(m); /* of one short line, as an application would that trusts the file */
        nmt_results *r = nmt_translate(m, texts, sizes, 1, &o, problem, ROOM);
        if (!r) check_line(problem);
        else look(r, 1);
        nmt_free(r);
        if (use(m, texts, sizes, TEXTS, problem)) check_line(problem);
    } else {
        check_line(problem);
    }
    nmt_close(m);
    free(file.bytes);
    return 0;
}

/* --- mutation --- */

typedef struct {
    unsigned char entry[8]; /* name and 0 */
    content bytes;
} part;

/* The sections of a file; 0 where its table is damaged. Their bytes are copies. */
static size_t take_apart(const uint8_t *data, size_t size, part parts[SECTIONS]) {
    size_t count = size < HEADER ? 0 : (size_t)number_at(data + 12, 4), found = 0;
    if (count > SECTIONS || HEADER + count * ENTRY > size) return 0;
    for (; found < count; found++) {
        const uint8_t *entry = data + HEADER + found * ENTRY;
        uint64_t offset = number_at(entry + 8, 8), length = number_at(entry + 16, 8);
        if (offset > size || length > size - offset) break;
        memcpy(parts[found].entry, entry, 8);
        parts[found].bytes = room_for((size_t)length);
        memcpy(parts[found].bytes.bytes, data + offset, (size_t)length);
    }
    return found;
}

/* The file of these sections, which are freed; 0 where it has more than `most` bytes. */
static size_t put_together(const uint8_t first[16], part *parts, size_t count, uint8_t *to, size_t most) {
    size_t at = HEADER + count * ENTRY;
    for (size_t i = 0; i < count; i++) at = (at + 63) / 64 * 64 + parts[i].bytes.size;
    size_t size = at <= most ? at : 0;
    if (size) memset(to, 0, size), memcpy(to, first, 16);
    at = HEADER + count * ENTRY;
    for (size_t i = 0; i < count; i++) {
        at = (at + 63) / 64 * 64;
        if (size) {
            uint8_t *entry = to + HEADER + i * ENTRY;
            memcpy(entry, parts[i].entry, 8);
            set_number(entry + 8, at, 8), set_number(entry + 16, parts[i].bytes.size, 8);
            memcpy(to + at, parts[i].bytes.bytes, parts[i].bytes.size);
        }
        at += parts[i].bytes.size;
        free(parts[i].bytes.bytes);
    }
    if (size) set_number(to + 12, count, 4), repair((content){to, size});
    return size;
}

/* Bytes of an item of a section; 1 where it has none. */
static size_t item_of(const part *p) {
    static const struct { char name[5]; size_t item; } KNOWN[] = {{"SETT", 4}, {"TENS", 40}, {"REGS", 8}, {"STAT", 12},
                                                                  {"ENCO", 64}, {"STEP", 64}, {"LIST", 4}};
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (!memcmp(p->entry, KNOWN[i].name, 4)) return KNOWN[i].item;
    return 1;
}

/* Copies an item over another or behind all, changes a number of one, or lets libFuzzer change some bytes. Values of
   tensors keep their number. */
static void mutate_part(part *p, size_t spare, uint64_t *state) {
    static const uint32_t ODD[] = {0, 1, 2, 3, 16, 17, 64, 1000, 100000, 1000000, 1u << 20, 0x7fffffffu, 0x80000000u,
                                   0xffffffffu, 0x7f800000u};
    bool values = !memcmp(p->entry, "DATA", 4);
    size_t item = item_of(p), size = p->bytes.size, count = size / item, kind = drawn_from(state, 8);
    content more = room_for(size + spare);
    if (size) memcpy(more.bytes, p->bytes.bytes, size);
    free(p->bytes.bytes);
    more.size = size;
    if (item > 1 && count && kind < 7) {
        uint8_t *one = more.bytes + drawn_from(state, count) * item;
        uint8_t *other = more.bytes + drawn_from(state, count) * item;
        size_t place = drawn_from(state, item / 4) * 4;
        if (kind == 0 && spare >= item) memcpy(more.bytes + size, one, item), more.size += item;
        else if (kind == 1) memmove(other, one, item);
        else if (kind < 5) set_number(one + place, number_at(other + place, 4), 4);
        else if (kind == 5) set_number(one + place, ODD[drawn_from(state, sizeof ODD / sizeof *ODD)], 4);
        else set_number(one + place, number_at(one + place, 4) + drawn_from(state, 5) - 2, 4);
    } else if (values && size) {
        size_t begin = drawn_from(state, size), window = size - begin < 64 ? size - begin : 64;
        LLVMFuzzerMutate(more.bytes + begin, window, window);
    } else {
        more.size = LLVMFuzzerMutate(more.bytes, size, size + spare);
    }
    p->bytes = more;
}

/* SentencePiece models, which fuzz_subwords.c is for, are rarely taken when they have changed. */
static part *chosen_part(part *parts, size_t count, uint64_t *state) {
    part *chosen = &parts[drawn_from(state, count)];
    for (int i = 0; i < 3 && !memcmp(chosen->entry, "SPM", 3); i++) chosen = &parts[drawn_from(state, count)];
    return chosen;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    part parts[SECTIONS];
    uint64_t state = 0x9E3779B97F4A7C15u + seed;
    uint8_t first[16];
    drawn_from(&state, 2);
    size_t count = drawn_from(&state, 50) ? take_apart(data, size, parts) : 0; /* else the table itself is changed */
    if (!count) return LLVMFuzzerMutate(data, size, most);
    memcpy(first, data, 16);
    size_t spare = most > size ? most - size : 0;
    for (size_t i = 0, times = 1 + drawn_from(&state, 2); i < times; i++)
        mutate_part(chosen_part(parts, count, &state), (spare < 1 << 16 ? spare : 1 << 16) / 8, &state);
    size_t made = put_together(first, parts, count, data, most);
    return made ? made : LLVMFuzzerMutate(data, size, most);
}

/* The first file with a section of the other in place of its own. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *one, size_t one_size, const uint8_t *other, size_t other_size,
                                 uint8_t *to, size_t most, unsigned seed) {
    part parts[SECTIONS], others[SECTIONS];
    uint64_t state = 0x9E3779B97F4A7C15u + seed;
    size_t count = take_apart(one, one_size, parts), from = take_apart(other, other_size, others);
    drawn_from(&state, 2);
    if (count && from) {
        part *chosen = &others[drawn_from(&state, from)];
        for (size_t i = 0; i < count; i++)
            if (!memcmp(parts[i].entry, chosen->entry, 4)) {
                content own = parts[i].bytes;
                parts[i].bytes = chosen->bytes, chosen->bytes = own;
            }
    }
    for (size_t i = 0; i < from; i++) free(others[i].bytes.bytes);
    return count ? put_together(one, parts, count, to, most) : 0;
}
