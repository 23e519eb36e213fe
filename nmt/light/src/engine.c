/* The functions of nmt_engine.h: options, models opened and described, lines cut into what is translated at once, shared
   among threads, and their results. */

#include "engine.h"

#include <math.h>
#include <stdio.h>

#include "case.h"
#include "kept.h"
#include "system.h"

/* Hypotheses that a thread computes at once: more of a model that its caches do not hold. */
enum { ROWS = 16, ROWS_OF_LARGE = 40, LARGE = 8 << 20 };
enum { LONGEST_LINE = 1 << 28 }; /* what subwords_encode takes */

/* A line: its parts are `first` to `first + parts`. */
typedef struct {
    size_t first, parts;
    size_t sentences; /* that are translated by themselves */
    bool several;     /* has several sentences, but is translated as a whole */
    size_t count;     /* of translations */
    struct {
        char *bytes;
        size_t size;
        word_pairs aligned; /* where that is wanted */
    } *texts;
    wishes *asked; /* null: nothing */
    char *small;   /* what is read instead of a line in capitals; null: nothing */
    kept_line *kept;   /* null: nothing is */
    text read;         /* what the model reads for it; that of a call, during this */
    bool stays;        /* has no words, but what is kept, and is its own translation */
} line_result;

struct nmt_results {
    size_t count;
    line_result *lines;
    /* Parts of all lines in ids, one after the other, and the white space before the translation of each. */
    int32_t *ids;
    stretch *places; /* of each of these in what the model reads; null where nothing is kept or replaced */
    char *spaces;
    struct {
        size_t ids, spaces;
    } *ends; /* of each part */
    size_t place_room;
    bool keeps, replaces; /* placeholders, unknown words */
    bool aligns;          /* tells which words those of a translation come from */
    size_t id_count, id_room, space_count, space_room, parts, part_room;
    found_list *found; /* of each part */
    char *joined;      /* the best translations of all lines */
    size_t joined_size;
};

#define REFUSE(...) return snprintf(problem, room, __VA_ARGS__), NULL

/* --- options, each once: what it may be, and what it is where a file does not say. Their order is that of the names, for
   whoever sets them by name --- */

typedef struct {
    const char *name;
    size_t offset;
    bool is_float;
    double least, most, usual;
} option;

#define IS_FLOAT(name) _Generic(((nmt_options *)0)->name, float: true, default: false)
#define ROW(name, least, most, usual) {#name, offsetof(nmt_options, name), IS_FLOAT(name), least, most, usual}

static const option TABLE[] = {
    ROW(beam_size, 1, 1000, 1),
    ROW(beam_of_one, 0, 1, 0),
    ROW(n_best, 1, 1000, 1),
    ROW(max_length_offset, 0, 1000000, 0),
    ROW(max_length_factor, 0, 10, 1),
    ROW(length_penalty, 0, 10, 0),
    ROW(length_normalization, 0, 1, 0),
    ROW(threads, 1, 1024, 1),
    ROW(shortlist, 0, 1, 1),
    ROW(scores, 0, 1, 1),
    ROW(attention, 0, 1, 0),
    ROW(split, 0, 2, 0),
    ROW(capitals, 0, 1, 0),
    ROW(split_long, 0, INT32_MAX, 0),
    ROW(repeat_penalty, 0.01, 10, 1),
    ROW(min_length, 0, 1000000, 0),
    ROW(no_repeat_ngram, 0, INT32_MAX, 0),
    ROW(coverage_penalty, 0, 10, 0),
    ROW(target_language, 0, INT32_MAX, 0),
    ROW(sample, 0, 1, 0),
    ROW(temperature, 0.0001, 10000, 1),
    ROW(top_k, 0, INT32_MAX, 0),
    ROW(top_p, 0.0001, 1, 1),
    ROW(seed, INT32_MIN, INT32_MAX, 1),
    ROW(placeholders, 0, 1, 0),
    ROW(replace_unknown, 0, 1, 0),
    ROW(entropies, 0, 1, 0),
};
enum { COUNT = sizeof TABLE / sizeof *TABLE };

_Static_assert(offsetof(nmt_options, glossary) - COUNT * sizeof(int32_t) < sizeof(int32_t *), "each option has a row");

static double value_of(const nmt_options *o, const option *r) {
    const char *at = (const char *)o + r->offset;
    float number;
    int32_t whole;
    memcpy(&number, at, sizeof number);
    memcpy(&whole, at, sizeof whole);
    return r->is_float ? (double)number : whole;
}

static const option *option_named(const char *name) {
    for (int i = 0; i < COUNT; i++)
        if (!strcmp(TABLE[i].name, name)) return &TABLE[i];
    return NULL;
}

static bool is_allowed(const option *r, double value, char *problem, size_t room) {
    bool fits = r->is_float ? (float)value >= (float)r->least && (float)value <= (float)r->most
                            : value >= r->least && value <= r->most && value == floor(value);
    if (fits) return true;
    snprintf(problem, room, "%s must be %.10g to %.10g", r->name, r->least, r->most);
    return false;
}

size_t nmt_options_size(void) { return sizeof(nmt_options); }

const char *nmt_option_name(int32_t i) { return i >= 0 && i < COUNT ? TABLE[i].name : NULL; }

double nmt_option(const nmt_options *o, const char *name) {
    const option *r = option_named(name);
    return r ? value_of(o, r) : NAN;
}

int32_t nmt_set_option(nmt_options *o, const char *name, double value, char *problem, size_t room) {
    const option *r = option_named(name);
    if (!r) {
        int size = snprintf(problem, room, "%.40s: is not an option of the engine. Allowed:", name);
        for (int i = 0; i < COUNT && size > 0 && (size_t)size < room; i++)
            size += snprintf(problem + size, room - (size_t)size, " %s%s", TABLE[i].name, i + 1 < COUNT ? "," : ".");
        return 0;
    }
    if (!is_allowed(r, value, problem, room)) return 0;
    float number = (float)value;
    int32_t whole = r->is_float ? 0 : (int32_t)value;
    memcpy((char *)o + r->offset, r->is_float ? (const void *)&number : (const void *)&whole, sizeof whole);
    return 1;
}

void nmt_set_stop(nmt_options *o, const volatile int32_t *stop) { o->stop = stop; }

void nmt_set_glossary(nmt_options *o, const nmt_glossary *glossary) { o->glossary = glossary; }

