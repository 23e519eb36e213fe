/* Reads a model file that lies in memory. Nothing of it is used before it has been checked, so that the interpreter
   need not look again: sections and tensors lie within the file, weights are finite, and each instruction reads and
   writes within its registers. */

#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "model files are read where they lie: a machine with little-endian numbers is needed"
#endif

enum { ENTRY = 24, VERSION = 1, LARGEST_COUNT = 1 << 20 };
enum { LONGEST_OFFSET = 1000, LARGEST_SEARCH = 100000 }; /* a file asks for; a caller may ask for more */
enum { MOST_INT8 = 1 << 17 }; /* columns, so that sums of products stay within an int32 */

static const unsigned char MAGIC[8] = {0x89, 'N', 'M', 'T', '\r', '\n', 0x1a, '\n'};

#define NAME(a, b, c, d) ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

enum { SETT, TENS, REGS, STAT, ENCO, STEP_CODE, DATA, SPMS, SPMT, LIST, META, OPTS, SECTIONS };

static const struct {
    uint32_t name;
    uint32_t item; /* its size is a multiple of this */
    bool needed;
} KNOWN[SECTIONS] = {
    [SETT] = {NAME('S', 'E', 'T', 'T'), sizeof(settings), true},
    [TENS] = {NAME('T', 'E', 'N', 'S'), 40, true},
    [REGS] = {NAME('R', 'E', 'G', 'S'), sizeof(register_kind), true},
    [STAT] = {NAME('S', 'T', 'A', 'T'), sizeof(state_kind), true},
    [ENCO] = {NAME('E', 'N', 'C', 'O'), sizeof(instruction), true},
    [STEP_CODE] = {NAME('S', 'T', 'E', 'P'), sizeof(instruction), true},
    [DATA] = {NAME('D', 'A', 'T', 'A'), 1, true},
    [SPMS] = {NAME('S', 'P', 'M', 'S'), 1, true},
    [SPMT] = {NAME('S', 'P', 'M', 'T'), 1, false},
    [LIST] = {NAME('L', 'I', 'S', 'T'), 4, false},
    [META] = {NAME('M', 'E', 'T', 'A'), 1, false},
    [OPTS] = {NAME('O', 'P', 'T', 'S'), sizeof(stored_option), false},
};

static uint32_t u32_at(const uint8_t *p) {
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static uint64_t u64_at(const uint8_t *p) {
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* CRC-32 as zlib has it, eight bytes at a time. */
static uint32_t crc32_of(const uint8_t *p, size_t n) {
    static const uint32_t POLYNOMIAL = 0xedb88320u;
    uint32_t table[8][256], crc = 0xffffffffu;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t x = i;
        for (int k = 0; k < 8; k++) x = x >> 1 ^ (x & 1 ? POLYNOMIAL : 0);
        table[0][i] = x;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++) table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 255];
    for (; n >= 8; n -= 8, p += 8) {
        uint32_t low = u32_at(p) ^ crc, high = u32_at(p + 4);
        crc = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^ table[4][low >> 24] ^
              table[3][high & 255] ^ table[2][high >> 8 & 255] ^ table[1][high >> 16 & 255] ^ table[0][high >> 24];
    }
    for (; n; n--, p++) crc = crc >> 8 ^ table[0][(crc ^ *p) & 255];
    return ~crc;
}

#define REFUSE(...) return snprintf(problem, room, __VA_ARGS__), false

static bool all_zero(const uint8_t *bytes, uint64_t from, uint64_t to) {
    while (from < to && !bytes[from]) from++;
    return from >= to;
}

bool model_begins(const void *bytes, size_t size, char *problem, size_t room) {
    const uint8_t *header = bytes;
    if (size < sizeof MAGIC || memcmp(header, MAGIC, sizeof MAGIC)) REFUSE("not a model file of nmt's engine");
    if (size < MODEL_HEADER) REFUSE("truncated: %zu bytes", size);
    uint32_t version = u32_at(header + 8);
    uint64_t whole = u64_at(header + 16);
    if (version != VERSION)
        REFUSE("format %u, which this version of the engine does not know; it reads format %d", version, VERSION);
    if (whole != size) REFUSE("truncated or extended: %zu bytes instead of %llu", size, (unsigned long long)whole);
    if (!all_zero(header, 28, MODEL_HEADER)) REFUSE("damaged: its header");
    return true;
}

