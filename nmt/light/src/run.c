/* The interpreter of the two programs. What they may do has been checked when the model was read (model.c). */

#include "run.h"

#include <math.h>

#include "../../ops/native/simd.h"
#include "system.h"

/* TILE positions of a cache, shared by the hypotheses that have them in common. */
typedef struct tile {
    struct tile *next; /* of those that no hypothesis has */
    i64 users;
    _Alignas(64) float values[];
} tile;

/* Words so far of one hypothesis in one cache. */
typedef struct {
    tile **tiles;
    size_t room;
    i64 count;
} cached;

struct runner {
    const model *m;
    const kernels *k;
    i64 rows, length; /* room for so many hypotheses, and for so long a sentence */
    float **base;     /* by register, where its first row stands now */
    block source, one, step; /* registers that are not kept */
    block scratch;
    block attending;          /* for kernels of attention */
    block turns, sinusoids;   /* of ROTATE and of POSITIONS, see `waves_at` */
    block self;               /* tiles of an ATTEND_SELF or ATTEND_EARLIER */
    i64 width;                /* of a tile of all ATTEND_DOT together, see `pack_memory` */
    const float **tiles;      /* of what is attended to */
    size_t tile_room;
    float **told;             /* [rows] */
    cached *caches[2]; /* [cache][row]: of this step, and of the next one */
    tile **spare;      /* [cache] */
};

/* What an instruction is computed for. */
typedef struct {
    runner *r;
    const instruction *i;
    i64 first, count;            /* rows: in a loop one of SOURCE */
    const int32_t *ids;          /* of the sentence */
    const hypothesis_row *words; /* of the hypotheses, in a step */
    i64 length;                  /* of the sentence */
} task;

bool renew(block *b, size_t rows, size_t width) {
    if (width && rows > SIZE_MAX / 16 / width) return false;
    const size_t size = rows * width * sizeof(float) / 64 * 64 + 128; /* kernels may load, though not use, what follows */
    if (b->values && rows * width <= b->room) return true;
    aligned_free(b->values);
    float *values = aligned_alloc(64, size);
    *b = (block){values, values ? rows * width : 0};
    if (values) memset(values, 0, size);
    return values != NULL;
}

bool renew_scratch(block *b, const tensor *matrix, i64 rows) {
    return renew(b, linear_scratch(matrix, rows) / sizeof(float) + 1, 1);
}

/* The same, but what was there stays, as do its places; with `more`, room for twice as many. */
static bool extend(block *b, size_t rows, size_t width, bool more) {
    block larger = {0};
    if (b->values && rows * width <= b->room) return true;
    if (!renew(&larger, more ? 2 * rows : rows, width)) return false;
    if (b->values) memcpy(larger.values, b->values, b->room * sizeof(float));
    aligned_free(b->values);
    return *b = larger, true;
}

void memory_clear(memory *m) {
    free(m->at);
    aligned_free(m->kept.values);
    aligned_free(m->tiles.values);
    *m = (memory){0};
}

/* Rows of a register stand so far apart that each begins at a multiple of 64 bytes. */
static i64 stride_of(const model *m, i64 number) { return ((i64)m->registers[number].width + 15) / 16 * 16; }

/* Lets the registers of a space that are kept, or those that are not, stand in a block, each with so many rows. */
static bool lay_out(runner *r, uint32_t space, bool kept, i64 rows, block *to) {
    const model *m = r->m;
    i64 width = 0;
    for (i64 i = 0; i < m->register_count; i++)
        if (m->registers[i].space == space && m->kept[i] == kept) width += stride_of(m, i);
    if (!renew(to, (size_t)rows, (size_t)width)) return false;
    float *at = to->values;
    for (i64 i = 0; i < m->register_count; i++)
        if (m->registers[i].space == space && m->kept[i] == kept) r->base[i] = at, at += rows * stride_of(m, i);
    return true;
}

/* Tokens of a sentence whose keys and values are rounded to bf16, where weights are rounded, too: it takes half the time to
   read them from beyond the caches, and longer from the first one. */
enum { LONG = 256 };

static bool in_halves(const runner *r, const instruction *i, bool is_long) {
    const bool rounded = r->m->tensors[r->m->set.table].type != MATRIX_F32;
    return is_long && rounded && r->k->halves && i->n / (uint32_t)i->p % 2 == 0;
}