/* The options that a file asks for; false with a line where this engine cannot do what it asks for. */
static bool options_of_model(const model *m, nmt_options *o, char *problem, size_t room) {
    char said[100];
    memset(o, 0, sizeof *o);
    for (int i = 0; i < COUNT; i++) nmt_set_option(o, TABLE[i].name, TABLE[i].usual, said, sizeof said);
    const settings *set = &m->set;
    o->beam_size = (int32_t)set->beam_size, o->max_length_offset = (int32_t)set->length_offset;
    o->length_penalty = set->length_penalty, o->split_long = (int32_t)set->longest;
    for (size_t i = 0; i < m->stored.size; i += sizeof(stored_option)) {
        const stored_option *one = (const stored_option *)((const char *)m->stored.bytes + i);
        if (one->name[sizeof one->name - 1])
            return snprintf(problem, room, "inconsistent: an option whose name does not end"), false;
        if (nmt_set_option(o, one->name, (double)one->value, said, sizeof said)) continue;
        if (option_named(one->name)) return snprintf(problem, room, "inconsistent: %s", said), false;
        snprintf(problem, room, "asks for the option '%s', which this version of the engine does not have", one->name);
        return false;
    }
    return true;
}

/* --- models --- */

void nmt_close(nmt_model *m) {
    if (!m) return;
    for (int i = 0; i < IDLE; i++) searcher_close(atomic_load(&m->idle[i]));
    for (int i = 0; i < m->count; i++) {
        model_close(m->models[i]);
        aligned_free(m->files[i]);
    }
    vocabulary_close(atomic_load(&m->words));
    free(m->languages);
    if (m->target != m->source) subwords_close(m->target);
    subwords_close(m->source);
    free(m);
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
    m->is_english = !strncmp(language, "en", 2) && (!language[2] || language[2] == '-');
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

/* Bytes of `>>CODE<<` at the beginning of a text, 0 for another text; a CODE has no spaces, < and >. */
static size_t tag_size(const char *begin, const char *end) {
    const char *p = begin + 2;
    int bytes = 1;
    if (end - begin < 5 || memcmp(begin, ">>", 2)) return 0;
    while (p < end && *p != '<' && *p != '>' && !is_space(character_at(p, end, &bytes))) p += bytes;
    return p > begin + 2 && end - p >= 2 && !memcmp(p, "<<", 2) ? (size_t)(p - begin) + 2 : 0;
}

/* A source token without the space before it, whose size is 0 unless it is the token of a language. */
static const char *tag_of(const nmt_model *m, int32_t id, size_t *size) {
    const char *piece = subwords_word(m->source, id, size);
    if (*size && tag_size(piece, piece + *size) != *size) *size = 0;
    return piece;
}

static bool find_languages(nmt_model *m) {
    size_t room = 0, size;
    for (int32_t id = EOS + 1; id < subwords_size(m->source); id++) {
        tag_of(m, id, &size);
        if (!size) continue;
        if (!grown(&m->languages, sizeof *m->languages, &room, m->language_count + 1)) return false;
        m->languages[m->language_count++] = id;
    }
    return true;
}

/* Null, or a line in `problem`: what a first or only file, called `what`, lacks for a translation. */
static nmt_model *finish_open(nmt_model *m, const char *name, const char *what, char *problem, size_t room) {
    const model *first = m->models[0];
    const span source = first->source_pieces, target = first->target_pieces;
    const char *said = NULL;
    char own[200];
    read_cards(m);
    for (int i = 0; kernel_tables()[i] && !m->k; i++)
        if (!name || !strcmp(name, kernel_tables()[i]->name)) m->k = kernel_tables()[i];
    if (!options_of_model(first, &m->defaults, own, sizeof own)) {
        snprintf(problem, room, "%s: %s", what, own);
    } else if (!m->k) {
        int size = snprintf(problem, room, "kernels: '%.40s' is not known, or this processor lacks them. Allowed:",
                            name ? name : "");
        for (const kernels *const *k = kernel_tables(); *k && size > 0 && (size_t)size < room; k++)
            size += snprintf(problem + size, room - (size_t)size, " %s%s", (*k)->name, k[1] ? "," : ".");
    } else if (!(m->source = subwords_open(source.bytes, source.size, &said))) {
        snprintf(problem, room, "%s: the SentencePiece model of the source: %s", what, said);
    } else if (!(m->target = target.bytes == source.bytes ? m->source
                                                          : subwords_open(target.bytes, target.size, &said))) {
        snprintf(problem, room, "%s: the SentencePiece model of the target: %s", what, said);
    } else if (subwords_size(m->source) != (int32_t)first->set.source_size ||
               subwords_size(m->target) != (int32_t)first->set.target_size) {
        snprintf(problem, room, "%s: inconsistent: its SentencePiece models have other sizes than its vocabularies",
                 what);
    } else if (!find_languages(m)) {
        snprintf(problem, room, "not enough memory");
    } else {
        return m;
    }
    return nmt_close(m), NULL;
}

static bool same_span(span a, span b) { return a.size == b.size && !memcmp(a.bytes, b.bytes, a.size); }

nmt_model *nmt_open(const char *const *files, int32_t count, const char *kernels, char *problem, size_t room) {
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
    return finish_open(m, kernels, files[0], problem, room);
}

nmt_model *nmt_open_memory(const void *bytes, size_t size, const char *kernels, char *problem, size_t room) {
    nmt_model *m = calloc(1, sizeof *m);
    if (!m) REFUSE("not enough memory");
    if (!(m->models[0] = model_open(bytes, size, problem, room))) return free(m), NULL;
    m->count = 1;
    return finish_open(m, kernels, "the model", problem, room);
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

nmt_glossary *nmt_glossary_open(const nmt_model *m, const char *lines, size_t size, char *problem, size_t room) {
    return glossary_open(m->source, (text){lines, lines + size}, problem, room);
}

int32_t nmt_language(const nmt_model *m, int32_t i) {
    return i >= 0 && (size_t)i < m->language_count ? m->languages[i] : 0;
}

/* --- lines into what is translated at once: their sentences, or all of a line, and of what is too long parts, which are
   cut at the ends of sentences, else between words, else within --- */

/* The token of the language that a line begins with, behind which it begins then, or else the usual one; 0 where that is
   none, or not known. */
static int32_t language_of(const nmt_model *m, text *line, int32_t usual) {
    const char *begin = after_spaces(*line);
    size_t size = tag_size(begin, line->end), own;
    for (size_t i = 0; size && i < m->language_count; i++) {
        const char *tag = tag_of(m, m->languages[i], &own);
        if (own != size || memcmp(tag, begin, size)) continue;
        line->begin = after_spaces((text){begin + size, line->end});
        return m->languages[i];
    }
    return size ? 0 : usual;
}

/* Adds a part in ids, its end symbol, and the white space before its translation; `language` is before the ids, unless it
   is 0. False where memory ends, as below. */
static bool add_part(nmt_results *r, int32_t language, const int32_t *ids, const stretch *places, size_t count,
                     const char *space, size_t space_size) {
    if (!grown(&r->ids, sizeof *r->ids, &r->id_room, r->id_count + count + 2) ||
        !grown(&r->ends, sizeof *r->ends, &r->part_room, r->parts + 1) ||
        !grown(&r->spaces, 1, &r->space_room, r->space_count + space_size + 1) ||
        (places && !grown(&r->places, sizeof *r->places, &r->place_room, r->id_count + count + 2)))
        return false;
    if (places && language) r->places[r->id_count] = NOWHERE;
    if (places) memcpy(r->places + r->id_count + (language != 0), places, count * sizeof *places);
    if (places) r->places[r->id_count + (language != 0) + count] = NOWHERE;
    if (language) r->ids[r->id_count++] = language;
    memcpy(r->ids + r->id_count, ids, count * sizeof *ids);
    r->id_count += count;
    r->ids[r->id_count++] = EOS;
    for (size_t i = 0; i < space_size; i++)
        r->spaces[r->space_count++] = space[i] == '\n' || space[i] == '\r' ? ' ' : space[i];
    r->ends[r->parts].spaces = r->space_count;
    r->ends[r->parts++].ids = r->id_count;
    return true;
}

/* What cuts lines, and scratch memory for ids. */
typedef struct {
    const nmt_model *m;
    nmt_results *to;
    split_mode split;
    size_t longest;    /* tokens of a part; 0: any number */
    const char *space; /* before the next part, and its size */
    size_t space_size;
    int32_t language;  /* the token before each part; 0: none */
    int32_t *ids;
    size_t room;
    const kept_line *kept; /* of the line at hand; null: nothing */
    const char *read;      /* what the model reads for it */
    text at;               /* what of that has been encoded last */
    size_t last;           /* where the part before ends in it */
    char *between;
    size_t between_room;
    token_span *spans;     /* of the ids; and with placeholders as unknown words, whose ids stand in for them */
    stretch *places;
    int32_t *own;
    size_t span_room, place_room, own_room;
} cutter;

static int64_t encoded(cutter *c, text t) {
    c->at = t;
    bool places = c->to->keeps || c->to->replaces || c->to->aligns;
    return subwords_encode_spans(c->m->source, t.begin, (size_t)(t.end - t.begin), &c->ids, &c->room,
                                 places ? &c->spans : NULL, &c->span_room);
}

/* The first placeholder of a line that touches a place of what the model reads, or is behind it. */
static const kept *kept_from(const kept_line *k, size_t place) {
    size_t low = 0, high = k->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (k->items[middle].read.end <= place) low = middle + 1;
        else high = middle;
    }
    while (low < k->count && k->items[low].from.kind != KEPT_WORD) low++;
    return low < k->count ? &k->items[low] : NULL;
}

/* Adds some of the ids of what has been encoded last, with the unknown symbol for each placeholder: the model has no
   expectation about it, and the attention shows its translation. */
static bool add(cutter *c, size_t first, size_t count) {
    const char *space = c->space;
    size_t size = c->space_size, base = (size_t)(c->at.begin - c->read), used = 0;
    bool has_places = c->to->keeps || c->to->replaces || c->to->aligns;
    c->space = " ", c->space_size = 1; /* between the parts of a sentence */
    c->last = base + (size_t)(c->at.end - c->at.begin);
    if (!has_places) return add_part(c->to, c->language, c->ids + first, NULL, count, space, size);
    if (!grown(&c->own, sizeof *c->own, &c->own_room, count + 1) || !grown(&c->places, sizeof *c->places, &c->place_room, count + 1))
        return false;
    const kept *before = NULL;
    for (size_t i = first; i < first + count; i++) {
        stretch at = {c->spans[i].begin + base, c->spans[i].end + base};
        const kept *inside = c->kept ? kept_from(c->kept, at.begin) : NULL;
        if (inside && inside->read.begin >= (at.end > at.begin ? at.end : at.begin + 1)) inside = NULL;
        if (inside && inside == before) continue;
        if (inside) {
            text gap = used ? (text){c->read + c->places[used - 1].begin, c->read + c->places[used - 1].end} : (text){NULL, NULL};
            if (gap.begin < gap.end && after_spaces(gap) == gap.end) used--; /* a token of nothing but the space before it */
        }
        if (inside) before = inside;
        c->own[used] = inside ? UNK : c->ids[i];
        c->places[used++] = inside ? inside->read : at;
    }
    return !used || add_part(c->to, c->language, c->own, c->places, used, space, size);
}

enum { SENTENCES, WORDS, TOKENS };

static bool add_level(cutter *c, text t, int level);

/* A text that is encoded in so many ids, or -1: as one part, or in parts of a level where it is too long. */
static bool add_text(cutter *c, text t, int64_t count, int level) {
    if (count < 0) return false;
    if (c->longest && (size_t)count > c->longest) return add_level(c, t, level);
    return !count || add(c, 0, (size_t)count);
}

/* One group of neighbouring units, which is small enough unless it is a single unit. */
static bool add_group(cutter *c, text t, int level) {
    t = stripped(t);
    return add_text(c, t, encoded(c, t), level + 1);
}

static bool add_level(cutter *c, text t, int level) {
    size_t longest = c->longest, begin, end;
    if (level == TOKENS) {
        int64_t count = encoded(c, t);
        for (int64_t start = 0; start < count; start += (int64_t)longest) {
            size_t left = (size_t)(count - start);
            if (!add(c, (size_t)start, left < longest ? left : longest)) return false;
        }
        return count >= 0;
    }
    splitting s = split_begin(&c->m->rules, t.begin, (size_t)(t.end - t.begin));
    const char *first = t.begin, *group = t.begin;
    int64_t room = (int64_t)longest;
    while (t.begin < t.end) {
        const char *unit = t.end;
        int bytes;
        if (level == SENTENCES && split_next(&s, &begin, &end)) unit = first + end;
        if (level == WORDS)
            for (unit = t.begin; unit < t.end && !is_space(character_at(unit, t.end, &bytes));) unit += bytes;
        unit = after_spaces((text){unit, t.end});
        int64_t count = encoded(c, (text){t.begin, unit});
        if (count < 0) return false;
        if (count > room && group < t.begin) {
            if (!add_group(c, (text){group, t.begin}, level)) return false;
            group = t.begin, room = (int64_t)longest;
        }
        room -= count;
        t.begin = unit;
    }
    return group == t.end || add_group(c, (text){group, t.end}, level);
}

/* Of a line of which something is kept: the white space between two sentences there, where tags and the like have their own
   places. */
static bool space_of_line(cutter *c, size_t begin) {
    const kept_line *k = c->kept;
    if (begin <= c->last) return true;
    text between = {k->line.begin + k->origins[c->last], k->line.begin + k->origins[begin - 1] + 1};
    int bytes;
    if (between.begin >= between.end) return true;
    if (!grown(&c->between, 1, &c->between_room, (size_t)(between.end - between.begin))) return false;
    c->space = c->between, c->space_size = 0;
    for (const char *p = between.begin; p < between.end; p += bytes) {
        if (is_space(character_at(p, between.end, &bytes))) {
            memcpy(c->between + c->space_size, p, (size_t)bytes);
            c->space_size += (size_t)bytes;
        }
    }
    return true;
}

static bool add_sentences(cutter *c, text t, splitting s, line_result *line) {
    size_t begin, end, last = 0;
    while (split_next(&s, &begin, &end)) {
        size_t parts = c->to->parts;
        c->space = t.begin + last, c->space_size = last ? begin - last : 0;
        if (last == begin && c->m->spaced) c->space = " ", c->space_size = 1;
        text own = {t.begin + begin, t.begin + end};
        if (last && c->kept && !space_of_line(c, (size_t)(own.begin - c->read))) return false;
        if (!add_text(c, own, encoded(c, own), SENTENCES)) return false;
        line->sentences += c->to->parts > parts;
        last = end;
    }
    return true;
}

/* Adds the parts of a line that is not only white space; none for one of nothing that has tokens. */
static bool add_line(cutter *c, text t, line_result *line) {
    size_t begin, end, trained = c->m->trained;
    splitting all = split_begin(&c->m->rules, t.begin, (size_t)(t.end - t.begin)), s = all;
    bool several = c->split != SPLIT_NONE && split_next(&s, &begin, &end) && split_next(&s, &begin, &end);
    int64_t count = several && c->split == SPLIT_ALL ? 0 : encoded(c, t);
    if (several && (c->split == SPLIT_ALL || (trained && count > (int64_t)trained)))
        return add_sentences(c, t, all, line);
    c->space = "", c->space_size = 0;
    bool fine = add_text(c, t, count, SENTENCES);
    line->several = several;
    line->sentences = c->to->parts > line->first;
    return fine;
}

/* --- parts shared among threads, each of which has a searcher of its own --- */

static void give_searcher(nmt_model *m, searcher *s) {
    for (int i = 0; i < IDLE; i++) {
        searcher *none = NULL;
        if (atomic_compare_exchange_strong(&m->idle[i], &none, s)) return;
    }
    searcher_close(s);
}

/* A searcher with so many rows: one that is idle, or a new one. */
static searcher *take_searcher(nmt_model *m, i64 rows) {
    for (int i = 0; i < IDLE; i++) {
        searcher *found = atomic_load(&m->idle[i]) ? atomic_exchange(&m->idle[i], NULL) : NULL;
        if (found && searcher_rows(found) == rows) return found;
        if (found) give_searcher(m, found);
    }
    return searcher_open((const model *const *)m->models, m->count, m->k, rows);
}

/* Sentences that threads take from, the longest first. */
typedef struct {
    nmt_model *m;
    const nmt_options *set;
    sentence *sentences;
    keyed *order; /* their places by falling length */
    i64 count, rows;
    _Atomic(i64) next;
    found_list *found;
    atomic_bool failed;
} work;

static const sentence *next_of(void *context) {
    work *w = context;
    i64 place = w->failed ? w->count : w->next++;
    return place < w->count ? &w->sentences[w->order[place].place] : NULL;
}

static void *do_work(void *context) {
    work *w = context;
    searcher *s = take_searcher(w->m, w->rows);
    if (s && searcher_run(s, w->set, next_of, w, w->found)) {
        give_searcher(w->m, s);
    } else {
        searcher_close(s);
        w->failed = true;
    }
    return NULL;
}

/* Searches all parts by as many threads as the options say. False as searcher_run. */
static bool search_all(nmt_model *m, nmt_results *r, const nmt_options *o) {
    work w = {.m = m, .set = o, .count = (i64)r->parts, .found = r->found};
    const i64 rows = m->models[0]->size < LARGE ? ROWS : ROWS_OF_LARGE; /* models are computed one after the other */
    w.rows = rows_of(o) > rows || w.count == 1 ? rows_of(o) : rows;
    w.sentences = calloc(r->parts, sizeof *w.sentences), w.order = calloc(r->parts, sizeof *w.order);
    w.failed = !w.sentences || !w.order;
    for (size_t i = 0, start = 0; !w.failed && i < r->parts; start = r->ends[i++].ids) {
        w.sentences[i] = (sentence){r->ids + start, (i64)(r->ends[i].ids - start), (i64)i, NULL};
        w.order[i] = (keyed){UINT64_MAX - (uint64_t)w.sentences[i].length, i};
    }
    for (size_t i = 0; !w.failed && i < r->count; i++) {
        const line_result *line = &r->lines[i];
        for (size_t p = 0; line->asked && p < line->parts; p++)
            w.sentences[line->first + p].asked = p ? &line->asked->later : &line->asked->first;
    }
    if (!w.failed) sort_keyed(w.order, r->parts);
    if (!w.failed) run_threads(o->threads < w.count ? o->threads : (int)w.count, do_work, &w);
    free(w.sentences), free(w.order);
    return !w.failed;
}

/* --- results --- */

void nmt_free(nmt_results *r) {
    if (!r) return;
    for (size_t i = 0; r->lines && i < r->count; i++) {
        for (size_t k = 0; r->lines[i].texts && k < r->lines[i].count; k++)
            free(r->lines[i].texts[k].bytes), free(r->lines[i].texts[k].aligned.all);
        free(r->lines[i].texts);
        if (r->lines[i].asked) wishes_clear(r->lines[i].asked);
        free(r->lines[i].asked);
        free(r->lines[i].small);
        if (r->lines[i].kept) kept_clear(r->lines[i].kept);
        free(r->lines[i].kept);
    }
    for (size_t i = 0; r->found && i < r->parts; i++) found_clear(&r->found[i]);
    free(r->lines);
    free(r->ids);
    free(r->places);
    free(r->spaces);
    free(r->ends);
    free(r->found);
    free(r->joined);
    free(r);
}

/* The i-th best translation of a part, or its last. */
static const found *found_of(const nmt_results *r, size_t line, size_t i, size_t part) {
    const found_list *list = &r->found[r->lines[line].first + part];
    return &list->best[i < (size_t)list->count ? i : (size_t)list->count - 1];
}

static bool is_finite(const nmt_results *r, size_t line) {
    for (size_t p = 0; p < r->lines[line].parts; p++)
        if (!found_of(r, line, 0, p)->finite) return false;
    return true;
}

/* The text of a translation on one line; the bytes that it has, -1 where memory ends. */
static int64_t decoded(const nmt_model *m, const found *one, char **to, size_t *room) {
    int64_t size = subwords_decode(m->target, one->ids, one->count, to, room);
    for (int64_t i = 0; i < size; i++)
        if ((*to)[i] == '\n' || (*to)[i] == '\r') (*to)[i] = ' ';
    return size;
}

/* Makes a text begin with the prefix as it was given, where the tokenizer writes it with other letters. */
static int64_t respelled(const wishes *asked, char **to, size_t *room, int64_t size) {
    text prefix = asked->prefix, own = {*to, *to + size};
    size_t given = (size_t)(prefix.end - prefix.begin);
    own.begin = after_spaces(own);
    own.begin += begins_alike(own, (text){asked->written, asked->written + asked->written_size});
    size_t skipped = size ? (size_t)(own.begin - *to) : 0, left = (size_t)(own.end - own.begin);
    if (!grown(to, 1, room, given + left + 1)) return -1;
    memmove(*to + given, *to + skipped, left);
    for (size_t i = 0; i < given; i++) (*to)[i] = prefix.begin[i] == '\n' || prefix.begin[i] == '\r' ? ' ' : prefix.begin[i];
    return (int64_t)(given + left);
}

/* Whether something is put into a translation: what was kept, or source words in place of unknown ones. */
static bool changes_pieces(const nmt_results *r, size_t line, size_t i) {
    for (size_t p = 0; r->replaces && p < r->lines[line].parts; p++) {
        const found *one = found_of(r, line, i, p);
        for (i64 t = 0; t < one->count; t++)
            if (one->ids[t] == UNK) return true;
    }
    return r->lines[line].kept != NULL;
}

/* The texts of the parts of a translation with what was kept, and without unknown words; null where memory ends. */
static written_text *placed(const nmt_model *m, const nmt_results *r, size_t line, size_t i, pieces *all) {
    const line_result *own = &r->lines[line];
    written_text *texts = calloc(own->parts + 1, sizeof *texts);
    char **written = calloc(own->parts + 1, sizeof *written);
    stretch *tokens = NULL;
    size_t *ends = NULL, token_room = 0, end_room = 0, room;
    bool fine = texts && written;
    placing set = {.kept = own->kept, .source = own->read, .unknown = UNK};
    for (size_t p = 0; fine && p < own->parts; p++) {
        const found *one = found_of(r, line, i, p);
        size_t number = own->first + p, start = number ? r->ends[number - 1].ids : 0, count = (size_t)one->count;
        if (!(fine = grown(&ends, sizeof *ends, &end_room, count + 1) && grown(&tokens, sizeof *tokens, &token_room, count + 1))) break;
        int64_t size = subwords_decode_ends(m->target, one->ids, one->count, &written[p], (room = 0, &room), ends);
        if (!(fine = size >= 0)) break;
        for (int64_t k = 0; k < size; k++)
            if (written[p][k] == '\n' || written[p][k] == '\r') written[p][k] = ' ';
        for (size_t t = 0; t < count; t++) tokens[t] = (stretch){t ? ends[t - 1] : 0, ends[t]};
        set.target = (text){written[p], size ? written[p] + size : written[p]};
        set.source_tokens = r->places + start, set.source_stride = r->ends[number].ids - start;
        set.source_count = set.source_stride - 1, set.target_tokens = tokens, set.target_count = count;
        set.ids = one->ids, set.attention = one->attention, set.first = set.last;
        /* What is before the first token of the next part belongs to this one. */
        size_t next = p + 1 < own->parts ? r->places[r->ends[number].ids + (m->language_count > 0)].begin : SIZE_MAX;
        while (own->kept && set.last < own->kept->count && own->kept->items[set.last].read.begin < next) set.last++;
        size_t fixed = !p && own->asked ? (size_t)own->asked->first.count : 0;
        fine = place_kept(&set, &all[p]);
        if (fine && r->replaces) fine = replace_unknown(&set, &all[p], r->ids + start, m->language_count > 0, fixed);
        if (fine && own->small && changes_pieces(r, line, i)) fine = put_in_capitals(&all[p]);
    }
    fine = fine && write_parts(own->kept, all, own->parts, texts);
    for (size_t p = 0; p < own->parts; p++) {
        if (written) free(written[p]);
        if (texts && !fine) free(texts[p].bytes);
    }
    free(written);
    free(tokens);
    free(ends);
    if (!fine) free(texts);
    return fine ? texts : NULL;
}

/* Moves the places of pieces to where they are in a text that begins otherwise. */
static void move_spans(pieces *p, text before, text now) {
    const size_t old = (size_t)(before.end - before.begin), new = (size_t)(now.end - now.begin);
    size_t same = 0;
    while (same < old && same < new && before.end[-1 - (ptrdiff_t)same] == now.end[-1 - (ptrdiff_t)same]) same++;
    while (same && same < new && (now.begin[new - same] & 0xc0) == 0x80) same--;
    if (same == old && same == new) return;
    for (size_t i = 0; i < 2 * p->count; i++) {
        size_t *place = i % 2 ? &p->spans[i / 2].end : &p->spans[i / 2].begin;
        *place = *place >= old - same ? *place + new - old : *place < new - same ? *place : new - same;
    }
}

/* What becomes of a line of nothing but what is kept: itself. */
static bool write_same(const nmt_results *r, line_result *own, char *to) {
    const text line = own->kept->line;
    stretches words = {0};
    word_pairs *pairs = &own->texts[0].aligned;
    const size_t size = (size_t)(line.end - line.begin);
    for (size_t k = 0; k < size; k++) to[k] = line.begin[k] == '\n' || line.begin[k] == '\r' ? ' ' : line.begin[k];
    bool fine = !r->aligns || (find_words(line, &words) && grown(&pairs->all, 2 * sizeof *pairs->all, &pairs->room, words.count));
    if (fine) pairs->count = words.count;
    for (size_t i = 0; fine && i < 2 * words.count; i++) pairs->all[i] = (int32_t)(i / 2);
    free(words.all);
    own->texts[0].bytes = to, own->texts[0].size = size;
    return fine;
}

/* Text of the i-th best translation: the parts, with the white space before each. False where memory ends. */
static bool write_text(const nmt_model *m, const nmt_results *r, size_t line, size_t i) {
    line_result *own = &r->lines[line];
    char *part = NULL, *to = NULL, *upper = NULL;
    size_t part_room = 0, room = 0, size = 0, counted = 0, upper_room = 0;
    bool fine = grown(&to, 1, &room, 1), has_prefix = own->asked && own->asked->prefix.begin < own->asked->prefix.end;
    written_text *texts = NULL, before = {0};
    pieces *all = NULL;
    stretches words = {0}, written = {0};
    if (fine && own->stays) {
        fine = grown(&to, 1, &room, (size_t)(own->kept->line.end - own->kept->line.begin) + 1);
        return fine ? write_same(r, own, to) : (free(to), false);
    }
    const text read = own->kept ? own->kept->line : own->read;
    const bool changes = changes_pieces(r, line, i);
    if (fine && own->parts && (r->aligns || changes)) {
        all = calloc(own->parts + 1, sizeof *all);
        fine = all && (texts = placed(m, r, line, i, all)) && (!r->aligns || find_words(read, &words));
    }
    for (size_t p = 0; fine && p < own->parts + (!own->parts && has_prefix); p++) {
        const bool is_placed = texts && p < own->parts, aligns = is_placed && r->aligns;
        int64_t bytes = p >= own->parts ? 0 : changes ? (int64_t)texts[p].size : decoded(m, found_of(r, line, i, p), &part, &part_room);
        if (is_placed && changes) free(part), part = texts[p].bytes, part_room = texts[p].room, texts[p].bytes = NULL;
        if (!p && has_prefix && aligns && bytes > 0) {
            if (!(fine = grown(&before.bytes, 1, &before.room, (size_t)bytes))) break;
            memcpy(before.bytes, part, before.size = (size_t)bytes);
        }
        if (!p && has_prefix && bytes >= 0) bytes = respelled(own->asked, &part, &part_room, bytes);
        if (!p && has_prefix && aligns && bytes > 0)
            move_spans(&all[0], (text){before.bytes, before.bytes + before.size}, (text){part, part + bytes});
        fine = bytes >= 0;
        if (bytes <= 0) continue;
        size_t number = own->first + p, begin = number ? r->ends[number - 1].spaces : 0,
               spaces = size ? r->ends[number].spaces - begin : 0;
        const bool in_capitals = own->small && !changes;
        if (in_capitals) bytes = case_upper(part, (size_t)bytes, &upper, &upper_room);
        if (!(fine = bytes >= 0 && grown(&to, 1, &room, size + spaces + (size_t)bytes + 1))) break;
        if (aligns) {
            counted -= size && !spaces; /* without a space the last word continues */
            written.count = 0;
            fine = align_part(own->kept, read, &words, &all[p], (text){part, part + bytes}, counted, &own->texts[i].aligned) &&
                   find_words((text){part, part + bytes}, &written);
            counted += written.count;
        }
        if (spaces) memcpy(to + size, r->spaces + begin, spaces);
        memcpy(to + size + spaces, in_capitals ? upper : part, (size_t)bytes);
        size += spaces + (size_t)bytes;
    }
    free(part), free(upper), free(before.bytes), free(words.all), free(written.all);
    for (size_t p = 0; p < own->parts; p++) {
        if (texts) free(texts[p].bytes);
        if (all) pieces_clear(&all[p]);
    }
    free(texts), free(all);
    own->texts[i].bytes = to, own->texts[i].size = size;
    return fine;
}

static bool write_line(const nmt_model *m, const nmt_results *r, size_t line, bool texts) {
    line_result *own = &r->lines[line];
    bool finite = is_finite(r, line);
    own->count = 1;
    for (size_t p = 0; p < own->parts && finite; p++)
        if ((size_t)r->found[own->first + p].count > own->count) own->count = (size_t)r->found[own->first + p].count;
    if (!texts) return true;
    if (!(own->texts = calloc(own->count, sizeof *own->texts))) return false;
    if (!finite) return (own->texts[0].bytes = calloc(1, 1)) != NULL;
    for (size_t i = 0; i < own->count; i++)
        if (!write_text(m, r, line, i)) return false;
    return true;
}

static bool join_lines(nmt_results *r) {
    size_t size = 0;
    for (size_t i = 0; i < r->count; i++) size += r->lines[i].texts[0].size + 1;
    if (!(r->joined = malloc(size + 1))) return false;
    for (size_t i = 0; i < r->count; i++) {
        memcpy(r->joined + r->joined_size, r->lines[i].texts[0].bytes, r->lines[i].texts[0].size);
        r->joined_size += r->lines[i].texts[0].size;
        r->joined[r->joined_size++] = '\n';
    }
    return true;
}

static nmt_results *new_results(const nmt_model *m, size_t count, const nmt_options *o, char *problem, size_t room) {
    for (int i = 0; i < COUNT; i++)
        if (!is_allowed(&TABLE[i], value_of(o, &TABLE[i]), problem, room)) return NULL;
    const bool is_greedy = o->beam_size == 1 && !o->beam_of_one && !o->sample;
    if ((uint64_t)rows_of(o) * m->models[0]->set.target_size > INT32_MAX)
        REFUSE("%s is too large for this vocabulary", o->sample ? "n_best" : "beam_size");
    if (o->n_best > rows_of(o)) REFUSE("n_best must be 1 to beam_size");
    if (o->coverage_penalty > 0.0f && (is_greedy || o->sample))
        REFUSE("coverage_penalty: %s search has none. Allowed: with beam search.", is_greedy ? "greedy" : "'sample'");
    for (int i = 0; o->coverage_penalty > 0.0f && i < m->count; i++)
        if (!m->models[i]->set.attentions) REFUSE("coverage_penalty: the model does not report its attention");
    const int reached = (int)(o->max_length_factor * 2.0f) + o->max_length_offset - 2;
    if (o->min_length && o->min_length > reached)
        REFUSE("min_length must be 0 to %d, which a source of one word may have", reached > 0 ? reached : 0);
    for (int32_t id = 0; o->replace_unknown && id < subwords_size(m->target); id++)
        if (subwords_is_byte(m->target, id)) REFUSE("replace_unknown: the tokenizer of this model has no unknown words");
    const char *placed = o->placeholders ? "placeholders" : o->glossary ? "glossary" : o->replace_unknown ? "replace_unknown" : NULL;
    for (int i = 0; placed && i < m->count; i++)
        if (!m->models[i]->set.attentions) REFUSE("%s: the model does not report its attention", placed);
    size_t known = 0;
    while (known < m->language_count && m->languages[known] != o->target_language) known++;
    if (o->target_language && known == m->language_count)
        REFUSE("target_language: %d is not the token of a language of this model", o->target_language);
    nmt_results *r = calloc(1, sizeof *r);
    if (r && (r->lines = calloc(count + 1, sizeof *r->lines))) return r->count = count, r;
    free(r);
    REFUSE("not enough memory");
}

/* Searches what has been added, and makes texts of it if they are wanted. */
static nmt_results *complete(nmt_model *m, nmt_results *r, const nmt_options *o, bool texts, char *problem,
                             size_t room) {
    if (!r) return NULL;
    r->found = calloc(r->parts + 1, sizeof *r->found);
    nmt_options own = *o;
    own.attention = o->attention || r->replaces;
    for (size_t i = 0; i < r->count; i++) own.attention = own.attention || r->lines[i].kept;
    bool fine = r->found && (!r->parts || search_all(m, r, &own));
    for (size_t i = 0; fine && i < r->count; i++) fine = write_line(m, r, i, texts);
    if (fine && (!texts || join_lines(r))) return r;
    nmt_free(r);
    REFUSE("%s", is_stopped(o) ? "stopped" : "not enough memory");
}

static void say_languages(const nmt_model *m, size_t line, char *problem, size_t room) {
    int size = snprintf(problem, room, "line %zu: says no target language that the model knows, nor does "
                        "target_language. Allowed before the text:", line);
    for (size_t i = 0, own; i < m->language_count && size > 0 && (size_t)size < room; i++) {
        const char *tag = tag_of(m, m->languages[i], &own), *after = i + 1 < m->language_count ? "," : ".";
        size += snprintf(problem + size, room - (size_t)size, " %.*s%s", (int)own, tag, after);
    }
}

static bool is_asked(const nmt_request *q) {
    text prefix = {q->prefix, q->prefix + q->prefix_size};
    return q->forbidden_size || (q->prefix_size && after_spaces(prefix) < prefix.end);
}

/* Exchanges a line in capitals for its small letters, in what is read, of which it is the end. False where memory ends. */
static bool lower_line(const nmt_model *m, line_result *own, text *line) {
    size_t size = (size_t)(line->end - line->begin), before = (size_t)(line->begin - own->read.begin);
    if (!case_in_capitals(line->begin, size)) return true;
    if (!(own->small = malloc(before + size))) return false;
    memcpy(own->small, own->read.begin, before);
    case_lower_line(line->begin, size, &m->rules, m->is_english, own->small + before);
    own->read = (text){own->small, own->small + before + size};
    *line = (text){own->small + before, own->read.end};
    return true;
}

/* Lines are cut as the options say; those of `requests`, which may be null, with wishes are not changed. */
static nmt_results *cut(nmt_model *m, const char *const *lines, const size_t *sizes, const nmt_request *requests, size_t count,
                        const nmt_options *o, char *problem, size_t room) {
    nmt_results *r = new_results(m, count, o, problem, room);
    cutter c = {.m = m, .to = r, .split = m->split, .longest = (size_t)o->split_long};
    if (r) r->keeps = o->placeholders || o->glossary, r->replaces = o->replace_unknown, r->aligns = o->attention;
    if (o->split) c.split = o->split == 1 ? SPLIT_ALL : SPLIT_NONE;
    for (size_t i = 0; r && i < count; i++) {
        line_result *own = &r->lines[i];
        own->first = r->parts;
        if (!sizes[i]) continue; /* of what may be null */
        text line = {lines[i], lines[i] + sizes[i]};
        if (after_spaces(line) == line.end) continue;
        if (r->keeps && sizes[i] <= LONGEST_LINE) {
            keeping found = (own->kept = calloc(1, sizeof *own->kept)) ? keep_line(own->kept, line, o->placeholders, o->glossary) : NO_MEMORY;
            if (found == NO_MEMORY || found == NO_STAND_IN) {
                snprintf(problem, room, found == NO_MEMORY ? "not enough memory" : "line %zu: it has every character of Unicode's "
                         "private use area: none is left for its placeholders", i);
                nmt_free(r);
                r = NULL;
                break;
            }
            if (found == KEEPS) line = (text){own->kept->bytes, own->kept->bytes + own->kept->size};
            else kept_clear(own->kept), free(own->kept), own->kept = NULL;
            if ((own->stays = own->kept && !has_letters(line))) continue;
        }
        own->read = line, c.kept = own->kept, c.last = 0;
        c.language = m->language_count ? language_of(m, &line, o->target_language) : 0;
        bool spoken = c.language || !m->language_count;
        bool fine = spoken && sizes[i] <= LONGEST_LINE;
        if (fine && o->capitals && !(requests && is_asked(&requests[i]))) fine = lower_line(m, own, &line);
        c.read = own->read.begin;
        fine = fine && add_line(&c, line, own);
        own->parts = r->parts - own->first;
        own->stays = own->kept && !own->parts;
        if (fine) continue;
        if (!spoken) say_languages(m, i, problem, room);
        else if (sizes[i] > LONGEST_LINE) snprintf(problem, room, "line %zu: more than %d bytes", i, (int)LONGEST_LINE);
        else snprintf(problem, room, "not enough memory");
        nmt_free(r);
        r = NULL;
    }
    free(c.ids);
    free(c.own);
    free(c.spans);
    free(c.places);
    free(c.between);
    return r;
}

nmt_results *nmt_cut(nmt_model *m, const char *const *lines, const size_t *sizes, size_t count, const nmt_options *o,
                     char *problem, size_t room) {
    return cut(m, lines, sizes, NULL, count, o, problem, room);
}

nmt_results *nmt_translate(nmt_model *m, const char *const *lines, const size_t *sizes, size_t count,
                           const nmt_options *o, char *problem, size_t room) {
    return complete(m, nmt_cut(m, lines, sizes, count, o, problem, room), o, true, problem, room);
}

/* What tokens of the target add to a text, found out at the first use. Null where memory ends. */
static const vocabulary *words_of(nmt_model *m) {
    vocabulary *known = atomic_load(&m->words), *own = known ? NULL : vocabulary_of(m->target);
    if (!own || atomic_compare_exchange_strong(&m->words, &known, own)) return known ? known : own;
    vocabulary_close(own); /* another thread was faster */
    return known;
}

/* Reads what is asked for each line; null with a line in `problem` where that cannot be. */
static nmt_results *ask(nmt_model *m, nmt_results *r, const nmt_request *requests, char *problem, size_t room) {
    char said[500];
    for (size_t i = 0; r && i < r->count; i++) {
        if (!requests[i].prefix_size && !requests[i].forbidden_size) continue;
        text prefix = {requests[i].prefix, requests[i].prefix + requests[i].prefix_size};
        if (r->lines[i].kept && prefix.begin < prefix.end && after_spaces(prefix) < prefix.end) {
            text own = r->lines[i].kept->items[0].own;
            snprintf(problem, room, "line %zu: prefix: not allowed together with '%.*s', which is put into the translation "
                     "afterwards", i, own.end - own.begin > 200 ? 200 : (int)(own.end - own.begin), own.begin);
            return nmt_free(r), NULL;
        }
        const vocabulary *words = words_of(m);
        wishes *own = words ? calloc(1, sizeof *own) : NULL;
        bool fine = own && wishes_read(own, &requests[i], m->target, words, said, sizeof said);
        r->lines[i].asked = own;
        if (fine) continue;
        snprintf(problem, room, own ? "line %zu: %s" : "not enough memory", i, said);
        return nmt_free(r), NULL;
    }
    return r;
}

nmt_results *nmt_translate_requests(nmt_model *m, const nmt_request *requests, size_t count, const nmt_options *o,
                                    char *problem, size_t room) {
    const char **lines = calloc(count + 1, sizeof *lines);
    size_t *sizes = calloc(count + 1, sizeof *sizes);
    for (size_t i = 0; lines && sizes && i < count; i++) lines[i] = requests[i].text, sizes[i] = requests[i].size;
    nmt_results *r = lines && sizes ? cut(m, lines, sizes, requests, count, o, problem, room) : NULL;
    if (!lines || !sizes) snprintf(problem, room, "not enough memory");
    free(lines);
    free(sizes);
    return complete(m, ask(m, r, requests, problem, room), o, true, problem, room);
}

nmt_results *nmt_translate_ids(nmt_model *m, const int32_t *const *ids, const size_t *lengths, size_t count,
                               const nmt_options *o, char *problem, size_t room) {
    const uint32_t known = m->models[0]->set.source_size;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < lengths[i]; k++)
            if (ids[i][k] < 0 || (uint32_t)ids[i][k] >= known)
                REFUSE("sentence %zu: id %d is not in the vocabulary of %u", i, ids[i][k], known);
    nmt_results *r = new_results(m, count, o, problem, room);
    for (size_t i = 0; r && i < count; i++) {
        r->lines[i].first = r->parts;
        r->lines[i].sentences = r->lines[i].parts = lengths[i] > 0;
        if (lengths[i] && !add_part(r, 0, ids[i], NULL, lengths[i], "", 0)) {
            nmt_free(r);
            REFUSE("not enough memory");
        }
    }
    return complete(m, r, o, false, problem, room);
}

