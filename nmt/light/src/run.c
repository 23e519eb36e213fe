/* The interpreter of the two programs. What they may do has been checked when the model was read (model.c). */

#include "run.h"

#include <math.h>

#include "system.h"

/* Words so far of one hypothesis in one cache: [room][2 n], key and value side by side. */
typedef struct {
    float *words;
    size_t room, used;
} cached;

struct runner {
    const model *m;
    const kernels *k;
    i64 rows, length; /* room for so many hypotheses, and for so long a sentence */
    float **base;     /* by register, where its first row stands now */
    block source, one, step; /* registers that are not kept */
    block scratch;
    block weights, attending; /* of attention, heads times positions: what is told, and for kernels */
    block turns, sinusoids;   /* of ROTATE and of POSITIONS, see waves_at */
    cached *caches[2]; /* [cache][row]: of this step, and of the next one */
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
    free(b->values);
    float *values = aligned_alloc(64, size);
    *b = (block){values, values ? rows * width : 0};
    if (values) memset(values, 0, size);
    return values != NULL;
}

bool renew_scratch(block *b, const tensor *matrix, i64 rows) {
    return renew(b, linear_scratch(matrix, rows) / sizeof(float) + 1, 1);
}

void memory_clear(memory *m) {
    free(m->at);
    free(m->kept.values);
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
    for (int which = 0; which < 2; which++)
        r->caches[which] = calloc((size_t)m->set.caches * (size_t)rows + 1, sizeof(cached));
    if (r->base && r->caches[0] && r->caches[1] && lay_out(r, STEP, false, rows, &r->step) &&
        lay_out(r, ONE, false, 1, &r->one) && room_to_multiply(r, &m->step, rows))
        return r;
    runner_close(r);
    return NULL;
}

void runner_close(runner *r) {
    if (!r) return;
    for (int which = 0; which < 2; which++) {
        for (i64 i = 0; r->caches[which] && i < (i64)r->m->set.caches * r->rows; i++) free(r->caches[which][i].words);
        free(r->caches[which]);
    }
    free(r->base);
    free(r->source.values);
    free(r->one.values);
    free(r->step.values);
    free(r->scratch.values);
    free(r->weights.values);
    free(r->attending.values);
    free(r->turns.values);
    free(r->sinusoids.values);
    free(r);
}

/* Room for a sentence: in registers of SOURCE that are not kept, and wherever products and attention need some. */
static bool make_room(runner *r, i64 length) {
    const program *both[] = {&r->m->encode, &r->m->step};
    size_t heads = 1;
    if (length <= r->length) return true;
    for (int which = 0; which < 2; which++)
        for (i64 i = 0; i < both[which]->count; i++) {
            const instruction *code = &both[which]->code[i];
            if (code->op >= ATTEND_ADDITIVE && code->op <= ATTEND_CACHE && (size_t)code->p > heads)
                heads = (size_t)code->p;
        }
    r->length = 0;
    if (!lay_out(r, SOURCE, false, length, &r->source) || !renew(&r->weights, heads, (size_t)length) ||
        !renew(&r->attending, heads, (size_t)length) || !room_to_multiply(r, &r->m->encode, length))
        return false;
    r->length = length;
    return true;
}