static bool room_to_multiply(runner *r, const program *p, i64 rows) {
    for (i64 i = 0; i < p->count; i++)
        if (p->code[i].op == LINEAR && !renew_scratch(&r->scratch, &r->m->tensors[p->code[i].t[0]], rows)) return false;
    return true;
}

runner *runner_open(const model *m, const kernels *k, i64 rows) {
    runner *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->m = m, r->k = k, r->rows = rows;
    r->base = calloc((size_t)m->register_count + 1, sizeof *r->base);
    r->told = calloc((size_t)rows, sizeof *r->told);
    r->spare = calloc((size_t)m->set.caches + 1, sizeof *r->spare);
    for (i64 i = 0; i < m->step.count; i++)
        if (m->step.code[i].op == ATTEND_DOT) r->width += tile_size(m->step.code[i].n);
    for (int which = 0; which < 2; which++)
        r->caches[which] = calloc((size_t)m->set.caches * (size_t)rows + 1, sizeof(cached));
    if (r->base && r->told && r->spare && r->caches[0] && r->caches[1] && lay_out(r, STEP, false, rows, &r->step) &&
        lay_out(r, ONE, false, 1, &r->one) && room_to_multiply(r, &m->step, rows))
        return r;
    runner_close(r);
    return NULL;
}

static void drop_tiles(runner *r, i64 which, cached *own) {
    for (i64 t = 0; t < own->count; t++) {
        tile *one = own->tiles[t];
        if (!--one->users) one->next = r->spare[which], r->spare[which] = one;
    }
    own->count = 0;
}

void runner_close(runner *r) {
    if (!r) return;
    for (int side = 0; side < 2; side++) {
        for (i64 i = 0; r->caches[side] && r->spare && i < (i64)r->m->set.caches * r->rows; i++) {
            drop_tiles(r, i / r->rows, &r->caches[side][i]);
            free(r->caches[side][i].tiles);
        }
        free(r->caches[side]);
    }
    for (i64 which = 0; r->spare && which < (i64)r->m->set.caches; which++)
        for (tile *one; (one = r->spare[which]); aligned_free(one)) r->spare[which] = one->next;
    const block all[] = {r->source, r->one, r->step, r->scratch, r->attending, r->turns, r->sinusoids, r->self};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) aligned_free(all[i].values);
    free(r->base);
    free(r->told);
    free(r->spare);
    free((void *)r->tiles);
    free(r);
}

/* Room for a sentence: in registers of SOURCE that are not kept, and wherever products and attention need some. */
static bool make_room(runner *r, i64 length) {
    if (length <= r->length) return true;
    r->length = 0;
    if (!lay_out(r, SOURCE, false, length, &r->source) || !renew(&r->attending, 1, (size_t)dot_scratch(length)) ||
        !room_to_multiply(r, &r->m->encode, length))
        return false;
    r->length = length;
    return true;
}

/* Room for so many tokens, of which those of to->length have been read and stay. */
static bool keep(runner *r, i64 length, memory *to) {
    const model *m = r->m;
    block before = to->kept;
    if (!to->at && !(to->at = calloc((size_t)m->register_count + 1, sizeof *to->at))) return false;
    if (length > to->room) {
        to->kept = (block){0}, to->room = to->length ? 2 * length : length;
        if (!lay_out(r, SOURCE, true, to->room, &to->kept)) return aligned_free(before.values), to->room = to->length = 0, false;
    }
    for (i64 i = 0; i < m->register_count; i++) {
        if (!m->kept[i]) continue;
        if (to->kept.values == before.values) r->base[i] = to->at[i];
        else if (to->length) memcpy(r->base[i], to->at[i], (size_t)(to->length * stride_of(m, i)) * sizeof(float));
        to->at[i] = r->base[i];
    }
    if (to->kept.values != before.values) aligned_free(before.values);
    if (!to->length) to->is_long = length >= LONG;
    to->length = length;
    return true;
}

/* Where a row of an operand stands: of a loop's SOURCE the row of the loop. */
static float *at_row(const task *t, place of, i64 row) {
    const model *m = t->r->m;
    if (m->registers[of.number].space == SOURCE) row += t->first;
    return t->r->base[of.number] + row * stride_of(m, of.number) + of.column;
}