nmt_results *nmt_score_pairs(nmt_model *m, const char *const *sources, const size_t *source_sizes,
                             const char *const *targets, const size_t *target_sizes, size_t count, const nmt_options *given,
                             char *problem, size_t room) {
    nmt_options o = {.beam_size = 1, .n_best = 1, .threads = given->threads, .scores = 1, .repeat_penalty = 1.0f,
                     .temperature = 1.0f, .top_p = 1.0f, .stop = given->stop};
    nmt_results *r = new_results(m, count, &o, problem, room);
    int32_t *ids = NULL;
    size_t id_room = 0;
    bool fine = r != NULL;
    for (size_t i = 0; fine && i < count; i++) {
        line_result *own = &r->lines[i];
        wish *keeps = (own->asked = calloc(1, sizeof *own->asked)) ? &own->asked->first : NULL;
        size_t prefix_room = 0;
        own->first = r->parts;
        int64_t read = subwords_encode(m->source, sources[i], source_sizes[i], &ids, &id_room);
        fine = keeps && read >= 0 && add_part(r, 0, ids, NULL, (size_t)read, "", 0);
        own->parts = own->sentences = r->parts - own->first;
        if (!fine) break;
        keeps->count = subwords_encode(m->target, targets[i], target_sizes[i], &keeps->prefix, &prefix_room);
        fine = keeps->count >= 0 && grown(&keeps->prefix, sizeof *keeps->prefix, &prefix_room, (size_t)keeps->count + 1);
        if (fine) keeps->prefix[keeps->count] = EOS, keeps->forced = ++keeps->count;
    }
    free(ids);
    if (fine) return complete(m, r, &o, false, problem, room);
    if (r) snprintf(problem, room, "not enough memory");
    return nmt_free(r), NULL;
}

