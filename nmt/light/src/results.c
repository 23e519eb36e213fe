/* Results: the functions of nmt_engine.h to translate lines and to read the results. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

enum { LONGEST_LINE = 1 << 28 }; /* what subwords_encode takes */

#define REFUSE(...) return snprintf(problem, room, __VA_ARGS__), NULL

void nmt_free(nmt_results *r) {
    if (!r) return;
    for (size_t i = 0; r->lines && i < r->count; i++) {
        for (size_t k = 0; r->lines[i].texts && k < r->lines[i].count; k++) free(r->lines[i].texts[k]);
        free(r->lines[i].texts);
        free(r->lines[i].sizes);
    }
    for (size_t i = 0; r->found && i < r->all.parts; i++) found_clear(&r->found[i]);
    free(r->lines);
    free(r->found);
    sentences_clear(&r->all);
    free(r->joined);
    free(r);
}

/* The i-th best translation of a part, or its last. */
static const found *found_of(const nmt_results *r, const line_result *line, size_t i, size_t part) {
    const found_list *list = &r->found[line->first + part];
    return &list->best[i < (size_t)list->count ? i : (size_t)list->count - 1];
}

static bool is_finite(const nmt_results *r, const line_result *line) {
    for (size_t p = 0; p < line->parts; p++)
        if (!found_of(r, line, 0, p)->finite) return false;
    return true;
}

/* Text of the i-th best translation: the parts, with the white space before each. */
static bool write_text(const nmt_model *m, const nmt_results *r, const line_result *line, size_t i, char **text,
                       size_t *size) {
    char *part = NULL;
    size_t part_room = 0;
    *text = calloc(1, 1), *size = 0;
    bool fine = *text != NULL;
    for (size_t p = 0; fine && p < line->parts; p++) {
        const found *one = found_of(r, line, i, p);
        int64_t bytes = subwords_decode(m->target, one->ids, one->count, &part, &part_room);
        fine = bytes >= 0;
        if (bytes <= 0) continue;
        size_t number = line->first + p, begin = number ? r->all.space_ends[number - 1] : 0,
               spaces = *size ? r->all.space_ends[number] - begin : 0;
        char *more = realloc(*text, *size + spaces + (size_t)bytes + 1);
        if (!(fine = more != NULL)) break;
        *text = more;
        if (spaces) memcpy(*text + *size, r->all.spaces + begin, spaces);
        *size += spaces;
        for (int64_t j = 0; j < bytes; j++) (*text)[(*size)++] = part[j] == '\n' || part[j] == '\r' ? ' ' : part[j];
    }
    free(part);
    return fine;
}

static bool write_line(const nmt_model *m, const nmt_results *r, line_result *line, bool texts) {
    line->count = 1;
    for (size_t p = 0; p < line->parts && is_finite(r, line); p++)
        if ((size_t)r->found[line->first + p].count > line->count)
            line->count = (size_t)r->found[line->first + p].count;
    if (!texts) return true;
    line->texts = calloc(line->count, sizeof *line->texts);
    line->sizes = calloc(line->count, sizeof *line->sizes);
    if (!line->texts || !line->sizes) return false;
    if (!is_finite(r, line)) return (line->texts[0] = calloc(1, 1)) != NULL;
    for (size_t i = 0; i < line->count; i++)
        if (!write_text(m, r, line, i, &line->texts[i], &line->sizes[i])) return false;
    return true;
}

static bool join_lines(nmt_results *r) {
    size_t size = 0;
    for (size_t i = 0; i < r->count; i++) size += r->lines[i].sizes[0] + 1;
    if (!(r->joined = malloc(size + 1))) return false;
    for (size_t i = 0; i < r->count; i++) {
        memcpy(r->joined + r->joined_size, r->lines[i].texts[0], r->lines[i].sizes[0]);
        r->joined_size += r->lines[i].sizes[0];
        r->joined[r->joined_size++] = '\n';
    }
    return true;
}

static const char *problem_of(const nmt_model *m, const nmt_options *o) {
    if ((uint64_t)o->beam_size * m->models[0]->set.target_size > INT32_MAX)
        return "beam_size is too large for this vocabulary";
    return o->n_best > o->beam_size ? "n_best must be 1 to beam_size" : NULL;
}

static nmt_results *new_results(const nmt_model *m, size_t count, const nmt_options *o, char *problem, size_t room) {
    if (!options_allowed(o, problem, room)) return NULL;
    const char *said = problem_of(m, o);
    if (said) REFUSE("%s", said);
    nmt_results *r = calloc(1, sizeof *r);
    if (r) r->lines = calloc(count + 1, sizeof *r->lines);
    if (!r || !r->lines) {
        nmt_free(r);
        REFUSE("not enough memory");
    }
    r->count = count;
    return r;
}