static const float *vector_of(const task *t, int which) {
    uint32_t number = t->i->t[which];
    return number == NONE ? NULL : t->r->m->tensors[number].values;
}

static void run_embed(const task *t) {
    const runner *r = t->r;
    const tensor *table = &r->m->tensors[t->i->t[0]];
    for (i64 row = 0; row < t->count; row++) {
        int32_t id = t->words ? t->words[row].token : t->ids[row];
        float *out = at_row(t, t->i->out, row);
        if (id < 0)
            memset(out, 0, t->i->n * sizeof *out);
        else
            r->k->embed(table, id, vector_of(t, 1), t->i->f, out);
    }
}

static void run_linear(const task *t) {
    const model *m = t->r->m;
    t->r->k->linear(&m->tensors[t->i->t[0]], at_row(t, t->i->a, 0), stride_of(m, t->i->a.number), vector_of(t, 1),
                    (activation)t->i->p, at_row(t, t->i->out, 0), stride_of(m, t->i->out.number), t->count,
                    t->r->scratch.values);
}

/* Cosines and then sines of `half` angles for a position: it times 10000^(-i / slowest). Null where memory ends. */
static const float *waves_at(block *waves, i64 position, i64 half, i64 slowest) {
    if (position >= (i64)waves->room / (2 * half)) {
        i64 positions = position < 32 ? 64 : 2 * position;
        if (!renew(waves, (size_t)positions, 2 * (size_t)half)) return NULL;
        for (i64 p = 0; p < positions; p++)
            for (i64 i = 0; i < half; i++) {
                float rate = expf((float)i * (float)(-log(10000.0) / (double)slowest)), angle = (float)p * rate;
                float *own = waves->values + 2 * p * half + i;
                own[0] = cosf(angle), own[half] = sinf(angle);
            }
    }
    return waves->values + 2 * position * half;
}

static bool run_positions(const task *t) {
    i64 half = (i64)t->i->n / 2;
    for (i64 row = 0; row < t->count; row++) {
        const float *waves = waves_at(&t->r->sinusoids, t->words ? t->words[row].position : t->first + row, half, t->i->p);
        const float *a = at_row(t, t->i->a, row);
        float *out = at_row(t, t->i->out, row);
        if (!waves) return false;
        for (i64 i = 0; i < half; i++) out[i] = a[i] + waves[half + i], out[half + i] = a[half + i] + waves[i];
    }
    return true;
}

static bool run_rotate(const task *t) {
    i64 width = (i64)t->i->n / t->i->p, half = width / 2;
    for (i64 row = 0; row < t->count; row++) {
        const float *turns = waves_at(&t->r->turns, t->words ? t->words[row].position : t->first + row, half, half);
        const float *x = at_row(t, t->i->a, row);
        float *out = at_row(t, t->i->out, row);
        if (!turns) return false;
        for (i64 head = 0; head < t->i->p; head++, x += width, out += width)
#pragma omp simd
            for (i64 i = 0; i < half; i++) {
                float first = x[i], second = x[half + i], c = turns[i], s = turns[half + i];
                out[i] = first * c - second * s, out[half + i] = first * s + second * c;
            }
    }
    return true;
}

/* The key and the value of a position in a tile. */
static void put(const float *key, const float *value, i64 n, bool halves, i64 place, float *to) {
    if (halves) {
        bf16 *keys = (bf16 *)to, *values = keys + TILE * n;
        for (i64 c = 0; c < n; c++) keys[2 * (c / 2 * TILE + place) + c % 2] = store_bf16(key[c]);
        for (i64 c = 0; c < n; c++) values[2 * (place / 2 * n + c) + place % 2] = store_bf16(value[c]);
    } else {
        for (i64 c = 0; c < n; c++) to[c * TILE + place] = key[c];
        memcpy(to + (TILE + place) * n, value, (size_t)n * sizeof *value);
    }
}

/* Keys and values of `count` positions from the first on into tiles that stand `apart` floats apart. */
static void pack(const task *t, const instruction *i, bool is_long, i64 count, float *to, i64 apart) {
    const bool halves = in_halves(t->r, i, is_long);
    for (i64 row = 0, s = t->first; row < count; row++, s++)
        put(at_row(t, i->b, row), at_row(t, i->c, row), i->n, halves, s % TILE, to + s / TILE * apart);
}

