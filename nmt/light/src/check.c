/* Checks the programs of a model once, so that running them needs no checks. */

#include "check.h"

#include <math.h>
#include <stdio.h>

enum { WIDEST = 1 << 24, WIDEST_ROTATED = 4096, CACHED_WORDS = 32 };
/* What a file may ask for, in numbers for each byte of its weights: models have less than a tenth of it. */
enum { REGISTERS_SHARE = 8, ROWS_SHARE = 64, CACHES = 16, WORK = 4 };

/* What an instruction reads and writes, as widths; 0 for an operand that it must not have. */
typedef struct {
    uint64_t out, a, b, c;
    bool vectors[4]; /* t0 to t3 are vectors of `lengths`, or missing where `may_miss` */
    uint64_t lengths[4];
    bool may_miss[4];
} shape;

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

static uint32_t space_of(const model *m, place at) { return m->registers[at.number].space; }

/* Whether `out` and an operand share memory without being the same place, which only elementwise instructions may
   be. */
static bool overlaps(place out, uint64_t width, place in, uint64_t in_width, bool elementwise) {
    if (out.number != in.number || !in_width) return false;
    if (elementwise && out.column == in.column) return false;
    return out.column < in.column + in_width && in.column < out.column + width;
}

static shape unit_shape(const instruction *i) {
    uint64_t H = i->n;
    switch (i->op) {
    case LRN: return (shape){.out = H, .a = 3 * H, .b = H};
    case OLRN: return (shape){.out = H, .a = 4 * H, .b = H};
    case SRU: return (shape){.out = 2 * H, .a = 4 * H, .b = 2 * H, .vectors = {true, true}, .lengths = {H, H}};
    case SSRU: return (shape){.out = 2 * H, .a = 2 * H, .b = 2 * H, .vectors = {true}, .lengths = {H}};
    case MIN_GRU: return (shape){.out = H, .a = 2 * H, .b = H, .vectors = {true, true}, .lengths = {H, H}};
    case MIN_LSTM:
        return (shape){.out = H, .a = 3 * H, .b = H, .vectors = {true, true, true}, .lengths = {H, H, H}};
    case ATR: return (shape){.out = H, .a = H, .b = H, .c = H, .vectors = {true}, .lengths = {H}};
    case RNN: return (shape){.out = H, .a = H, .c = H, .vectors = {true}, .lengths = {H}};
    case GRU_RESET: return (shape){.out = H, .a = 3 * H, .b = H, .c = 2 * H, .vectors = {true}, .lengths = {2 * H}};
    case GRU:
        return (shape){.out = H, .a = 3 * H, .b = H, .c = 3 * H, .vectors = {true, true}, .lengths = {2 * H, H}};
    default: /* LSTM */
        return (shape){.out = 2 * H,
                       .a = 4 * H,
                       .b = 2 * H,
                       .c = 4 * H,
                       .vectors = {true, true, true, true},
                       .lengths = {4 * H, H, H, H},
                       .may_miss = {false, true, true, true}};
    }
}

static bool option_fits(const instruction *i) {
    switch (i->op) {
    case LRN: case OLRN: case MIN_GRU: case MIN_LSTM: case RNN: case GRU: case LSTM: return i->p == 0 || i->p == 1;
    case ATR: return i->p >= 0 && i->p < 9;
    default: return true;
    }
}

/* The shape of everything but products, embeddings, loops and units. */
static bool plain_shape(const where *w, const instruction *i, shape *s) {
    uint64_t n = i->n;
    bool heads = i->p > 0 && n % (uint64_t)i->p == 0;
    switch (i->op) {
    case NORM: *s = (shape){.out = n, .a = n, .vectors = {true, true}, .lengths = {n, n}}; return i->f >= 0;
    case RMS_NORM: *s = (shape){.out = n, .a = n, .vectors = {true}, .lengths = {n}}; return i->f >= 0;
    case ADD: case SWIGLU: *s = (shape){.out = n, .a = n, .b = n}; return true;
    case ADD_VECTOR: *s = (shape){.out = n, .a = n, .vectors = {true}, .lengths = {n}}; return true;
    case COPY: case TANH_OF: case POWERS: *s = (shape){.out = n, .a = n}; return true;
    case ROW: *s = (shape){.out = n, .a = n}; return w->encode && !w->in_loop && (i->p == 0 || i->p == 1);
    case ROTATE: *s = (shape){.out = n, .a = n}; return heads && n / (uint64_t)i->p % 2 == 0 && !w->in_loop;
    case ATTEND_ADDITIVE:
        *s = (shape){.out = n, .a = n, .b = n, .c = n, .vectors = {true}, .lengths = {heads ? n / (uint64_t)i->p : 0}};
        return heads && !w->encode;
    case ATTEND_DOT: *s = (shape){.out = n, .a = n, .b = n, .c = n}; return heads && !w->encode;
    case ATTEND_SELF: *s = (shape){.out = n, .a = n, .b = n, .c = n}; return heads && w->encode && !w->in_loop;
    case ATTEND_CACHE: *s = (shape){.out = n, .a = n, .b = n, .c = n}; return heads && !w->encode;
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
        if (i->t[k] == NONE && (s->may_miss[k] || !s->vectors[k])) continue;
        if (!s->vectors[k]) return false;
        if (!t || t->type != VECTOR_F32 || (uint64_t)t->columns != s->lengths[k]) return false;
    }
    if (i->op == LSTM && (i->t[1] == NONE) + (i->t[2] == NONE) + (i->t[3] == NONE) != (i->t[1] == NONE ? 3 : 0))
        return false;
    return true;
}

/* Numbers of attentions and caches, which stand where others have tensors; caches get their width. So do the heads that
   are rotated. */
