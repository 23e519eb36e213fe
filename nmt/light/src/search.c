/* Search: sentences stand in slots, and the hypotheses of all slots are computed together. When a sentence is done, the
   next one takes its slot, so that no row waits for the longest sentence of a batch. No sentence depends on what else
   is searched.

   Beam search is that of the original system, as nmt/search/beam.py describes it; greedy search that of
   nmt/search/base.py, samples those of nmt/sampling/search.py. */

#include "search.h"

#include <math.h>

#include "system.h"

/* From the log-probability of an end symbol that would be the first token, so that nothing starts by ending. */
static const float FIRST_END_PENALTY = 1e8f;

/* Rows whose logits are computed at once: they share reading the table, and stay in the cache until they are looked
   at. */
enum { ROWS_AT_ONCE = 16 };

/* The words that a shortlist allows for one sentence, and their part of the table of the softmax. */
typedef struct {
    i64 count;      /* 0: all words */
    bool whole;     /* there is no such part: logits are computed of all words, which sentences share */
    int32_t *ids;   /* ascending, of which the first three are PAD, UNK and EOS */
    size_t room;
    uint64_t *marks; /* a bit for each word of the vocabulary, all 0 between calls */
    tensor *tables; /* one for each model, [count, width] */
    block *values;  /* of the tables */
} chosen_words;

/* A token of a hypothesis, after those of its parent. */
typedef struct {
    int32_t token, parent; /* parent: -1 before the first token */
    int32_t attention;     /* the row of the attention with which it was predicted */
    float log_prob;
    float entropy; /* of the distribution that it is from, if wanted */
} node;

typedef struct {
    float value; /* log-probability of those alive, score of the finished ones */
    int32_t node;
    int32_t sample; /* its number */
} ranked;

typedef struct {
    bool busy;          /* else it has no sentence */
    i64 number;         /* of the sentence */
    i64 length, limit, steps;
    float given;        /* by how much less probable the prefix is than the most probable tokens, which is in no score */
    memory *memories;   /* one for each model */
    ranked *alive, *finished;
    i64 alive_count, finished_count;
    node *nodes;
    size_t node_count, node_room;
    float *attention;   /* [attention_count][length] */
    size_t attention_count, attention_room;
    chosen_words words; /* of the shortlist */
    uint64_t key;       /* of the random numbers */
    const wish *asked;
    bool *spells;       /* of the rest of the prefix */
    size_t spell_room;
} slot;

struct searcher {
    const model *const *models;
    int count;
    const kernels *k;
    i64 rows, slots, beam;
    runner **runners;
    slot *all;          /* of which the first `slots` are used */
    ranked *alive, *finished; /* of all slots */
    i64 *order, active; /* numbers of the slots that have a sentence, in the order of their rows */
    hypothesis_row *now;
    i64 *from;    /* of each row of the next step, the row of this step that it continues */
    i64 *parents; /* of each alive hypothesis of one sentence the row within it that it continues */
    block covered; /* [length of the source] */
    block weights; /* [vocabulary] of words, from 0 to 1 */
    float *entropies; /* of the rows of one sentence, in this step */
    block logits, single, scratch; /* logits: [ROWS_AT_ONCE or the beam][vocabulary], of the mean and of one model */
    bool *seen;                    /* [vocabulary], false between calls */
    scored_id *best;
    ranked *next;
    rule_room rules;
    int32_t *history; /* tokens of a hypothesis */
    size_t history_room;
    const nmt_options *set;
};

void found_clear(found_list *list) {
    for (i64 i = 0; i < list->count; i++) {
        free(list->best[i].ids);
        free(list->best[i].log_probs);
        free(list->best[i].entropies);
        free(list->best[i].attention);
    }
    free(list->best);
    *list = (found_list){0};
}

/* --- shortlists: a sentence's own words, and a table of them alone --- */