/* Tiles of all ATTEND_DOT of the step stand side by side. */
static bool pack_memory(const task *t, memory *to) {
    const program *step = &t->r->m->step;
    i64 at = 0;
    if (!extend(&to->tiles, (size_t)((t->length + TILE - 1) / TILE), (size_t)t->r->width, t->first > 0)) return false;
    for (const instruction *i = step->code; i < step->code + step->count; i++) {
        if (i->op != ATTEND_DOT) continue;
        pack(t, i, to->is_long, t->count, to->tiles.values + at, t->r->width);
        at += tile_size(i->n);
    }
    return true;
}

/* Lets r->tiles have those of `count` positions. False where memory ends. */
static bool find_tiles(runner *r, const float *first, i64 apart, i64 count) {
    if (!grown(&r->tiles, sizeof *r->tiles, &r->tile_room, (size_t)((count + TILE - 1) / TILE))) return false;
    for (i64 tile = 0; tile * TILE < count; tile++) r->tiles[tile] = first + tile * apart;
    return true;
}

static void attend(const task *t, bool is_long, i64 row, i64 rows, i64 positions, float *const *told, float share) {
    const runner *r = t->r;
    const instruction *i = t->i;
    r->k->attend_dot(at_row(t, i->a, row), stride_of(r->m, i->a.number), rows, r->tiles, in_halves(r, i, is_long), i->p,
                     i->n, positions, at_row(t, i->out, row), stride_of(r->m, i->out.number), told, share,
                     r->attending.values);
}

/* Told is the mean of the weights over all heads of all attentions that count. */
static float told_share(const task *t) { return 1.0f / ((float)t->i->p * (float)t->r->m->set.attentions); }

/* Hypotheses of a sentence, which stand side by side, attend together. */
static bool run_dot_attention(const task *t) {
    runner *r = t->r;
    const instruction *code = r->m->step.code;
    i64 at = 0;
    for (const instruction *i = code; i < t->i; i++)
        if (i->op == ATTEND_DOT) at += tile_size(i->n);
    for (i64 row = 0, rows; row < t->count; row += rows) {
        const memory *from = t->words[row].sentence;
        for (rows = 0; row + rows < t->count && t->words[row + rows].sentence == from; rows++)
            r->told[rows] = t->words[row + rows].attention;
        if (!find_tiles(r, from->tiles.values + at, r->width, from->length)) return false;
        attend(t, from->is_long, row, rows, from->length, t->i->t[1] == NONE ? NULL : r->told, told_share(t));
    }
    return true;
}

static void run_additive_attention(const task *t) {
    const runner *r = t->r;
    const instruction *i = t->i;
    i64 ks = stride_of(r->m, i->b.number), vs = stride_of(r->m, i->c.number);
    for (i64 row = 0; row < t->count; row++) {
        const memory *from = t->words[row].sentence;
        const float *keys = from->at[i->b.number] + i->b.column, *values = from->at[i->c.number] + i->c.column;
        float *told = i->t[1] == NONE ? NULL : t->words[row].attention;
        r->k->attend_additive(at_row(t, i->a, row), keys, ks, values, vs, vector_of(t, 0), i->p, i->n, from->length,
                              at_row(t, i->out, row), told, told_share(t), r->attending.values);
    }
}

static bool run_self_attention(const task *t) {
    runner *r = t->r;
    i64 size = tile_size(t->i->n);
    const bool forward = t->i->op != ATTEND_SELF, is_long = !forward && t->length >= LONG;
    if (!renew(&r->self, (size_t)((t->length + TILE - 1) / TILE), (size_t)size)) return false;
    pack(t, t->i, is_long, t->length, r->self.values, size);
    if (!find_tiles(r, r->self.values, size, t->length)) return false;
    for (i64 row = 0, rows = forward ? 1 : t->count; row < t->count; row += rows)
        attend(t, is_long, row, rows, rows == 1 ? row + 1 : t->length, NULL, 0.0f);
    return true;
}

/* A tile of one user, a copy of `from` unless that is null; null where memory ends. */
static tile *new_tile(runner *r, i64 which, const tile *from) {
    size_t size = (size_t)tile_size(r->m->cache_widths[which]) * sizeof(float);
    tile *one = r->spare[which];
    if (one) r->spare[which] = one->next;
    else if (!(one = aligned_alloc(64, sizeof *one + (size + 63) / 64 * 64))) return NULL;
    one->users = 1;
    if (from) memcpy(one->values, from->values, size);
    else memset(one->values, 0, size);
    return one;
}