/* The sections, each where the table says. */
static bool read_sections(const uint8_t *bytes, size_t size, span found[SECTIONS], char *problem, size_t room) {
    if (!model_begins(bytes, size, problem, room)) return false;
    uint32_t count = u32_at(bytes + 12);
    if (u32_at(bytes + 24) != crc32_of(bytes + MODEL_HEADER, size - MODEL_HEADER))
        REFUSE("damaged: its checksum does not match its content");
    if (count > SECTIONS || (uint64_t)MODEL_HEADER + (uint64_t)count * ENTRY > size)
        REFUSE("inconsistent: %u sections", count);
    uint64_t end = MODEL_HEADER + (uint64_t)count * ENTRY;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *entry = bytes + MODEL_HEADER + (size_t)i * ENTRY;
        uint32_t name = u32_at(entry);
        uint64_t offset = u64_at(entry + 8), length = u64_at(entry + 16);
        int which = 0;
        while (which < SECTIONS && KNOWN[which].name != name) which++;
        if (which == SECTIONS || found[which].bytes) REFUSE("inconsistent: section %u is unknown or there twice", i);
        if (u32_at(entry + 4) || offset % 64 || offset < end || offset > size || length > size - offset ||
            length % KNOWN[which].item || !all_zero(bytes, end, offset))
            REFUSE("inconsistent: section %.4s does not lie within the file", (const char *)entry);
        found[which] = (span){bytes + offset, (size_t)length};
        end = offset + length;
    }
    if (end != size) REFUSE("inconsistent: there is more than the %u sections of its table", count);
    for (int i = 0; i < SECTIONS; i++)
        if (KNOWN[i].needed && !found[i].bytes) {
            const char name[5] = {(char)KNOWN[i].name, (char)(KNOWN[i].name >> 8), (char)(KNOWN[i].name >> 16),
                                  (char)(KNOWN[i].name >> 24), 0};
            REFUSE("inconsistent: section %s is missing", name);
        }
    return true;
}

/* Whether `count` items of `item` bytes lie at a place of the data that is a multiple of 64. */
static const void *data_at(span data, uint64_t offset, uint64_t count, uint64_t item) {
    if (offset % 64 || offset > data.size || count > (data.size - offset) / item) return NULL;
    return (const uint8_t *)data.bytes + offset;
}

static const uint64_t F32_EXPONENTS = 0x7f8000007f800000u, BF16_EXPONENTS = 0x7f807f807f807f80u; /* in eight bytes */

/* Whether no number is NaN or infinity, whose exponents are all ones: one more there gets into the sign. */
static bool all_finite(const void *numbers, uint64_t size, uint64_t exponents) {
    const uint64_t lowest = exponents & ~(exponents << 1), signs = exponents << 1 & ~exponents;
    const uint8_t *at = numbers, *end = at + size;
    uint64_t found = 0, last = 0;
    for (; end - at >= 8; at += 8) found |= (u64_at(at) & exponents) + lowest;
    memcpy(&last, at, (size_t)(end - at));
    return !((found | ((last & exponents) + lowest)) & signs);
}

/* Takes the bytes of a tensor from those of the data that are `left`, so that checking them all takes no longer than
   there are. Null, or what is wrong with it, behind its number. */
static const char *read_tensor(const uint8_t *entry, span data, uint64_t *left, tensor *to) {
    static const uint32_t group[] = {1, 1, 2, 4}, bytes[] = {4, 4, 2, 1};
    uint32_t type = u32_at(entry), rows = u32_at(entry + 4), columns = u32_at(entry + 8);
    if (type > MATRIX_INT8 || !rows || !columns || rows > INT32_MAX / 2 || columns > INT32_MAX / 2) return "";
    if ((type == VECTOR_F32 && rows != 1) || (type == MATRIX_INT8 && columns > MOST_INT8)) return "";
    uint64_t wide = ((uint64_t)columns + group[type] - 1) / group[type] * group[type];
    uint64_t high = type == VECTOR_F32 ? 1 : ((uint64_t)rows + STRIP - 1) / STRIP * STRIP;
    *to = (tensor){.type = (tensor_type)type, .rows = rows, .columns = columns};
    if (high > UINT64_MAX / 8 / wide) return "";
    uint64_t size = wide * high * bytes[type];
    to->values = data_at(data, u64_at(entry + 16), size, 1);
    if (type == MATRIX_INT8) {
        to->scales = data_at(data, u64_at(entry + 24), rows, sizeof *to->scales);
        to->sums = data_at(data, u64_at(entry + 32), rows, sizeof *to->sums);
        size += rows * (sizeof *to->scales + sizeof *to->sums);
    }
    if (!to->values || (type == MATRIX_INT8 && (!to->scales || !to->sums))) return "";
    if (size > *left) return " lies where others do";
    *left -= size;
    bool finite = type == MATRIX_INT8   ? all_finite(to->scales, rows * sizeof *to->scales, F32_EXPONENTS)
                  : type == MATRIX_BF16 ? all_finite(to->values, size, BF16_EXPONENTS)
                                        : all_finite(to->values, size, F32_EXPONENTS);
    return finite ? NULL : " holds NaN or infinity";
}