/* Values, scales, sums and bias of the rows `ids` of a table. */
static bool choose_rows(chosen_words *w, int m, const tensor *from) {
    i64 groups = group_count(from);
    size_t rows = ((size_t)w->count + STRIP - 1) / STRIP * STRIP, values = rows * (size_t)groups * GROUP,
           size = values + 12 * rows;
    if (!renew(&w->values[m], size / sizeof(float), 1)) return false;
    char *to = (char *)w->values[m].values;
    float *scales = (float *)(to + values);
    int32_t *sums = (int32_t *)(scales + rows);
    float *bias = (float *)(sums + rows);
    for (i64 start = 0; start < (i64)rows; start += STRIP, to += groups * STRIP * GROUP) {
        const char *row[STRIP];
        for (i64 i = start; i < start + STRIP; i++) { /* what fills up the last strip may be any row */
            i64 id = i < w->count ? w->ids[i] : 0;
            row[i - start] = row_of(from, id);
            if (from->type == MATRIX_INT8) scales[i] = from->scales[id], sums[i] = from->sums[id];
            if (from->bias) bias[i] = from->bias[id];
        }
        for (i64 g = 0; g < groups * STRIP * GROUP; g += STRIP * GROUP)
            for (i64 i = 0; i < STRIP; i++) memcpy(to + g + i * GROUP, row[i] + g, GROUP);
    }
    w->tables[m] = (tensor){from->type, w->count, from->columns, w->values[m].values, scales, sums, from->bias ? bias : NULL};
    return true;
}

/* A table of its own costs a sentence with one row as much as the whole one costs it in a batch, if it has so many of
   the words. */
enum { WHOLE_FROM = 10 }; /* words of the vocabulary for one of the sentence */

/* For a source sentence, by the shortlist of the first model; `alone`: it must have a table of its own. False where
   memory ends. */
static bool chosen_make(chosen_words *w, const model *const *models, int count, const sentence *what, bool alone) {
    const shortlist *list = &models[0]->list;
    const i64 vocabulary = (i64)models[0]->set.target_size;
    if (!w->marks) {
        w->marks = calloc((size_t)vocabulary / 64 + 1, sizeof *w->marks);
        w->tables = calloc((size_t)count, sizeof *w->tables);
        w->values = calloc((size_t)count, sizeof *w->values);
    }
    if (!w->marks || !w->tables || !w->values) return false;
    uint64_t *marks = w->marks, marked = 0;
#define MARK(id) (marked += ~marks[(id) / 64] >> (id) % 64 & 1, marks[(id) / 64] |= UINT64_C(1) << (id) % 64)
    for (uint32_t id = PAD; id <= EOS; id++) MARK(id);
    for (uint32_t i = 0; i < list->always_count; i++) MARK((uint32_t)list->always[i]);
    for (i64 i = 0; i < what->length; i++)
        for (uint32_t p = list->starts[what->ids[i]]; p < list->starts[what->ids[i] + 1]; p++) MARK((uint32_t)list->partners[p]);
    uint64_t multiple = (uint64_t)models[0]->set.multiple + 1; /* of words without PAD, filled up by the first ones */
    for (uint32_t id = 0; (marked - 1) % multiple && id < vocabulary; id++) MARK(id);
    for (i64 i = 0; what->asked && i < what->asked->count; i++) MARK((uint32_t)what->asked->prefix[i]);
    if (!grown(&w->ids, sizeof *w->ids, &w->room, (size_t)marked)) return false;
    int32_t *ids = w->ids;
    for (i64 start = 0; start < vocabulary; start += 64, *marks++ = 0)
        for (uint64_t left = *marks; left; left &= left - 1) *ids++ = (int32_t)start + __builtin_ctzll(left);
    w->count = (i64)marked;
    w->whole = !alone && w->count * WHOLE_FROM > vocabulary;
    for (int m = 0; m < count && !w->whole; m++)
        if (!choose_rows(w, m, &models[m]->tensors[models[m]->set.table])) return false;
    return true;
}

/* --- slots --- */

static i64 rows_at_once(const searcher *s) { return s->beam > ROWS_AT_ONCE ? s->beam : ROWS_AT_ONCE; }

searcher *searcher_open(const model *const *models, int count, const kernels *k, i64 rows) {
    searcher *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->models = models, s->count = count, s->k = k, s->rows = rows;
    s->runners = calloc((size_t)count, sizeof(runner *));
    s->all = calloc((size_t)rows, sizeof *s->all);
    s->alive = calloc((size_t)rows, sizeof *s->alive);
    s->finished = calloc((size_t)rows, sizeof *s->finished);
    s->now = calloc((size_t)rows, sizeof *s->now);
    s->from = calloc((size_t)rows, sizeof *s->from);
    s->parents = calloc((size_t)rows, sizeof *s->parents);
    s->order = calloc((size_t)rows, sizeof *s->order);
    s->entropies = calloc((size_t)rows, sizeof *s->entropies);
    s->seen = calloc(models[0]->set.target_size, sizeof *s->seen);
    s->best = calloc(2 * (size_t)rows, sizeof *s->best);
    s->next = calloc(2 * (size_t)rows, sizeof *s->next);
    bool fine = s->runners && s->all && s->alive && s->finished && s->now && s->from && s->parents && s->order &&
                s->entropies && s->seen && s->best && s->next;
    for (int i = 0; fine && i < count; i++) fine = (s->runners[i] = runner_open(models[i], k, rows)) != NULL;
    if (fine) return s;
    searcher_close(s);
    return NULL;
}

