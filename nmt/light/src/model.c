/* Reads a model file that lies in memory. Nothing of it is used before it has been checked, so that the interpreter
   need not look again: sections and tensors lie within the file, weights are finite, and each instruction reads and
   writes within its registers. */

#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "model files are read where they lie: a machine with little-endian numbers is needed"
#endif

enum { ENTRY = 24, VERSION = 2, LARGEST_COUNT = 1 << 20 }; /* format 1 has no bias of the logits */
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

/* CRC-32 as zlib has it, 16 bytes at a time: a step waits for the one before. */
static uint32_t crc32_of(const uint8_t *p, size_t n) {
    static const uint32_t POLYNOMIAL = 0xedb88320u;
    uint32_t table[16][256], crc = 0xffffffffu;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t x = i;
        for (int k = 0; k < 8; k++) x = x >> 1 ^ (x & 1 ? POLYNOMIAL : 0);
        table[0][i] = x;
    }
    for (int k = 1; k < 16; k++)
        for (int i = 0; i < 256; i++) table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 255];
    for (; n >= 16; n -= 16, p += 16) {
        uint32_t words[4] = {u32_at(p) ^ crc, u32_at(p + 4), u32_at(p + 8), u32_at(p + 12)}, of[4];
#pragma GCC unroll 4
        for (int i = 0, k = 15; i < 4; i++, k -= 4)
            of[i] = table[k][words[i] & 255] ^ table[k - 1][words[i] >> 8 & 255] ^ table[k - 2][words[i] >> 16 & 255] ^
                    table[k - 3][words[i] >> 24];
        crc = of[0] ^ (of[1] ^ of[2] ^ of[3]);
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
    if (version < 1 || version > VERSION)
        REFUSE("format %u, which this version of the engine does not know; it reads formats up to %d", version, VERSION);
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
    uint32_t type = u32_at(entry), rows = u32_at(entry + 4), columns = u32_at(entry + 8);
    if (type > MATRIX_INT8 || !rows || !columns || rows > INT32_MAX / 2 || columns > INT32_MAX / 2) return "";
    if ((type == VECTOR_F32 && rows != 1) || (type == MATRIX_INT8 && columns > MOST_INT8)) return "";
    *to = (tensor){.type = (tensor_type)type, .rows = rows, .columns = columns};
    uint64_t high = type == VECTOR_F32 ? 1 : ((uint64_t)rows + STRIP - 1) / STRIP * STRIP;
    uint64_t size = (uint64_t)group_count(to) * GROUP * high; /* no overflow, as rows and columns are below 2^30 */
    to->values = data_at(data, u64_at(entry + 16), size, 1);
    if (type == MATRIX_INT8) {
        if (to->values && memchr(to->values, 0x80, size)) return " holds an int8 value of -128"; /* kernels have none */
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

/* --- the programs, once, so that running them needs no checks --- */

enum { WIDEST = 1 << 24, WIDEST_ROTATED = 4096, CACHED_WORDS = 32 };
/* What a file may ask for, in numbers for each byte of its weights: models have less than a tenth of it. */
enum { REGISTERS_SHARE = 8, ROWS_SHARE = 64, CACHES = 16, WORK = 4 };

/* What an instruction reads and writes, as widths; 0 for an operand or a vector that it must not have. */
typedef struct {
    uint64_t out, a, b, c;
    uint64_t lengths[4]; /* of the vectors t0 to t3 */
    bool may_miss;       /* those from t1 on */
} shape;

/* The shapes of units, for a channel, and how many values the option p has; 0: it is not looked at. */
static const struct {
    shape of_one;
    int options;
} UNITS[] = {
    [LRN - LRN] = {{.out = 1, .a = 3, .b = 1}, 2},
    [OLRN - LRN] = {{.out = 1, .a = 4, .b = 1}, 2},
    [SRU - LRN] = {{.out = 2, .a = 4, .b = 2, .lengths = {1, 1}}, 0},
    [SSRU - LRN] = {{.out = 2, .a = 2, .b = 2, .lengths = {1}}, 0},
    [MIN_GRU - LRN] = {{.out = 1, .a = 2, .b = 1, .lengths = {1, 1}}, 2},
    [MIN_LSTM - LRN] = {{.out = 1, .a = 3, .b = 1, .lengths = {1, 1, 1}}, 2},
    [ATR - LRN] = {{.out = 1, .a = 1, .b = 1, .c = 1, .lengths = {1}}, 9},
    [RNN - LRN] = {{.out = 1, .a = 1, .c = 1, .lengths = {1}}, 2},
    [GRU_RESET - LRN] = {{.out = 1, .a = 3, .b = 1, .c = 2, .lengths = {2}}, 0},
    [GRU - LRN] = {{.out = 1, .a = 3, .b = 1, .c = 3, .lengths = {2, 1}}, 2},
    [LSTM - LRN] = {{.out = 2, .a = 4, .b = 2, .c = 4, .lengths = {4, 1, 1, 1}, .may_miss = true}, 3},
};

typedef struct {
    model *m;
    bool encode; /* which of the programs */
    bool in_loop;
} where;

static const tensor *tensor_of(const model *m, uint32_t number) {
    return number < (uint64_t)m->tensor_count ? &m->tensors[number] : NULL;
}

static bool is_matrix(const tensor *t) { return t && t->type != VECTOR_F32; }

/* Whether the columns from a place on lie within a register of one of the spaces, bits 1 << SOURCE and so on. */
static bool fits(const model *m, place at, uint64_t width, unsigned spaces) {
    if (!width) return at.number == NONE && at.column == 0;
    if (at.number >= (uint64_t)m->register_count) return false;
    const register_kind *kind = &m->registers[at.number];
    return spaces >> kind->space & 1 && at.column <= kind->width && width <= kind->width - at.column;
}

/* Whether `out` and an operand share memory without being the same place, which only elementwise instructions may
   be. */
static bool overlaps(place out, uint64_t width, place in, uint64_t in_width, bool elementwise) {
    if (out.number != in.number || !in_width) return false;
    if (elementwise && out.column == in.column) return false;
    return out.column < in.column + in_width && in.column < out.column + width;
}

static bool unit_shape(const instruction *i, shape *s) {
    const shape one = UNITS[i->op - LRN].of_one;
    const uint64_t H = i->n;
    *s = (shape){H * one.out, H * one.a, H * one.b, H * one.c, {0}, one.may_miss};
    for (int k = 0; k < 4; k++) s->lengths[k] = H * one.lengths[k];
    return !UNITS[i->op - LRN].options || (i->p >= 0 && i->p < UNITS[i->op - LRN].options);
}

static bool product_shape(const where *w, const instruction *i, shape *s) {
    const tensor *matrix = tensor_of(w->m, i->t[0]);
    if (!is_matrix(matrix)) return false;
    *s = (shape){.out = i->n, .lengths = {0, i->n}, .may_miss = true};
    if (i->op == EMBED)
        return i->n == (uint64_t)matrix->columns && !w->in_loop &&
               (uint64_t)matrix->rows == (w->encode ? w->m->set.source_size : w->m->set.target_size);
    s->a = (uint64_t)matrix->columns;
    return i->n == (uint64_t)matrix->rows && i->p >= NO_ACTIVATION && i->p <= GELU;
}

/* Of everything but products, embeddings, loops and units. */
static bool plain_shape(const where *w, const instruction *i, shape *s) {
    uint64_t n = i->n;
    bool heads = i->p > 0 && n % (uint64_t)i->p == 0;
    *s = (shape){.out = n, .a = n};
    switch (i->op) {
    case NORM: case RMS_NORM: s->lengths[0] = n, s->lengths[1] = i->op == NORM ? n : 0; return i->f >= 0;
    case ADD: case SWIGLU: s->b = n; return true;
    case ADD_VECTOR: s->lengths[0] = n; return true;
    case COPY: case TANH_OF: case POWERS: return true;
    case ROW: return w->encode && !w->in_loop && (i->p == 0 || i->p == 1);
    case ROTATE: return heads && n / (uint64_t)i->p % 2 == 0 && !w->in_loop;
    case POSITIONS: return n % 2 == 0 && i->p > 0 && !w->in_loop;
    case ATTEND_ADDITIVE: case ATTEND_DOT: case ATTEND_CACHE:
        s->b = s->c = n, s->lengths[0] = heads && i->op == ATTEND_ADDITIVE ? n / (uint64_t)i->p : 0;
        return heads && !w->encode;
    case ATTEND_SELF: case ATTEND_EARLIER: s->b = s->c = n; return heads && w->encode && !w->in_loop;
    default: return false;
    }
}

/* Whether t0 to t3 say something that is no vector: a matrix, or the number of an attention or a cache. */
static bool says_else(const instruction *i, int k) {
    if (k == 0) return i->op == EMBED || i->op == LINEAR || i->op == ATTEND_CACHE;
    return k == 1 && (i->op == ATTEND_ADDITIVE || i->op == ATTEND_DOT);
}

static bool vectors_fit(const model *m, const instruction *i, const shape *s) {
    for (int k = 0; k < 4; k++) {
        const tensor *t = tensor_of(m, i->t[k]);
        if (says_else(i, k)) continue;
        if (i->t[k] == NONE && (!s->lengths[k] || (k && s->may_miss))) continue;
        if (!s->lengths[k] || !t || t->type != VECTOR_F32 || (uint64_t)t->columns != s->lengths[k]) return false;
    }
    if (i->op == LSTM && (i->t[1] == NONE) + (i->t[2] == NONE) + (i->t[3] == NONE) != (i->t[1] == NONE ? 3 : 0))
        return false;
    return true;
}

/* Numbers of attentions and caches, which stand where others have tensors; caches get their width. So do the heads that
   are rotated, and words that get positions: all are as wide, since sines and cosines are computed once. */
static bool numbers_fit(const where *w, const instruction *i) {
    bool attends = i->op == ATTEND_ADDITIVE || i->op == ATTEND_DOT;
    if (attends && i->t[1] != NONE && i->t[1] >= w->m->set.attentions) return false;
    if (i->op == POSITIONS) {
        if (i->n > WIDEST_ROTATED || (w->m->placed && (i->n != w->m->placed || (uint32_t)i->p != w->m->slowest)))
            return false;
        w->m->placed = i->n, w->m->slowest = (uint32_t)i->p;
    }
    if (i->op == ROTATE) {
        uint32_t width = i->n / (uint32_t)i->p;
        if (width > WIDEST_ROTATED || (w->m->rotated && width != w->m->rotated)) return false;
        w->m->rotated = width;
    }
    if (i->op != ATTEND_CACHE) return true;
    if (i->t[0] >= w->m->set.caches || w->m->cache_widths[i->t[0]]) return false; /* each is used once */
    w->m->cache_widths[i->t[0]] = i->n;
    return true;
}

/* Spaces in which operands may lie, given that of out. */
static bool spaces_fit(const where *w, const instruction *i, const shape *s) {
    const model *m = w->m;
    if (!fits(m, i->out, s->out, w->encode ? 1u << SOURCE | 1u << ONE : 1u << STEP)) return false;
    unsigned own = 1u << m->registers[i->out.number].space, source = 1u << SOURCE;
    unsigned a = own, b = own;
    if (w->encode && w->in_loop) a = b = 1u << SOURCE | 1u << ONE;
    if (i->op == ROW) {
        if (own != 1u << ONE) return false;
        a = source;
    }
    if (i->op == EMBED && w->encode && own != source) return false;
    bool placed = i->op == ROTATE || i->op == POSITIONS;
    if ((placed || i->op == ATTEND_SELF || i->op == ATTEND_EARLIER) && w->encode && own != source) return false;
    if (i->op == ATTEND_ADDITIVE || i->op == ATTEND_DOT) b = source;
    if (!fits(m, i->a, s->a, a) || !fits(m, i->b, s->b, b) || !fits(m, i->c, s->c, b)) return false;
    bool elementwise =
        i->op == NORM || i->op == RMS_NORM || (i->op >= ADD && i->op <= SWIGLU) || i->op == POWERS || placed;
    bool unit = i->op >= LRN; /* may write its state where it was */
    return !overlaps(i->out, s->out, i->a, s->a, elementwise) &&
           !overlaps(i->out, s->out, i->b, s->b, elementwise || (unit && s->out == s->b && i->op != GRU_RESET)) &&
           !overlaps(i->out, s->out, i->c, s->c, false);
}

static bool check_instruction(const where *w, const instruction *i) {
    shape s = {0};
    if (!i->n || i->n > WIDEST) return false;
    bool fine = i->op == EMBED || i->op == LINEAR ? product_shape(w, i, &s)
                : i->op >= LRN && i->op <= LSTM   ? unit_shape(i, &s)
                                                  : plain_shape(w, i, &s);
    if (!fine || !vectors_fit(w->m, i, &s) || !numbers_fit(w, i) || !spaces_fit(w, i, &s)) return false;
    if (i->op == ATTEND_ADDITIVE) w->m->kept[i->b.number] = w->m->kept[i->c.number] = true;
    return true;
}

/* A program whose instructions together compute no more than `most` numbers for a row: a small file must not take much
   time. */
static bool check_program(model *m, const program *code, bool encode, uint64_t most, char *problem, size_t room) {
    const char *name = encode ? "ENCO" : "STEP";
    uint64_t work = 0; /* products, or else numbers written, for one row */
    i64 loop_end = 0;
    for (i64 at = 0; at < code->count; at++) {
        const instruction *i = &code->code[at];
        where w = {m, encode, at < loop_end};
        bool fine = isfinite(i->f);
        if (i->op == LOOP) {
            fine = fine && encode && !w.in_loop && i->n > 0 && (i64)i->n < code->count - at && (i->p == 0 || i->p == 1);
            loop_end = at + 1 + (i64)i->n;
        } else {
            fine = fine && check_instruction(&w, i);
        }
        if (!fine) REFUSE("inconsistent: instruction %lld of %s", (long long)at, name);
        if (i->op != LOOP) work += i->op == LINEAR ? (uint64_t)i->n * (uint64_t)m->tensors[i->t[0]].columns : i->n;
        if (work > most) REFUSE("inconsistent: %s computes too much for its weights", name);
    }
    return true;
}

/* Registers whose widths together, and below caches whose keys and values for the search of the file's own settings,
   are no more numbers than its weights allow: a small file must not ask for much memory. */
static bool check_registers(const model *m, uint64_t weights, char *problem, size_t room) {
    uint64_t width = 0, rows = 1 + m->set.beam_size / ROWS_SHARE;
    for (i64 r = 0; r < m->register_count; r++) {
        const register_kind *kind = &m->registers[r];
        if (kind->space > STEP || !kind->width || kind->width > WIDEST)
            REFUSE("inconsistent: register %lld", (long long)r);
        width += ((uint64_t)kind->width + 15) / 16 * 16; /* as they lie in memory */
    }
    if (width * rows > weights / REGISTERS_SHARE) REFUSE("inconsistent: its registers are too wide for its weights");
    return true;
}

/* Also finds out which registers are kept with a sentence, and how wide caches are. `weights`: bytes of all tensors. */
static bool check_programs(model *m, uint64_t weights, char *problem, size_t room) {
    if (!check_registers(m, weights, problem, room)) return false;
    if (m->state_count > 1000) REFUSE("inconsistent: %lld states", (long long)m->state_count);
    for (i64 s = 0; s < m->state_count; s++) {
        const state_kind *state = &m->states[s];
        bool fine = state->read < (uint64_t)m->register_count && state->written < (uint64_t)m->register_count &&
                    state->first < (uint64_t)m->register_count;
        if (fine) {
            const register_kind *read = &m->registers[state->read], *written = &m->registers[state->written];
            const register_kind *first = &m->registers[state->first];
            fine = read->space == STEP && written->space == STEP && first->space == ONE &&
                   read->width == written->width && read->width == first->width && state->read != state->written;
        }
        if (!fine) REFUSE("inconsistent: state %lld", (long long)s);
    }
    const tensor *table = tensor_of(m, m->set.table);
    place features = {m->set.features, 0};
    if (!is_matrix(table) || (uint64_t)table->rows != m->set.target_size ||
        !fits(m, features, (uint64_t)table->columns, 1u << STEP))
        REFUSE("inconsistent: the table of the softmax");
    if (m->set.bias) {
        const tensor *bias = tensor_of(m, m->set.bias - 1);
        if (!bias || bias->type != VECTOR_F32 || bias->columns != table->rows)
            REFUSE("inconsistent: the bias of the softmax");
        m->tensors[m->set.table].bias = bias->values;
    }
    if (!check_program(m, &m->encode, true, WORK * weights, problem, room) ||
        !check_program(m, &m->step, false, WORK * weights, problem, room))
        return false;
    uint64_t numbers = 0, words = (CACHED_WORDS + (uint64_t)m->set.length_offset) * m->set.beam_size;
    for (uint32_t c = 0; c < m->set.caches; c++) {
        if (!m->cache_widths[c]) REFUSE("inconsistent: cache %u is not used", c);
        numbers += 2 * words * m->cache_widths[c];
    }
    if (numbers > CACHES * weights) REFUSE("inconsistent: its caches are too wide for its weights");
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
    m->size = size;
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
