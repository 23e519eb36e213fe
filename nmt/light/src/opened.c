/* Opened models: the functions of nmt_engine.h to open, close and describe them. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

#define REFUSE(...) return snprintf(problem, room, __VA_ARGS__), NULL

void nmt_close(nmt_model *m) {
    if (!m) return;
    for (int i = 0; i < IDLE; i++) searcher_close(atomic_load(&m->idle[i]));
    for (int i = 0; i < m->count; i++) {
        model_close(m->models[i]);
        free(m->files[i]);
    }
    if (m->target != m->source) subwords_close(m->target);
    subwords_close(m->source);
    free(m);
}

static void refuse_kernels(const char *name, char *problem, size_t room) {
    int size = snprintf(problem, room,
                        "kernels: '%.40s' is not known, or this processor lacks them. Allowed:", name ? name : "");
    for (const char *const *known = kernel_names(); *known && size > 0 && (size_t)size < room; known++)
        size += snprintf(problem + size, room - (size_t)size, " %s%s", *known, known[1] ? "," : ".");
}

/* The value of a key of a card, behind the colon; null where there is none. Within a JSON string no quotation mark stands
   without a backslash. */
static const char *card_value(span card, const char *key, size_t *left) {
    const char *bytes = card.bytes;
    size_t size = strlen(key);
    for (size_t i = 1; card.bytes && i + size + 2 < card.size; i++) {
        if (bytes[i - 1] == '\\' || bytes[i] != '"' || memcmp(bytes + i + 1, key, size) || bytes[i + size + 1] != '"') continue;
        size_t at = i + size + 2;
        while (at < card.size && (bytes[at] == ':' || bytes[at] == ' ')) at++;
        return *left = card.size - at, bytes + at;
    }
    return NULL;
}

/* The number there, from 0 on, or -1; by hand, because a program may have set a language whose numbers have commas. */
static double card_number(span card, const char *key) {
    size_t left = 0, i = 0;
    const char *p = card_value(card, key, &left);
    double value = 0, unit = 1;
    if (!p || !left || p[0] < '0' || p[0] > '9') return -1;
    for (; i < left && p[i] >= '0' && p[i] <= '9'; i++) value = 10 * value + (p[i] - '0');
    if (i < left && p[i] == '.')
        for (i++; i < left && p[i] >= '0' && p[i] <= '9'; i++) value += (p[i] - '0') * (unit /= 10);
    return i < left && p[i] == 'e' ? 0 : value; /* 1e-05 */
}

static void card_text(span card, const char *key, char *to, size_t room) {
    size_t left = 0, size = 0;
    const char *found = card_value(card, key, &left);
    if (found && left && *found == '"')
        while (size + 1 < left && size + 1 < room && found[size + 1] != '"') to[size] = found[size + 1], size++;
    to[size] = 0;
}

/* How lines are cut: split where the training text of a model had one sentence a line; where a card does not say it,
   only lines longer than any in training. */
static void read_cards(nmt_model *m) {
    char language[32];
    card_text(m->models[0]->meta, "source_language", language, sizeof language);
    m->rules = split_rules_of(language);
    card_text(m->models[0]->meta, "target_language", language, sizeof language);
    m->spaced = nmt_is_spaced(language);
    m->split = SPLIT_NONE;
    for (int i = 0; i < m->count; i++) {
        double share = card_number(m->models[i]->meta, "sources_of_several_sentences"),
               longest = card_number(m->models[i]->meta, "longest_training_source");
        if (longest < 0) longest = card_number(m->models[i]->meta, "training_max_length");
        split_mode own = share < 0 ? SPLIT_LONGER : nmt_splits(share) ? SPLIT_ALL : SPLIT_NONE;
        if (own > m->split) m->split = own;
        if (longest >= 1 && longest < INT32_MAX && (!m->trained || longest < (double)m->trained)) m->trained = (size_t)longest;
    }
}

static nmt_model *finish_open(nmt_model *m, const char *name, const char *what, char *problem, size_t room) {
    const model *first = m->models[0];
    const char *said = NULL;
    char own[200];
    read_cards(m);
    m->k = choose_kernels(name);
    if (!options_of_model(first, &m->defaults, own, sizeof own))
        snprintf(problem, room, "%s: %s", what, own);
    else if (!m->k)
        refuse_kernels(name, problem, room);
    else if (!(m->source = subwords_open(first->source_pieces.bytes, first->source_pieces.size, &said)))
        snprintf(problem, room, "%s: the SentencePiece model of the source: %s", what, said);
    else if (first->target_pieces.bytes == first->source_pieces.bytes)
        m->target = m->source;
    else if (!(m->target = subwords_open(first->target_pieces.bytes, first->target_pieces.size, &said)))
        snprintf(problem, room, "%s: the SentencePiece model of the target: %s", what, said);
    if (!m->target) return nmt_close(m), NULL;
    if (subwords_size(m->source) != (int32_t)first->set.source_size ||
        subwords_size(m->target) != (int32_t)first->set.target_size) {
        snprintf(problem, room, "%s: inconsistent: its SentencePiece models have other sizes than its vocabularies",
                 what);
        return nmt_close(m), NULL;
    }
    return m;
}

static bool same_span(span a, span b) { return a.size == b.size && !memcmp(a.bytes, b.bytes, a.size); }

nmt_model *nmt_open(const char *const *files, int32_t count, const char *name, char *problem, size_t room) {
    char own[200] = "";
    if (count < 1 || count > LARGEST_ENSEMBLE)
        REFUSE("1 to %d models can be opened together, not %d", LARGEST_ENSEMBLE, count);
    nmt_model *m = calloc(1, sizeof *m);
    if (!m) REFUSE("not enough memory");
    for (; m->count < count; m->count++) {
        int i = m->count;
        size_t size;
        m->files[i] = read_file(files[i], model_begins, &size, own, sizeof own);
        if (m->files[i]) m->models[i] = model_open(m->files[i], size, own, sizeof own);
        const char *said = m->models[i] ? NULL : own;
        if (!said && i &&
            (m->models[i]->set.source_size != m->models[0]->set.source_size ||
             m->models[i]->set.target_size != m->models[0]->set.target_size ||
             !same_span(m->models[i]->source_pieces, m->models[0]->source_pieces) ||
             !same_span(m->models[i]->target_pieces, m->models[0]->target_pieces)))
            said = "has another tokenizer than the first model of the ensemble";
        if (!said) continue;
        snprintf(problem, room, "%s: %s", files[i], said);
        m->count++;
        return nmt_close(m), NULL;
    }
    return finish_open(m, name, files[0], problem, room);
}

nmt_model *nmt_open_memory(const void *bytes, size_t size, const char *name, char *problem, size_t room) {
    nmt_model *m = calloc(1, sizeof *m);
    if (!m) REFUSE("not enough memory");
    if (!(m->models[0] = model_open(bytes, size, problem, room))) return free(m), NULL;
    m->count = 1;
    return finish_open(m, name, "the model", problem, room);
}

nmt_options nmt_defaults(const nmt_model *m) { return m->defaults; }

void nmt_options_begin(const nmt_model *m, nmt_options *o) { *o = m->defaults; }

const char *nmt_kernels(const nmt_model *m) { return m->k->name; }

const char *nmt_card(const nmt_model *m, int32_t number, size_t *size) {
    span card = number >= 0 && number < m->count ? m->models[number]->meta : (span){0};
    *size = card.size;
    return card.bytes;
}

const char *nmt_piece(const nmt_model *m, int32_t target, int32_t id, size_t *size) {
    return subwords_piece(target ? m->target : m->source, id, size);
}