i64 searcher_rows(const searcher *s) { return s->rows; }

static void close_slot(slot *own, int models) {
    for (int m = 0; own->memories && m < models; m++) memory_clear(&own->memories[m]);
    for (int m = 0; own->words.values && m < models; m++) free(own->words.values[m].values);
    free(own->memories);
    free(own->nodes);
    free(own->attention);
    free(own->words.values);
    free(own->words.tables);
    free(own->words.marks);
    free(own->words.ids);
    free(own->spells);
}

void searcher_close(searcher *s) {
    if (!s) return;
    for (i64 i = 0; s->all && i < s->rows; i++) close_slot(&s->all[i], s->count);
    for (int i = 0; s->runners && i < s->count; i++) runner_close(s->runners[i]);
    rule_room_clear(&s->rules);
    void *const all[] = {s->history, s->runners, s->all, s->alive, s->finished, s->now, s->from, s->parents, s->order, s->seen, s->best,
                         s->next, s->logits.values, s->single.values, s->scratch.values, s->covered.values, s->weights.values,
                         s->entropies, s};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* Slots for a beam of this size. */
static bool open_slots(searcher *s, i64 beam) {
    s->beam = beam, s->slots = s->rows / beam;
    size_t at_once = (size_t)rows_at_once(s), vocabulary = ((size_t)s->models[0]->set.target_size + 31) / 32 * 32;
    if (!renew(&s->logits, at_once, vocabulary) || (s->count > 1 && !renew(&s->single, at_once, vocabulary))) return false;
    if ((s->set->sample || s->set->entropies) && !renew(&s->weights, 1, vocabulary)) return false;
    for (int m = 0; m < s->count; m++)
        if (!renew_scratch(&s->scratch, &s->models[m]->tensors[s->models[m]->set.table], (i64)at_once)) return false;
    for (i64 i = 0; i < s->slots; i++) {
        slot *own = &s->all[i];
        own->alive = s->alive + i * beam, own->finished = s->finished + i * beam;
        if (!own->memories && !(own->memories = calloc((size_t)s->count, sizeof *own->memories))) return false;
    }
    return true;
}

/* Whether the attention is kept: it is asked for, or scores depend on it. */
static bool attends(const searcher *s) { return s->set->attention || s->set->coverage_penalty > 0.0f; }

static bool is_greedy(const searcher *s) { return s->beam == 1 && !s->set->beam_of_one && !s->set->sample; }

/* Another number from a number and a whole number: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). */
static uint64_t mixed(uint64_t key, uint64_t number) {
    key += (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
    key = (key ^ key >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    key = (key ^ key >> 27) * UINT64_C(0x94d049bb133111eb);
    return key ^ key >> 31;
}

/* ((5 + length) / 6) ^ alpha or length ^ alpha, the end symbol counted. */
static double penalty_of(const searcher *s, i64 length) {
    double base = s->set->length_normalization ? (double)length : (5.0 + (double)length) / 6.0;
    return pow(base, (double)s->set->length_penalty);
}

/* Puts a sentence into a slot, as the row `row` of the next step. */
static bool begin(searcher *s, slot *own, const sentence *what, i64 row) {
    own->busy = true, own->number = what->number, own->length = what->length;
    own->limit = (i64)(s->set->max_length_factor * (float)what->length) + s->set->max_length_offset;
    if (own->limit < 1) own->limit = 1;
    own->asked = what->asked;
    /* What it must begin with does not use up the limit. */
    if (own->asked && wish_tokens(own->asked) > own->limit) own->limit = s->set->max_length_offset + wish_tokens(own->asked);
    own->steps = 0, own->given = 0.0f, own->alive_count = 1, own->finished_count = 0, own->node_count = 0, own->attention_count = 0;
    own->alive[0] = (ranked){0.0f, -1, 0};
    for (int m = 0; m < s->count; m++) {
        own->memories[m].length = 0;
        if (!runner_read(s->runners[m], what->ids, what->length, &own->memories[m])) return false;
        runner_begin(s->runners[m], row);
    }
    own->key = (uint64_t)(int64_t)s->set->seed;
    for (i64 i = 0; i < what->length; i++) own->key = mixed(own->key, (uint64_t)what->ids[i]);
    own->words.count = 0, own->words.whole = true;
    if (!renew(&s->covered, 1, (size_t)what->length)) return false;
    if (s->set->shortlist && s->models[0]->list.starts && !chosen_make(&own->words, s->models, s->count, what, s->beam > 1 || s->slots == 1 || s->count > 1)) return false;
    if (!own->asked || !own->asked->rest_size) return true;
    if (!grown(&own->spells, sizeof *own->spells, &own->spell_room, (size_t)own->asked->rest_size + 1)) return false;
    const next_words n = {NULL, own->words.count, own->words.count ? own->words.ids : NULL};
    find_spellings(own->asked, &n, own->spells);
    return true;
}

/* --- what is found --- */

static bool write_down(const searcher *s, const slot *own, int32_t at, float score, bool finite, found *to) {
    i64 count = 0;
    for (int32_t token = at; token >= 0; token = own->nodes[token].parent) count++;
    size_t width = (size_t)own->length;
    bool ended = at >= 0 && own->nodes[at].token == EOS;
    *to = (found){.count = count - ended, .score = score, .ended = ended, .finite = finite};
    to->ids = calloc((size_t)count + 1, sizeof *to->ids);
    to->log_probs = calloc((size_t)count + 1, sizeof *to->log_probs);
    if (s->set->entropies) to->entropies = calloc((size_t)count + 1, sizeof *to->entropies);
    if (s->set->attention) to->attention = calloc((size_t)count * width + 1, sizeof(float));
    if (!to->ids || !to->log_probs || (s->set->entropies && !to->entropies) || (s->set->attention && !to->attention)) return false;
    for (i64 place = count - 1; at >= 0; at = own->nodes[at].parent, place--) {
        const node *one = &own->nodes[at];
        to->ids[place] = one->token;
        to->log_probs[place] = one->log_prob - (one->parent >= 0 ? own->nodes[one->parent].log_prob : 0.0f);
        if (to->entropies) to->entropies[place] = one->entropy;
        if (to->attention)
            memcpy(to->attention + (size_t)place * width, own->attention + (size_t)one->attention * width,
                   width * sizeof(float));
    }
    return true;
}

/* For a source whose tokens j have had the attention a_j together, strength * sum log(min(a_j, 1)), of what ends with a
   node and, if it is one, a further row of attention (Wu et al., 2016). */
static float coverage(searcher *s, const slot *own, int32_t at, i64 row) {
    if (s->set->coverage_penalty == 0.0f) return 0.0f;
    size_t width = (size_t)own->length;
    float *covered = s->covered.values, sum = 0.0f;
    for (size_t j = 0; j < width; j++) covered[j] = row < 0 ? 0.0f : own->attention[(size_t)row * width + j];
    for (; at >= 0; at = own->nodes[at].parent)
        for (size_t j = 0; j < width; j++) covered[j] += own->attention[(size_t)own->nodes[at].attention * width + j];
    for (size_t j = 0; j < width; j++) sum += logf(covered[j] < 1e-30f ? 1e-30f : covered[j] > 1.0f ? 1.0f : covered[j]);
    return s->set->coverage_penalty * sum;
}

/* Into the finished hypotheses, which are sorted and at most as many as the beam holds. */
static void finish(const searcher *s, slot *own, float score, int32_t at) {
    i64 place = own->finished_count;
    if (place == s->beam && !(score > own->finished[place - 1].value)) return;
    if (place < s->beam) own->finished_count++;
    else
        place--;
    for (; place > 0 && score > own->finished[place - 1].value; place--)
        own->finished[place] = own->finished[place - 1];
    own->finished[place] = (ranked){score, at, 0};
}

static bool collect(searcher *s, slot *own, found_list *to) {
    for (i64 i = 0; s->set->sample && i < own->alive_count; i++) /* samples that the limit has cut */
        finish(s, own, (own->alive[i].value - own->given) / (float)penalty_of(s, own->steps), own->alive[i].node);
    while (own->finished_count > 1 && !isfinite(own->finished[own->finished_count - 1].value)) own->finished_count--;
    const ranked none = {-INFINITY, -1, 0}; /* where no finite probability was left */
    const ranked *best = own->finished_count ? own->finished : own->alive_count ? own->alive : &none;
    i64 count = own->finished_count ? own->finished_count : own->alive_count ? own->alive_count : 1;
    double penalty = own->finished_count ? 1.0 : penalty_of(s, own->steps), given = own->finished_count ? 0.0 : (double)own->given;
    if (count > s->set->n_best) count = s->set->n_best;
    for (i64 i = 0; !own->finished_count && s->set->coverage_penalty > 0.0f && i < own->alive_count; i++) {
        ranked one = {own->alive[i].value + (float)penalty * coverage(s, own, own->alive[i].node, -1), own->alive[i].node, 0};
        i64 at = i;
        for (; at > 0 && own->alive[at - 1].value < one.value; at--) own->alive[at] = own->alive[at - 1];
        own->alive[at] = one;
    }
    if (!(to->best = calloc((size_t)count, sizeof *to->best))) return false;
    bool fine = true;
    while (fine && to->count < count) {
        const ranked *one = &best[to->count];
        float score = is_greedy(s) && !s->set->scores ? NAN : (float)(((double)one->value - given) / penalty);
        fine = write_down(s, own, one->node, score, isfinite(one->value), &to->best[to->count]);
        to->count++; /* what it has is freed with the list */
    }
    return fine;
}

/* --- one step of a sentence --- */

static int32_t id_of(const slot *own, i64 place) { return own->words.count ? own->words.ids[place] : (int32_t)place; }

/* The attention of row i of the slot, which the step has just written. */
static int32_t attention_row(const searcher *s, const slot *own, i64 row) {
    return attends(s) ? (int32_t)(own->attention_count - (size_t)own->alive_count + (size_t)row) : 0;
}

/* A token that continues row i of the slot. False where memory ends. */
static bool add_node(const searcher *s, slot *own, i64 place, i64 row, float log_prob) {
    if (own->node_count >= INT32_MAX || !grown(&own->nodes, sizeof *own->nodes, &own->node_room, own->node_count + 1))
        return false;
    own->nodes[own->node_count++] = (node){id_of(own, place), own->alive[row].node, attention_row(s, own, row), log_prob, s->entropies[row]};
    return true;
}

static next_words words_of(const slot *own, float *logits, i64 count) {
    return (next_words){logits, count, own->words.count ? own->words.ids : NULL};
}

/* Excludes what must not come next, from normalised values or logits. False where memory ends. */
static bool keep_rules(searcher *s, const slot *own, int32_t last, float *logits, i64 words) {
    if (!own->asked && !s->set->min_length && !s->set->no_repeat_ngram) return true;
    if (!grown(&s->history, sizeof *s->history, &s->history_room, (size_t)own->steps + 1)) return false;
    for (i64 i = own->steps; i-- > 0; last = own->nodes[last].parent) s->history[i] = own->nodes[last].token;
    const next_words n = words_of(own, logits, words);
    return rules_apply(&s->rules, s->set, own->asked, own->spells, s->history, own->steps, &n);
}

/* The penalty for the tokens of the hypothesis that ends at a node, once for each. Whether there was one. */
static bool penalise_repeats(const searcher *s, const slot *own, int32_t last, float *logits, i64 words) {
    float by = s->set->repeat_penalty;
    if (by == 1.0f) return false;
    const next_words n = words_of(own, logits, words);
    for (int32_t at = last; at >= 0; at = own->nodes[at].parent) {
        int32_t token = own->nodes[at].token;
        float *logit = &logits[place_of(&n, token)];
        if (!s->seen[token]) *logit = *logit < 0.0f ? *logit * by : *logit / by;
        s->seen[token] = true;
    }
    for (int32_t at = last; at >= 0; at = own->nodes[at].parent) s->seen[own->nodes[at].token] = false;
    return true;
}

/* exp((x - top) / temperature) of logits, in s->weights. */
static float *weights_of(searcher *s, const float *logits, i64 count, float top, float temperature) {
    float *weights = s->weights.values, factor = 0.5f / temperature;
    for (i64 j = 0; j < count; j++) weights[j] = (top - logits[j]) * factor;
    s->k->powers(weights, weights, count);
    return weights;
}

/* Makes of the logits of a row those to choose from; with *add they are log-probabilities of the hypothesis. False where
   memory ends. */
static bool prepare(searcher *s, slot *own, i64 row, float *logits, i64 words, bool normalised, float *add) {
    double sum = 1.0, parts = 0.0;
    float top = 0.0f;
    int32_t last = own->alive[row].node;
    normalised = !penalise_repeats(s, own, last, logits, words) && normalised;
    if (s->set->entropies || (!normalised && (s->set->scores || !is_greedy(s)))) top = s->k->log_sum_parts(logits, words, &sum);
    if (s->set->entropies) {
        const float *weights = weights_of(s, logits, words, top, 1.0f);
#pragma omp simd reduction(+ : parts)
        for (i64 j = 0; j < words; j++) parts += weights[j] > 0.0f ? (double)(weights[j] * (logits[j] - top)) : 0.0;
        s->entropies[row] = (float)(log(sum) - parts / sum);
    }
    *add = (float)((double)own->alive[row].value - (double)top - log(sum));
    const bool is_given = own->asked && own->steps < own->asked->forced + (own->asked->rest_size > 0); /* of the only hypothesis */
    const float best = is_given ? logits[s->k->first_maximum(logits, words)] : 0.0f;
    if (!keep_rules(s, own, last, logits, words)) return false;
    const float allowed = is_given ? logits[s->k->first_maximum(logits, words)] : 0.0f;
    if (isfinite(allowed - best)) own->given += allowed - best;
    logits[PAD] = -INFINITY;
    if (!own->steps && !(own->asked && own->asked->forced)) logits[EOS] -= FIRST_END_PENALTY;
    return true;
}

/* The most probable token, from the logits of the only row. */
static bool advance_greedily(searcher *s, slot *own, float *logits, i64 words, bool normalised) {
    float add;
    if (!prepare(s, own, 0, logits, words, normalised, &add)) return false;
    i64 best = s->k->first_maximum(logits, words);
    if (!add_node(s, own, best, 0, logits[best] + add)) return false;
    own->alive[0] = (ranked){logits[best] + add, (int32_t)own->node_count - 1, 0};
    s->parents[0] = 0;
    own->steps++;
    return true;
}

/* The 2K best continuations, sorted into alive and finished ones. */
static bool advance_beam(searcher *s, slot *own, float *logits, i64 stride, i64 words, bool normalised) {
    i64 K = s->beam, count = 0, alive = 0;
    for (i64 row = 0; row < own->alive_count; row++, logits += stride) {
        float add;
        if (!prepare(s, own, row, logits, words, normalised, &add)) return false;
        count = s->k->add_best(logits, words, add, (int32_t)(row * words), s->best, count, 2 * K);
    }
    float penalty = (float)penalty_of(s, ++own->steps);
    for (i64 i = 0; i < count; i++) {
        int32_t row = (int32_t)(s->best[i].id / words), token = id_of(own, s->best[i].id % words);
        float value = s->best[i].value;
        if (!isfinite(value) || (token != EOS && alive == K)) continue;
        if (!add_node(s, own, s->best[i].id % words, row, value)) return false;
        int32_t at = (int32_t)own->node_count - 1;
        if (token == EOS)
            finish(s, own, (value - own->given) / penalty + coverage(s, own, own->alive[row].node, attention_row(s, own, row)), at);
        else
            s->next[alive] = (ranked){value, at, 0}, s->parents[alive++] = row;
    }
    memcpy(own->alive, s->next, (size_t)alive * sizeof *s->next);
    own->alive_count = alive;
    return true;
}

static double sum_of(const float *weights, i64 count) {
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (i64 j = 0; j < count; j++) sum += (double)weights[j];
    return sum;
}

/* Keeps the fewest of the largest weights that have an amount together, each counted as 1 or as itself; of equal ones the
   first. The bits of such numbers have their order: eight at a time of the smallest one that is kept are found. */
static void keep_largest(float *weights, i64 count, double wanted, bool as_one) {
    uint32_t least = 0, bits;
    double before = 0.0; /* of larger ones */
    for (int shift = 24; shift >= 0; shift -= 8) {
        double amounts[256] = {0};
        uint32_t digit = 255;
        for (i64 j = 0; j < count; j++) {
            memcpy(&bits, &weights[j], sizeof bits);
            if (bits >> shift >> 8 == least >> shift >> 8) amounts[bits >> shift & 255] += as_one ? 1.0 : (double)weights[j];
        }
        while (digit && before + amounts[digit] < wanted) before += amounts[digit--];
        least |= digit << shift;
    }
    for (i64 j = 0; j < count; j++) {
        memcpy(&bits, &weights[j], sizeof bits);
        if (bits > least) continue;
        if (bits < least || before >= wanted) weights[j] = 0.0f;
        else before += as_one ? 1.0 : (double)weights[j];
    }
}

/* The weights of words in proportion to which one is drawn, and their sum. */
static double weigh(searcher *s, const float *logits, i64 count) {
    const float top = logits[s->k->first_maximum(logits, count)];
    float *weights = weights_of(s, logits, count, top, s->set->temperature);
    if (s->set->top_k && s->set->top_k < count) keep_largest(weights, count, s->set->top_k, true);
    const double sum = sum_of(weights, count);
    if (s->set->top_p >= 1.0f) return sum;
    keep_largest(weights, count, (double)s->set->top_p * sum, false);
    return sum_of(weights, count);
}

/* A word for each sample, drawn by a random number that follows from the seed, the source, the number of the sample and
   the step. At first all continue the only row. */
static bool advance_samples(searcher *s, slot *own, float *logits, i64 stride, i64 words, bool normalised) {
    i64 alive = 0, count = own->steps ? own->alive_count : s->beam;
    double sum = 0.0;
    float add = 0.0f;
    for (i64 i = 0; i < count; i++) {
        i64 row = own->steps ? i : 0, place = 0;
        float *own_logits = logits + row * stride;
        int32_t number = own->steps ? own->alive[i].sample : (int32_t)i;
        if (row == i) {
            if (!prepare(s, own, row, own_logits, words, normalised, &add)) return false;
            sum = weigh(s, own_logits, words);
        }
        uint64_t bits = mixed(mixed(mixed(own->key, (uint64_t)number), (uint64_t)own->steps), 0);
        double wanted = (double)(bits >> 11) * 0x1p-53 * sum, before = (double)s->weights.values[0];
        while (place + 1 < words && !(before > wanted)) before += (double)s->weights.values[++place];
        float value = own_logits[place] + add;
        if (!add_node(s, own, place, row, value)) return false;
        int32_t at = (int32_t)own->node_count - 1;
        if (id_of(own, place) == EOS) finish(s, own, (value - own->given) / (float)penalty_of(s, own->steps + 1), at);
        else s->next[alive] = (ranked){value, at, number}, s->parents[alive++] = row;
    }
    own->steps++;
    memcpy(own->alive, s->next, (size_t)alive * sizeof *s->next);
    own->alive_count = alive;
    return true;
}

/* Whether no further step is needed. */
static bool is_done(const searcher *s, const slot *own) {
    if (own->steps >= own->limit || !own->alive_count) return true;
    if (s->set->sample) return false;
    if (is_greedy(s)) return own->steps && own->nodes[own->alive[0].node].token == EOS;
    i64 wanted = s->set->n_best < s->beam ? s->set->n_best : s->beam;
    double possible = ((double)own->alive[0].value - (double)own->given) / penalty_of(s, own->limit);
    if (!own->finished_count) return false;
    return (double)own->finished[own->finished_count - 1].value > possible ||
           (own->finished_count >= wanted && (double)own->finished[wanted - 1].value > possible);
}

/* --- one step of all --- */

/* Logits of rows of one model, over all words or those of a slot. */
static void logits_of(searcher *s, int m, const slot *own, i64 first, i64 count, float *to, i64 stride) {
    i64 apart;
    const float *features = runner_features(s->runners[m], first, &apart);
    const tensor *table = own->words.whole ? &s->models[m]->tensors[s->models[m]->set.table] : &own->words.tables[m];
    s->k->linear(table, features, apart, table->bias, NO_ACTIVATION, to, stride, count, s->scratch.values);
}

/* Whether the order of words is all that the search looks at, so that probabilities need no logarithm. */
static bool needs_order_alone(const searcher *s) {
    const nmt_options *o = s->set;
    bool alone = is_greedy(s) && !o->scores && !o->entropies && !o->min_length && !o->no_repeat_ngram && o->repeat_penalty == 1.0f;
    for (i64 i = 0; i < s->active && alone; i++) alone = !s->all[s->order[i]].asked;
    return alone;
}

/* The mean of the models' probabilities in place of logits, as logarithms unless their order alone is needed. */
static void mean_of_models(searcher *s, const slot *own, i64 first, i64 count, i64 words, i64 stride) {
    const bool order = needs_order_alone(s);
    for (int m = 0; m < s->count; m++) {
        logits_of(s, m, own, first, count, s->single.values, stride);
        for (i64 row = 0; row < count; row++) {
            double sum;
            float *x = s->single.values + row * stride, *to = s->logits.values + row * stride;
            if (order) {
                if (!m) memset(to, 0, (size_t)words * sizeof *to);
                s->k->add_softmax(x, words, to);
                continue;
            }
            const float top = s->k->log_sum_parts(x, words, &sum), norm = (float)((double)top + log(sum * s->count));
            if (m) s->k->add_log(x, norm, to, words);
            else
#pragma omp simd
                for (i64 j = 0; j < words; j++) to[j] = x[j] - norm;
        }
    }
}

/* Room for the attention of this step, which begins as zeros. */
static bool add_attention(slot *own) {
    size_t used = own->attention_count * (size_t)own->length, more = (size_t)own->alive_count * (size_t)own->length;
    if (!grown(&own->attention, sizeof *own->attention, &own->attention_room, used + more)) return false;
    memset(own->attention + used, 0, more * sizeof(float));
    own->attention_count += (size_t)own->alive_count;
    return true;
}

/* Where the attention of a row of a slot is told in this step. */
static float *told_at(const searcher *s, const slot *own, i64 row) {
    return attends(s) ? own->attention + (size_t)attention_row(s, own, row) * (size_t)own->length : NULL;
}

/* Computes the features of all rows by all models; returns how many rows there are, -1 where memory ends. */
static i64 compute(searcher *s) {
    i64 count = 0;
    for (i64 i = 0; attends(s) && i < s->active; i++)
        if (!add_attention(&s->all[s->order[i]])) return -1;
    for (int m = 0; m < s->count; m++) {
        count = 0;
        for (i64 i = 0; i < s->active; i++) {
            const slot *own = &s->all[s->order[i]];
            for (i64 k = 0; k < own->alive_count; k++) {
                int32_t at = own->alive[k].node;
                s->now[count++] = (hypothesis_row){&own->memories[m], at < 0 ? -1 : own->nodes[at].token, own->steps,
                                                   told_at(s, own, k)};
            }
        }
        if (!runner_step(s->runners[m], s->now, count)) return -1;
    }
    for (i64 i = 0; attends(s) && s->count > 1 && i < s->active; i++) {
        const slot *own = &s->all[s->order[i]];
        float *told = told_at(s, own, 0);
        for (i64 j = 0; j < own->alive_count * own->length; j++) told[j] /= (float)s->count;
    }
    return count;
}

/* One step of all slots, which leaves in s->from where their hypotheses come from. */
static bool step(searcher *s) {
    i64 count = compute(s), row = 0, first = 0, computed = 0, kept = 0, vocabulary = s->models[0]->set.target_size;
    i64 stride = (vocabulary + STRIP - 1) / STRIP * STRIP;
    for (i64 i = 0; i < s->active && count >= 0; i++) {
        slot *own = &s->all[s->order[i]];
        i64 words = own->words.count ? own->words.count : vocabulary, alive = own->alive_count;
        if (row + alive > computed) { /* for this slot and those that fit beside it, unless it has a table of its own */
            i64 many = alive;
            for (i64 j = i + 1; own->words.whole && j < s->active; j++) {
                const slot *other = &s->all[s->order[j]];
                if (!other->words.whole || many + other->alive_count > rows_at_once(s)) break;
                many += other->alive_count;
            }
            if (s->count > 1)
                mean_of_models(s, own, row, many, own->words.whole ? vocabulary : words, stride);
            else
                logits_of(s, 0, own, row, many, s->logits.values, stride);
            first = row, computed = row + many;
        }
        float *logits = s->logits.values + (row - first) * stride;
        for (i64 j = 0; own->words.whole && j < own->words.count; j++) logits[j] = logits[own->words.ids[j]];
        bool fine = is_greedy(s)     ? advance_greedily(s, own, logits, words, s->count > 1)
                    : s->set->sample ? advance_samples(s, own, logits, stride, words, s->count > 1)
                                     : advance_beam(s, own, logits, stride, words, s->count > 1);
        if (!fine) return false;
        for (i64 k = 0; k < own->alive_count; k++) s->from[kept++] = row + s->parents[k];
        row += alive;
    }
    return count >= 0;
}

/* Writes down the sentences that are done and lets the next ones come in. */
static bool change(searcher *s, next_sentence next, void *context, found_list *results) {
    i64 row = 0, kept = 0, active = 0;
    bool fine = true;
    for (i64 i = 0; fine && i < s->active; i++) {
        slot *own = &s->all[s->order[i]];
        i64 alive = own->alive_count;
        if (is_done(s, own)) {
            fine = collect(s, own, &results[own->number]);
            own->busy = false;
        } else {
            memmove(s->from + kept, s->from + row, (size_t)alive * sizeof *s->from);
            kept += alive, s->order[active++] = s->order[i];
        }
        row += alive;
    }
    for (int m = 0; fine && m < s->count; m++) fine = runner_reorder(s->runners[m], s->from, kept);
    for (i64 i = 0; fine && i < s->slots; i++) {
        if (s->all[i].busy) continue;
        const sentence *what = next(context);
        if (!what) break;
        fine = begin(s, &s->all[i], what, kept++);
        s->order[active++] = i;
    }
    s->active = active;
    return fine;
}

bool searcher_run(searcher *s, const nmt_options *set, next_sentence next, void *context, found_list *results) {
    s->set = set, s->active = 0;
    bool fine = open_slots(s, rows_of(set)) && change(s, next, context, results);
    while (fine && s->active) fine = !is_stopped(set) && step(s) && change(s, next, context, results);
    return fine;
}