static bool run_cache(const task *t) {
    runner *r = t->r;
    const instruction *i = t->i;
    i64 which = i->t[0];
    for (i64 row = 0; row < t->count; row++) {
        cached *own = &r->caches[0][which * r->rows + row];
        i64 position = t->words[row].position, last = position / TILE, place = position % TILE;
        if (!grown(&own->tiles, sizeof *own->tiles, &own->room, (size_t)last + 1)) return false;
        tile *old = last < own->count ? own->tiles[last] : NULL;
        if (!old || old->users > 1) {
            if (!(own->tiles[last] = new_tile(r, which, old))) return own->count = last, false;
            if (old) old->users--;
            own->count = last + 1;
        }
        const bool is_long = t->words[row].sentence->is_long;
        put(at_row(t, i->b, row), at_row(t, i->c, row), i->n, in_halves(r, i, is_long), place, own->tiles[last]->values);
        if (!grown(&r->tiles, sizeof *r->tiles, &r->tile_room, (size_t)own->count) ||
            !renew(&r->attending, 1, (size_t)dot_scratch(TILE * (i64)own->room)))
            return false;
        for (i64 tile = 0; tile < own->count; tile++) r->tiles[tile] = own->tiles[tile]->values;
        attend(t, is_long, row, 1, position + 1, NULL, 0.0f);
    }
    return true;
}

static void run_unit(const task *t) {
    const instruction *i = t->i;
    const float *vectors[4] = {vector_of(t, 0), vector_of(t, 1), vector_of(t, 2), vector_of(t, 3)};
    for (i64 row = 0; row < t->count; row++)
        t->r->k->unit[i->op - LRN](at_row(t, i->a, row), i->b.number == NONE ? NULL : at_row(t, i->b, row),
                                   i->c.number == NONE ? NULL : at_row(t, i->c, row), vectors, i->p,
                                   at_row(t, i->out, row), i->n);
}

static void run_elementwise(const task *t) {
    const kernels *k = t->r->k;
    const instruction *i = t->i;
    for (i64 row = 0; row < t->count; row++) {
        const float *a = at_row(t, i->a, row);
        float *out = at_row(t, i->out, row);
        switch (i->op) {
        case NORM: k->norm(a, vector_of(t, 0), vector_of(t, 1), i->f, out, i->n); break;
        case RMS_NORM: k->norm(a, vector_of(t, 0), NULL, i->f, out, i->n); break;
        case ADD: k->add(a, at_row(t, i->b, row), out, i->n); break;
        case ADD_VECTOR: k->add(a, vector_of(t, 0), out, i->n); break;
        case COPY: memmove(out, a, i->n * sizeof *out); break;
        case TANH_OF: k->tanh(a, out, i->n); break;
        case SWIGLU: k->swiglu(a, at_row(t, i->b, row), out, i->n); break;
        case POWERS: k->powers(a, out, i->n); break;
        }
    }
}

static bool run_one(const task *t) {
    const instruction *i = t->i;
    switch (i->op) {
    case EMBED: run_embed(t); return true;
    case LINEAR: run_linear(t); return true;
    case ROW:
        memcpy(at_row(t, i->out, 0), at_row(t, i->a, i->p ? t->length - 1 : 0), i->n * sizeof(float));
        return true;
    case ROTATE: return run_rotate(t);
    case POSITIONS: return run_positions(t);
    case ATTEND_ADDITIVE: run_additive_attention(t); return true;
    case ATTEND_DOT: return run_dot_attention(t);
    case ATTEND_SELF: case ATTEND_EARLIER: return run_self_attention(t);
    case ATTEND_CACHE: return run_cache(t);
    default: (i->op >= LRN ? run_unit : run_elementwise)(t); return true;
    }
}

bool reads_forward(const model *m) {
    for (const instruction *i = m->encode.code; i < m->encode.code + m->encode.count; i++)
        if (i->op == ATTEND_SELF || (i->op == LOOP && i->p) || (i->op == ROW && !i->p)) return false;
    return true;
}