size_t nmt_count(const nmt_results *r, size_t line) { return r->lines[line].count; }

const char *nmt_text(const nmt_results *r, size_t line, size_t i, size_t *size) {
    if (!r->lines[line].texts) return NULL;
    *size = r->lines[line].texts[i].size;
    return r->lines[line].texts[i].bytes;
}

float nmt_score(const nmt_results *r, size_t line, size_t i) {
    float score = 0.0f;
    if (!is_finite(r, line)) return -INFINITY;
    for (size_t p = 0; p < r->lines[line].parts; p++) score += found_of(r, line, i, p)->score;
    return score;
}

const char *nmt_lines(const nmt_results *r, size_t *size) {
    *size = r->joined_size;
    return r->joined;
}

int32_t nmt_flags(const nmt_results *r, size_t line) {
    int32_t flags = (is_finite(r, line) ? 0 : NMT_NOT_FINITE) | (r->lines[line].several ? NMT_SEVERAL : 0) |
                    (r->lines[line].small ? NMT_CAPITALS : 0);
    for (size_t p = 0; p < r->lines[line].parts; p++)
        if (found_of(r, line, 0, p)->finite && !found_of(r, line, 0, p)->ended) flags |= NMT_CUT;
    return flags;
}

size_t nmt_parts(const nmt_results *r, size_t line) { return r->lines[line].parts; }