/* Searches what has been added, and makes texts of it if they are wanted. */
static nmt_results *complete(nmt_model *m, nmt_results *r, const nmt_options *o, bool texts, char *problem,
                             size_t room) {
    r->found = calloc(r->all.parts + 1, sizeof *r->found);
    bool fine = r->found && (!r->all.parts || search_all(m, r, o));
    for (size_t i = 0; fine && i < r->count; i++) fine = write_line(m, r, &r->lines[i], texts);
    if (fine && (!texts || join_lines(r))) return r;
    nmt_free(r);
    REFUSE("%s", is_stopped(o) ? "stopped" : "not enough memory");
}

nmt_results *nmt_cut(nmt_model *m, const char *const *lines, const size_t *sizes, size_t count, const nmt_options *o,
                     char *problem, size_t room) {
    nmt_results *r = new_results(m, count, o, problem, room);
    cutting how = {&m->rules, m->split, m->trained, (size_t)o->split_long, m->spaced};
    if (o->split) how.split = o->split == 1 ? SPLIT_ALL : SPLIT_NONE;
    for (size_t i = 0; r && i < count; i++) {
        r->lines[i].first = r->all.parts;
        if (sizes[i] > LONGEST_LINE) {
            nmt_free(r);
            REFUSE("line %zu: more than %d bytes", i, (int)LONGEST_LINE);
        }
        if (!add_line(&r->all, m->source, &how, lines[i], sizes[i], &r->lines[i].cut)) {
            nmt_free(r);
            REFUSE("not enough memory");
        }
        r->lines[i].parts = r->all.parts - r->lines[i].first;
    }
    return r;
}

nmt_results *nmt_translate(nmt_model *m, const char *const *lines, const size_t *sizes, size_t count,
                           const nmt_options *o, char *problem, size_t room) {
    nmt_results *r = nmt_cut(m, lines, sizes, count, o, problem, room);
    return r ? complete(m, r, o, true, problem, room) : NULL;
}

nmt_results *nmt_translate_ids(nmt_model *m, const int32_t *const *ids, const size_t *lengths, size_t count,
                               const nmt_options *o, char *problem, size_t room) {
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < lengths[i]; k++)
            if (ids[i][k] < 0 || (uint32_t)ids[i][k] >= m->models[0]->set.source_size)
                REFUSE("sentence %zu: id %d is not in the vocabulary of %u", i, ids[i][k],
                       m->models[0]->set.source_size);
    nmt_results *r = new_results(m, count, o, problem, room);
    for (size_t i = 0; r && i < count; i++) {
        r->lines[i].first = r->all.parts;
        r->lines[i].cut.sentences = lengths[i] > 0;
        if (lengths[i] && !add_sentence(&r->all, ids[i], lengths[i], "", 0)) {
            nmt_free(r);
            REFUSE("not enough memory");
        }
        r->lines[i].parts = r->all.parts - r->lines[i].first;
    }
    return r ? complete(m, r, o, false, problem, room) : NULL;
}

size_t nmt_count(const nmt_results *r, size_t line) { return r->lines[line].count; }

const char *nmt_text(const nmt_results *r, size_t line, size_t i, size_t *size) {
    if (!r->lines[line].texts) return NULL;
    *size = r->lines[line].sizes[i];
    return r->lines[line].texts[i];
}

float nmt_score(const nmt_results *r, size_t line, size_t i) {
    const line_result *own = &r->lines[line];
    float score = 0.0f;
    if (!is_finite(r, own)) return -INFINITY;
    for (size_t p = 0; p < own->parts; p++) score += found_of(r, own, i, p)->score;
    return score;
}

const char *nmt_lines(const nmt_results *r, size_t *size) {
    *size = r->joined_size;
    return r->joined;
}

int32_t nmt_flags(const nmt_results *r, size_t line) {
    const line_result *own = &r->lines[line];
    int32_t flags = is_finite(r, own) ? 0 : NMT_NOT_FINITE;
    flags |= own->cut.several ? NMT_SEVERAL : 0;
    for (size_t p = 0; p < own->parts; p++)
        if (found_of(r, own, 0, p)->finite && !found_of(r, own, 0, p)->ended) flags |= NMT_CUT;
    return flags;
}

size_t nmt_parts(const nmt_results *r, size_t line) { return r->lines[line].parts; }

size_t nmt_sentences(const nmt_results *r, size_t line) { return r->lines[line].cut.sentences; }

const int32_t *nmt_source_ids(const nmt_results *r, size_t line, size_t part, size_t *count) {
    size_t number = r->lines[line].first + part, start = number ? r->all.ends[number - 1] : 0;
    *count = r->all.ends[number] - start;
    return r->all.ids + start;
}

const int32_t *nmt_ids(const nmt_results *r, size_t line, size_t i, size_t part, size_t *count) {
    const found *one = found_of(r, &r->lines[line], i, part);
    *count = (size_t)one->count + one->ended;
    return one->ids;
}

const float *nmt_log_probs(const nmt_results *r, size_t line, size_t i, size_t part) {
    return found_of(r, &r->lines[line], i, part)->log_probs;
}

const float *nmt_attention(const nmt_results *r, size_t line, size_t i, size_t part) {
    return found_of(r, &r->lines[line], i, part)->attention;
}