static bool numbers_fit(const where *w, const instruction *i) {
    bool attends = i->op == ATTEND_ADDITIVE || i->op == ATTEND_DOT;
    if (attends && i->t[1] != NONE && i->t[1] >= w->m->set.attentions) return false;
    if (i->op == ROTATE) { /* all heads are as wide, since what they are turned by is computed once */
        uint32_t width = i->n / (uint32_t)i->p;
        if (width > WIDEST_ROTATED || (w->m->rotated && width != w->m->rotated)) return false;
        w->m->rotated = width;
    }
    if (i->op != ATTEND_CACHE) return true;
    if (i->t[0] >= w->m->set.caches || w->m->cache_widths[i->t[0]]) return false; /* each is used once */
    w->m->cache_widths[i->t[0]] = i->n;
    return true;
}

static bool product_fits(const where *w, const instruction *i, shape *s) {
    const tensor *matrix = tensor_of(w->m, i->t[0]);
    if (!is_matrix(matrix)) return false;
    if (i->op == EMBED) {
        if (i->n != (uint64_t)matrix->columns || w->in_loop) return false;
        if ((uint64_t)matrix->rows != (w->encode ? w->m->set.source_size : w->m->set.target_size)) return false;
        *s = (shape){.out = i->n, .vectors = {false, true}, .lengths = {0, i->n}, .may_miss = {false, true}};
        return true;
    }
    if (i->n != (uint64_t)matrix->rows) return false;
    *s = (shape){.out = i->n, .a = (uint64_t)matrix->columns};
    s->vectors[1] = s->may_miss[1] = true, s->lengths[1] = i->n;
    return i->p >= NO_ACTIVATION && i->p <= TANH;
}

/* Spaces in which operands may lie, given that of out. */
static bool spaces_fit(const where *w, const instruction *i, const shape *s) {
    const model *m = w->m;
    if (!fits(m, i->out, s->out, w->encode ? 1u << SOURCE | 1u << ONE : 1u << STEP)) return false;
    unsigned own = 1u << space_of(m, i->out), source = 1u << SOURCE;
    unsigned a = own, b = own;
    if (w->encode && w->in_loop) a = b = 1u << SOURCE | 1u << ONE;
    if (i->op == ROW) {
        if (own != 1u << ONE) return false;
        a = source;
    }
    if (i->op == EMBED && w->encode && own != source) return false;
    if ((i->op == ROTATE || i->op == ATTEND_SELF) && w->encode && own != source) return false;
    if (i->op == ATTEND_ADDITIVE || i->op == ATTEND_DOT) b = source;
    if (!fits(m, i->a, s->a, a) || !fits(m, i->b, s->b, b) || !fits(m, i->c, s->c, b)) return false;
    bool elementwise =
        i->op == NORM || i->op == RMS_NORM || (i->op >= ADD && i->op <= SWIGLU) || i->op == POWERS || i->op == ROTATE;
    bool unit = i->op >= LRN; /* may write its state where it was */
    return !overlaps(i->out, s->out, i->a, s->a, elementwise) &&
           !overlaps(i->out, s->out, i->b, s->b, elementwise || (unit && s->out == s->b && i->op != GRU_RESET)) &&
           !overlaps(i->out, s->out, i->c, s->c, false);
}

static bool check_instruction(const where *w, const instruction *i) {
    shape s = {0};
    if (!i->n || i->n > WIDEST) return false;
    if (i->op == EMBED || i->op == LINEAR) {
        if (!product_fits(w, i, &s)) return false;
    } else if (i->op >= LRN && i->op <= LSTM) {
        s = unit_shape(i);
        if (!option_fits(i)) return false;
    } else if (!plain_shape(w, i, &s)) {
        return false;
    }
    if (!vectors_fit(w->m, i, &s) || !numbers_fit(w, i) || !spaces_fit(w, i, &s)) return false;
    if (i->op == ATTEND_ADDITIVE || i->op == ATTEND_DOT) w->m->kept[i->b.number] = w->m->kept[i->c.number] = true;
    return true;
}

#define REFUSE(...) return snprintf(problem, room, __VA_ARGS__), false

/* Products, or else numbers written, for one row. */
static uint64_t work_of(const model *m, const instruction *i) {
    return i->op == LOOP ? 0 : i->op == LINEAR ? (uint64_t)i->n * (uint64_t)m->tensors[i->t[0]].columns : i->n;
}

/* A program whose instructions together compute no more than `most` numbers for a row: a small file must not take much
   time. */
static bool check_program(model *m, const program *code, bool encode, uint64_t most, char *problem, size_t room) {
    const char *name = encode ? "ENCO" : "STEP";
    uint64_t work = 0;
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
        if ((work += work_of(m, i)) > most) REFUSE("inconsistent: %s computes too much for its weights", name);
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

static bool check_caches(const model *m, uint64_t weights, char *problem, size_t room) {
    uint64_t numbers = 0, words = (CACHED_WORDS + (uint64_t)m->set.length_offset) * m->set.beam_size;
    for (uint32_t c = 0; c < m->set.caches; c++) {
        if (!m->cache_widths[c]) REFUSE("inconsistent: cache %u is not used", c);
        numbers += 2 * words * m->cache_widths[c];
    }
    if (numbers > CACHES * weights) REFUSE("inconsistent: its caches are too wide for its weights");
    return true;
}

bool check_programs(model *m, uint64_t weights, char *problem, size_t room) {
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
    if (!check_program(m, &m->encode, true, WORK * weights, problem, room) ||
        !check_program(m, &m->step, false, WORK * weights, problem, room))
        return false;
    return check_caches(m, weights, problem, room);
}