size_t nmt_sentences(const nmt_results *r, size_t line) { return r->lines[line].sentences; }

size_t nmt_unknown(const nmt_results *r, size_t line) {
    const line_result *own = &r->lines[line];
    size_t begin = own->first ? r->ends[own->first - 1].ids : 0, count = 0;
    for (size_t i = begin; own->parts && i < r->ends[own->first + own->parts - 1].ids; i++) {
        const kept *item = r->ids[i] == UNK && own->kept ? kept_from(own->kept, r->places[i].begin) : NULL;
        count += r->ids[i] == UNK && !(item && item->read.begin == r->places[i].begin);
    }
    return count;
}

const int32_t *nmt_source_ids(const nmt_results *r, size_t line, size_t part, size_t *count) {
    size_t number = r->lines[line].first + part, start = number ? r->ends[number - 1].ids : 0;
    *count = r->ends[number].ids - start;
    return r->ids + start;
}

const int32_t *nmt_ids(const nmt_results *r, size_t line, size_t i, size_t part, size_t *count) {
    const found *one = found_of(r, line, i, part);
    *count = (size_t)one->count + one->ended;
    return one->ids;
}

const float *nmt_log_probs(const nmt_results *r, size_t line, size_t i, size_t part) {
    return found_of(r, line, i, part)->log_probs;
}

const float *nmt_entropies(const nmt_results *r, size_t line, size_t i, size_t part) {
    return found_of(r, line, i, part)->entropies;
}

const int32_t *nmt_alignment(const nmt_results *r, size_t line, size_t i, size_t *count) {
    const line_result *own = &r->lines[line];
    static const int32_t none = 0;
    const bool is_placed = r->aligns && own->texts && is_finite(r, line);
    *count = is_placed ? own->texts[i].aligned.count : 0;
    return !is_placed ? NULL : own->texts[i].aligned.all ? own->texts[i].aligned.all : &none;
}

const float *nmt_attention(const nmt_results *r, size_t line, size_t i, size_t part) {
    return found_of(r, line, i, part)->attention;
}