/* The parts of a shortlist, whose numbers are all within the vocabularies. */
static bool read_list(span section, const settings *set, shortlist *list) {
    const uint32_t *words = section.bytes;
    uint64_t count = section.size / 4;
    if (count < 2) return false;
    uint64_t always = words[0], partners = words[1], starts = (uint64_t)set->source_size + 1;
    if (count != 2 + always + starts + partners) return false;
    *list = (shortlist){.always = words + 2,
                        .starts = words + 2 + always,
                        .partners = words + 2 + always + starts,
                        .always_count = words[0]};
    for (uint64_t i = 0; i < always; i++)
        if (list->always[i] >= set->target_size) return false;
    for (uint64_t i = 0; i < partners; i++)
        if (list->partners[i] >= set->target_size) return false;
    for (uint64_t i = 0; i + 1 < starts; i++)
        if (list->starts[i] > list->starts[i + 1]) return false;
    return list->starts[0] == 0 && list->starts[starts - 1] == partners;
}

static bool read_settings(const settings *set, char *problem, size_t room) {
    if (set->source_size <= EOS || set->target_size <= EOS || set->source_size > INT32_MAX ||
        set->target_size > INT32_MAX)
        REFUSE("inconsistent: vocabularies of %u and %u entries", set->source_size, set->target_size);
    if (!set->beam_size || set->beam_size > 1000 || set->length_offset > LONGEST_OFFSET ||
        set->beam_size * set->length_offset > LARGEST_SEARCH || !(set->length_penalty >= 0.0f && set->length_penalty <= 10.0f) ||
        set->longest > INT32_MAX)
        REFUSE("inconsistent: settings of the search");
    if (set->attentions > 1000 || set->caches > 1000)
        REFUSE("inconsistent: %u attentions, %u caches", set->attentions, set->caches);
    return true;
}

static bool read_all(model *m, const void *bytes, size_t size, char *problem, size_t room) {
    span found[SECTIONS] = {{0}};
    if (!read_sections(bytes, size, found, problem, room)) return false;
    if (found[SETT].size != sizeof m->set) REFUSE("inconsistent: settings of %zu bytes", found[SETT].size);
    memcpy(&m->set, found[SETT].bytes, sizeof m->set);
    if (!read_settings(&m->set, problem, room)) return false;
    size_t tensors = found[TENS].size / KNOWN[TENS].item, registers = found[REGS].size / sizeof(register_kind);
    if (tensors > LARGEST_COUNT || registers > LARGEST_COUNT)
        REFUSE("inconsistent: %zu tensors, %zu registers", tensors, registers);
    m->tensors = calloc(tensors + 1, sizeof *m->tensors);
    m->kept = calloc(registers + 1, sizeof *m->kept);
    m->cache_widths = calloc((size_t)m->set.caches + 1, sizeof *m->cache_widths);
    if (!m->tensors || !m->kept || !m->cache_widths) REFUSE("not enough memory");
    uint64_t left = found[DATA].size;
    for (size_t i = 0; i < tensors; i++) {
        const uint8_t *entry = (const uint8_t *)found[TENS].bytes + i * KNOWN[TENS].item;
        const char *said = read_tensor(entry, found[DATA], &left, &m->tensors[i]);
        if (said) REFUSE("inconsistent: tensor %zu%s", i, said);
    }
    m->tensor_count = (i64)tensors;
    m->registers = found[REGS].bytes, m->register_count = (i64)registers;
    m->states = found[STAT].bytes, m->state_count = (i64)(found[STAT].size / sizeof(state_kind));
    m->encode = (program){found[ENCO].bytes, (i64)(found[ENCO].size / sizeof(instruction))};
    m->step = (program){found[STEP_CODE].bytes, (i64)(found[STEP_CODE].size / sizeof(instruction))};
    m->source_pieces = found[SPMS], m->target_pieces = found[found[SPMT].bytes ? SPMT : SPMS], m->meta = found[META];
    m->stored = found[OPTS];
    if (found[LIST].bytes && !read_list(found[LIST], &m->set, &m->list)) REFUSE("inconsistent: shortlist");
    return check_programs(m, found[DATA].size, problem, room);
}

model *model_open(const void *bytes, size_t size, char *problem, size_t room) {
    if ((uintptr_t)bytes % 64) return snprintf(problem, room, "not at a multiple of 64 bytes in memory"), NULL;
    model *m = calloc(1, sizeof *m);
    if (!m) return snprintf(problem, room, "not enough memory"), NULL;
    if (read_all(m, bytes, size, problem, room)) return m;
    model_close(m);
    return NULL;
}

void model_close(model *m) {
    if (!m) return;
    free(m->tensors);
    free(m->kept);
    free(m->cache_widths);
    free(m);
}