bool runner_read(runner *r, const int32_t *ids, i64 count, memory *to) {
    const model *m = r->m;
    const i64 first = to->length, length = first + count;
    if (!make_room(r, first && length > r->length ? 2 * length : length) || !keep(r, length, to)) return false;
    if (!first) memset(r->one.values, 0, r->one.room * sizeof(float));
    task t = {.r = r, .ids = ids, .length = length};
    for (i64 at = 0; at < m->encode.count; at++) {
        const instruction *i = t.i = &m->encode.code[at];
        if (i->op != LOOP) {
            const bool is_one = m->registers[i->out.number].space == ONE;
            t.first = is_one ? 0 : first, t.count = is_one ? 1 : count;
            if (!run_one(&t)) return false;
            continue;
        }
        t.count = 1;
        for (i64 step = 0; step < count; step++) {
            t.first = i->p ? length - 1 - step : first + step;
            for (i64 inner = 1; inner <= i->n; inner++) {
                t.i = i + inner;
                if (!run_one(&t)) return false;
            }
        }
        at += i->n;
    }
    t.first = first, t.count = count;
    return pack_memory(&t, to);
}

void runner_begin(runner *r, i64 row) {
    const model *m = r->m;
    for (i64 s = 0; s < m->state_count; s++) {
        uint32_t read = m->states[s].read;
        memcpy(r->base[read] + row * stride_of(m, read), r->base[m->states[s].first],
               m->registers[read].width * sizeof(float));
    }
}

bool runner_step(runner *r, const hypothesis_row *rows, i64 count) {
    i64 longest = 0;
    for (i64 row = 0; row < count; row++)
        if (rows[row].sentence->length > longest) longest = rows[row].sentence->length;
    if (!make_room(r, longest)) return false;
    task t = {.r = r, .words = rows, .count = count};
    for (i64 at = 0; at < r->m->step.count; at++) {
        t.i = &r->m->step.code[at];
        if (!run_one(&t)) return false;
    }
    return true;
}

const float *runner_features(const runner *r, i64 row, i64 *apart) {
    uint32_t number = r->m->set.features;
    *apart = stride_of(r->m, number);
    return r->base[number] + row * *apart;
}

bool runner_keep(const runner *r, block *to) {
    size_t width = 0;
    for (i64 s = 0; s < r->m->state_count; s++) width += r->m->registers[r->m->states[s].read].width;
    if (!renew(to, 1, width + 1)) return false;
    float *at = to->values;
    for (i64 s = 0; s < r->m->state_count; at += r->m->registers[r->m->states[s++].read].width)
        memcpy(at, r->base[r->m->states[s].read], r->m->registers[r->m->states[s].read].width * sizeof *at);
    return true;
}

void runner_restore(runner *r, const block *from) {
    const float *at = from->values;
    for (i64 s = 0; s < r->m->state_count; at += r->m->registers[r->m->states[s++].read].width)
        memcpy(r->base[r->m->states[s].read], at, r->m->registers[r->m->states[s].read].width * sizeof *at);
}

/* A hypothesis has the words of the one that it continues. */
static bool reorder_caches(runner *r, i64 which, const i64 *from, i64 count) {
    cached *now = r->caches[0] + which * r->rows, *next = r->caches[1] + which * r->rows;
    for (i64 i = 0; i < count; i++) {
        const cached *before = &now[from[i]];
        if (!grown(&next[i].tiles, sizeof *next[i].tiles, &next[i].room, (size_t)before->count)) return false;
        for (i64 t = 0; t < before->count; t++) (next[i].tiles[t] = before->tiles[t])->users++;
        next[i].count = before->count;
    }
    for (i64 i = 0; i < r->rows; i++) drop_tiles(r, which, &now[i]);
    return true;
}

bool runner_reorder(runner *r, const i64 *from, i64 count) {
    const model *m = r->m;
    for (i64 s = 0; s < m->state_count; s++) {
        uint32_t read = m->states[s].read, written = m->states[s].written;
        size_t size = m->registers[read].width * sizeof(float);
        for (i64 i = 0; i < count; i++)
            memcpy(r->base[read] + i * stride_of(m, read), r->base[written] + from[i] * stride_of(m, written), size);
    }
    for (i64 c = 0; c < (i64)m->set.caches; c++)
        if (!reorder_caches(r, c, from, count)) return false;
    cached *last = r->caches[0];
    r->caches[0] = r->caches[1], r->caches[1] = last;
    return true;
}