static bool keep(runner *r, i64 length, memory *to) {
    size_t count = (size_t)r->m->register_count;
    if (!to->at && !(to->at = calloc(count + 1, sizeof *to->at))) return false;
    if (!lay_out(r, SOURCE, true, length, &to->kept)) return false;
    memcpy(to->at, r->base, count * sizeof *to->at);
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

/* Cosines and sines in pairs, of `half` angles for a position: it times 10000^(-i / slowest). Null where memory ends. */
static const float *waves_at(block *pairs, i64 position, i64 half, i64 slowest) {
    if (position >= (i64)pairs->room / (2 * half)) {
        i64 positions = position < 32 ? 64 : 2 * position;
        if (!renew(pairs, (size_t)positions, 2 * (size_t)half)) return NULL;
        for (i64 p = 0; p < positions; p++)
            for (i64 i = 0; i < half; i++) {
                float rate = expf((float)i * (float)(-log(10000.0) / (double)slowest)), angle = (float)p * rate;
                float *pair = pairs->values + 2 * (p * half + i);
                pair[0] = cosf(angle), pair[1] = sinf(angle);
            }
    }
    return pairs->values + 2 * position * half;
}

static bool run_positions(const task *t) {
    i64 half = (i64)t->i->n / 2;
    for (i64 row = 0; row < t->count; row++) {
        const float *pairs = waves_at(&t->r->sinusoids, t->words ? t->words[row].position : row, half, t->i->p);
        const float *a = at_row(t, t->i->a, row);
        float *out = at_row(t, t->i->out, row);
        if (!pairs) return false;
        for (i64 i = 0; i < half; i++) out[i] = a[i] + pairs[2 * i + 1], out[half + i] = a[half + i] + pairs[2 * i];
    }
    return true;
}

static bool run_rotate(const task *t) {
    i64 width = (i64)t->i->n / t->i->p, half = width / 2;
    for (i64 row = 0; row < t->count; row++) {
        const float *turns = waves_at(&t->r->turns, t->words ? t->words[row].position : row, half, half);
        const float *x = at_row(t, t->i->a, row);
        float *out = at_row(t, t->i->out, row);
        if (!turns) return false;
        for (i64 head = 0; head < t->i->p; head++, x += width, out += width)
            for (i64 i = 0; i < half; i++) {
                float first = x[i], second = x[half + i], c = turns[2 * i], s = turns[2 * i + 1];
                out[i] = first * c - second * s, out[half + i] = first * s + second * c;
            }
    }
    return true;
}

static void run_attention(const task *t) {
    const runner *r = t->r;
    const instruction *i = t->i;
    i64 ks = stride_of(r->m, i->b.number), vs = stride_of(r->m, i->c.number);
    for (i64 row = 0; row < t->count; row++) {
        const memory *from = t->words[row].sentence;
        const float *keys = from->at[i->b.number] + i->b.column, *values = from->at[i->c.number] + i->c.column;
        const float *query = at_row(t, i->a, row);
        float *out = at_row(t, i->out, row), *told = t->words[row].attention;
        float *weights = told && i->t[1] != NONE ? r->weights.values : NULL;
        if (i->op == ATTEND_ADDITIVE)
            r->k->attend_additive(query, keys, ks, values, vs, vector_of(t, 0), i->p, i->n, from->length, out, weights,
                                  r->attending.values);
        else
            r->k->attend_dot(query, keys, ks, values, vs, i->p, i->n, from->length, out, weights, r->attending.values);
        /* Told is the mean of the weights [heads, S] over all heads of all attentions that count. */
        float share = 1.0f / ((float)i->p * (float)r->m->set.attentions);
        for (i64 head = 0; weights && head < i->p; head++)
            for (i64 s = 0; s < from->length; s++) told[s] += share * weights[head * from->length + s];
    }
}

static void run_self_attention(const task *t) {
    const runner *r = t->r;
    const instruction *i = t->i;
    const float *keys = at_row(t, i->b, 0), *values = at_row(t, i->c, 0);
    for (i64 row = 0; row < t->count; row++)
        r->k->attend_dot(at_row(t, i->a, row), keys, stride_of(r->m, i->b.number), values, stride_of(r->m, i->c.number),
                         i->p, i->n, t->length, at_row(t, i->out, row), NULL, r->attending.values);
}

static bool run_cache(const task *t) {
    runner *r = t->r;
    const instruction *i = t->i;
    i64 n = i->n;
    for (i64 row = 0; row < t->count; row++) {
        cached *own = &r->caches[0][(i64)i->t[0] * r->rows + row];
        i64 position = t->words[row].position;
        own->used = (size_t)position + 1;
        /* At first as many as model.c counts beside the offset; there may be more than the source has. */
        if (!grown(&own->words, 2 * (size_t)n * sizeof(float), &own->room, own->used < 32 ? 32 : own->used) ||
            !renew(&r->attending, (size_t)i->p, own->room))
            return false;
        memcpy(own->words + position * 2 * n, at_row(t, i->b, row), (size_t)n * sizeof(float));
        memcpy(own->words + position * 2 * n + n, at_row(t, i->c, row), (size_t)n * sizeof(float));
        r->k->attend_dot(at_row(t, i->a, row), own->words, 2 * n, own->words + n, 2 * n, i->p, n, position + 1,
                         at_row(t, i->out, row), NULL, r->attending.values);
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
    case ATTEND_ADDITIVE: case ATTEND_DOT: run_attention(t); return true;
    case ATTEND_SELF: run_self_attention(t); return true;
    case ATTEND_CACHE: return run_cache(t);
    default: (i->op >= LRN ? run_unit : run_elementwise)(t); return true;
    }
}

bool runner_encode(runner *r, const int32_t *ids, i64 length, memory *to) {
    const model *m = r->m;
    if (!make_room(r, length) || !keep(r, length, to)) return false;
    memset(r->one.values, 0, r->one.room * sizeof(float));
    task t = {.r = r, .ids = ids, .length = length};
    for (i64 at = 0; at < m->encode.count; at++) {
        const instruction *i = t.i = &m->encode.code[at];
        if (i->op != LOOP) {
            t.count = m->registers[i->out.number].space == ONE ? 1 : length;
            if (!run_one(&t)) return false;
            continue;
        }
        t.count = 1;
        for (i64 step = 0; step < length; step++) {
            t.first = i->p ? length - 1 - step : step;
            for (i64 inner = 1; inner <= i->n; inner++) {
                t.i = i + inner;
                if (!run_one(&t)) return false;
            }
        }
        t.first = 0, at += i->n;
    }
    return true;
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

/* A hypothesis takes over the words of the one it continues; if several continue it, all but the first copy them. */
static bool reorder_caches(runner *r, uint32_t which, const i64 *from, i64 count) {
    size_t width = 2 * (size_t)r->m->cache_widths[which];
    cached *now = r->caches[0] + (i64)which * r->rows, *next = r->caches[1] + (i64)which * r->rows;
    for (i64 i = 0; i < r->rows; i++) {
        free(next[i].words);
        next[i] = (cached){0};
    }
    for (i64 i = 0; i < count; i++) {
        i64 earlier = 0;
        while (earlier < i && from[earlier] != from[i]) earlier++;
        if (earlier == i) {
            next[i] = now[from[i]];
            now[from[i]] = (cached){0};
            continue;
        }
        const cached *like = &next[earlier];
        if (!like->words) continue;
        if (!(next[i].words = malloc(like->room * width * sizeof(float)))) return false;
        memcpy(next[i].words, like->words, like->used * width * sizeof(float));
        next[i].room = like->room, next[i].used = like->used;
    }
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
    for (uint32_t c = 0; c < m->set.caches; c++)
        if (!reorder_caches(r, c, from, count)) return false;
    cached *last = r->caches[0];
    r->caches[0] = r->caches[1], r->caches[1] = last;
    return true;
}
