/* See glossary.h: how letters are composed, texts as they are compared, and terms among them. */

#include "glossary.h"

#include <stdio.h>

#include "case.h"
#include "split.h"
#include "system.h"
#include "unicode_tables.h"

#define NONE SIZE_MAX

/* --- Unicode's normalisation form C --- */

enum { LAST_CLASS = 0x1f000, MOST_BEFORE = 3 };
enum { LEADS = 0x1100, LEAD_COUNT = 19, VOWELS = 0x1161, VOWEL_COUNT = 21, TAILS = 0x11a7, TAIL_COUNT = 28, SYLLABLES = 0xac00 };
static const uint32_t SYLLABLE_COUNT = LEAD_COUNT * VOWEL_COUNT * TAIL_COUNT;

/* A character that is another one, or two, in another form. */
typedef struct {
    uint32_t code, first, second; /* second: 0 where it is one */
    bool is_composed;             /* whether the two are composed to it */
} composition;

typedef struct {
    composition *all; /* by their second characters, then by the first */
    keyed *by_code;  /* their places */
    size_t count, room;
    uint8_t classes[LAST_CLASS]; /* the combining class of each character */
} forms;

typedef struct {
    uint32_t *all;
    size_t count, room;
} points;

static int32_t signed_of(uint32_t number) { return number & 1 ? -(int32_t)(number / 2) - 1 : (int32_t)(number / 2); }

static bool add_composition(forms *f, composition one) {
    if (!grown(&f->all, sizeof *f->all, &f->room, f->count + 1)) return false;
    f->all[f->count++] = one;
    return true;
}

static bool forms_open(forms *f) {
    composition one = {0};
    size_t end = 0;
    for (const char *p = SINGLES; *p;) {
        one.code += next_number(&p), one.first += (uint32_t)signed_of(next_number(&p));
        if (!add_composition(f, one)) return false;
    }
    one = (composition){0};
    for (const char *p = PAIRS; *p;) {
        const uint32_t more = next_number(&p), first = next_number(&p), last = next_number(&p);
        one = (composition){one.code + (uint32_t)signed_of(last / 2), (more ? 0 : one.first) + first, one.second + more, !(last & 1)};
        if (!add_composition(f, one)) return false;
    }
    for (const char *p = CLASSES; *p;) {
        const size_t begin = end + next_number(&p), count = next_number(&p);
        memset(f->classes + begin, (int)next_number(&p), count);
        end = begin + count;
    }
    if (!(f->by_code = malloc(f->count * sizeof *f->by_code))) return false;
    for (size_t i = 0; i < f->count; i++) f->by_code[i] = (keyed){f->all[i].code, i};
    sort_keyed(f->by_code, f->count);
    return true;
}

static uint32_t class_of(const forms *f, uint32_t c) { return c < LAST_CLASS ? f->classes[c] : 0; }

/* What a character is in another form; null for most. */
static const composition *composition_of(const forms *f, uint32_t code) {
    size_t low = 0, high = f->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (f->by_code[middle].key < code) low = middle + 1;
        else high = middle;
    }
    return low < f->count && f->by_code[low].key == code ? &f->all[f->by_code[low].place] : NULL;
}

/* Of the characters that are others the one with these, or else the next. */
static const composition *composition_from(const forms *f, uint32_t first, uint32_t second) {
    size_t low = 0, high = f->count - 1;
    while (low < high) {
        const composition *one = &f->all[low + (high - low) / 2];
        if (one->second < second || (one->second == second && one->first < first)) low = (size_t)(one - f->all) + 1;
        else high = (size_t)(one - f->all);
    }
    return &f->all[low];
}

static uint32_t composed(const forms *f, uint32_t first, uint32_t second) {
    if (first - LEADS < LEAD_COUNT && second - VOWELS < VOWEL_COUNT)
        return SYLLABLES + ((first - LEADS) * VOWEL_COUNT + second - VOWELS) * TAIL_COUNT;
    if (first - SYLLABLES < SYLLABLE_COUNT && (first - SYLLABLES) % TAIL_COUNT == 0 && second - TAILS - 1 < TAIL_COUNT - 1)
        return first + second - TAILS;
    const composition *one = composition_from(f, first, second);
    return one->is_composed && one->first == first && one->second == second ? one->code : 0;
}

static bool add_point(points *to, uint32_t c) {
    if (!grown(&to->all, sizeof *to->all, &to->room, to->count + 1)) return false;
    to->all[to->count++] = c;
    return true;
}

static bool decompose(const forms *f, uint32_t c, points *to) {
    const composition *own = composition_of(f, c);
    if (own) return decompose(f, own->first, to) && (!own->second || decompose(f, own->second, to));
    if (c - SYLLABLES >= SYLLABLE_COUNT) return add_point(to, c);
    const uint32_t number = c - SYLLABLES, tail = number % TAIL_COUNT;
    return add_point(to, LEADS + number / TAIL_COUNT / VOWEL_COUNT) && add_point(to, VOWELS + number / TAIL_COUNT % VOWEL_COUNT) &&
           (!tail || add_point(to, TAILS + tail));
}

/* The marks after each letter in the order of their classes. */
static bool order_marks(const forms *f, points *p) {
    keyed *own = NULL;
    size_t room = 0;
    bool fine = true;
    for (size_t i = 0, end; fine && i < p->count; i = end) {
        for (end = i; end < p->count && class_of(f, p->all[end]);) end++;
        if (end - i > 1 && (fine = grown(&own, sizeof *own, &room, 2 * (end - i)))) {
            for (size_t k = i; k < end; k++) own[k - i] = (keyed){(uint64_t)class_of(f, p->all[k]), k};
            sort_keyed(own, end - i);
            for (size_t k = i; k < end; k++) own[k - i].key = p->all[own[k - i].place];
            for (size_t k = i; k < end; k++) p->all[k] = (uint32_t)own[k - i].key;
        }
        end += end == i;
    }
    free(own);
    return fine;
}

/* Adds some characters in normalisation form C, from `start` on. */
static bool normalize(const forms *f, const uint32_t *from, size_t count, points *to) {
    points p = {0};
    bool fine = true;
    size_t starter = NONE;
    uint32_t last = 0;
    for (size_t i = 0; fine && i < count; i++) fine = decompose(f, from[i], &p);
    fine = fine && order_marks(f, &p) && grown(&to->all, sizeof *to->all, &to->room, to->count + p.count + 1);
    for (size_t i = 0; fine && i < p.count; i++) {
        const uint32_t own = class_of(f, p.all[i]);
        const bool is_blocked = starter == NONE || (to->count > starter + 1 && last >= own);
        const uint32_t made = is_blocked ? 0 : composed(f, to->all[starter], p.all[i]);
        if (made) {
            to->all[starter] = made;
            continue;
        }
        if (!own) starter = to->count;
        last = own, to->all[to->count++] = p.all[i];
    }
    free(p.all);
    return fine;
}

static bool is_jamo_inside(uint32_t c) { return c - VOWELS < VOWEL_COUNT || c - TAILS - 1 < TAIL_COUNT - 1; }

/* Whether a character can be written as one with those before it, or is a mark on them: 1, 0, or -1 where memory ends. */
static int continues(const forms *f, const uint32_t *before, size_t count, uint32_t c) {
    if (c < 0x80) return 0;
    if (class_of(f, c) || c == 0xff9e || c == 0xff9f) return 1; /* marks of voice of half width, one letter with those before */
    uint32_t lead = c;
    for (const composition *one = composition_of(f, c); one; one = composition_of(f, lead)) lead = one->first;
    if (!class_of(f, lead) && composition_from(f, 0, lead)->second != lead && !is_jamo_inside(lead)) return 0;
    points both = {0}, apart = {0}, whole = {0};
    bool fine = true;
    for (size_t i = 0; fine && i < count; i++) fine = add_point(&whole, before[i]);
    fine = fine && normalize(f, whole.all, count, &apart) && normalize(f, &c, 1, &apart) && add_point(&whole, c) &&
           normalize(f, whole.all, count + 1, &both);
    const bool same = fine && both.count == apart.count && !memcmp(both.all, apart.all, both.count * sizeof *both.all);
    free(both.all), free(apart.all), free(whole.all);
    return fine ? !same : -1;
}

/* --- texts as they are compared --- */

typedef struct {
    text own, translation; /* own: how it is spelled, null for a term that is found in any case */
} term;

struct nmt_glossary {
    const subwords *source;
    forms forms;
    spelled read; /* the terms as they are compared */
    term *terms;
    char **owned; /* the texts of terms */
    size_t owned_count, owned_room;
};

/* A text as it is compared, and what is compared of it as one. */
typedef struct {
    char *bytes;
    size_t size, room;
    size_t *begins, *ends; /* where in the original what begins at a byte of it begins, and what ends before it ends; NONE within */
    size_t begin_room, end_room;
} reading;

static void reading_clear(reading *r) { free(r->bytes), free(r->begins), free(r->ends); }

/* A small letter in place of a capital; one sigma. */
static uint32_t small_of(uint32_t c) {
    if (c == 0x130) return 'i';
    if (c == 0x3c2) return 0x3c3;
    if (c == 0x3f4) return 0x3b8;
    if (c == 0x1e9e) return 0xdf;
    if (c == 0x1c5 || c == 0x1c8 || c == 0x1cb || c == 0x1f2) return c + 1; /* as Dž */
    const bool is_greek = (c >= 0x1f88 && c < 0x1f90) || (c >= 0x1f98 && c < 0x1fa0) || (c >= 0x1fa8 && c < 0x1fb0);
    return is_greek ? c - 8 : c == 0x1fbc || c == 0x1fcc || c == 0x1ffc ? c - 9 : lower_of(c);
}

static bool add_read(reading *r, const char *bytes, size_t size) {
    if (!grown(&r->bytes, 1, &r->room, r->size + size + 1) || !grown(&r->begins, sizeof *r->begins, &r->begin_room, r->size + size + 1) ||
        !grown(&r->ends, sizeof *r->ends, &r->end_room, r->size + size + 1))
        return false;
    memcpy(r->bytes + r->size, bytes, size);
    for (size_t i = 0; i <= size; i++) r->begins[r->size + i] = NONE;
    for (size_t i = 1; i <= size; i++) r->ends[r->size + i] = NONE;
    r->size += size;
    return true;
}

/* What a reader of texts needs memory for. */
typedef struct {
    const nmt_glossary *g;
    bool folds;              /* reads capitals as small letters */
    points cluster, read, form;
    char *line, *normal;
    size_t line_room, normal_room;
} reader;

static void reader_clear(reader *r) {
    free(r->cluster.all), free(r->read.all), free(r->form.all);
    free(r->line), free(r->normal);
}

/* Adds a character and the marks on it as they are compared: as the model reads them in a text, and composed. */
static bool add_form(reader *r, text cluster, size_t begin, size_t end, reading *to) {
    const size_t size = (size_t)(cluster.end - cluster.begin);
    int bytes;
    text own = cluster;
    if (!class_of(&r->g->forms, r->cluster.all[0])) {
        if (!grown(&r->line, 1, &r->line_room, size + 2)) return false;
        r->line[0] = r->line[size + 1] = 'a';
        memcpy(r->line + 1, cluster.begin, size);
        const int64_t count = subwords_read(r->g->source, r->line, size + 2, &r->normal, &r->normal_room);
        if (count < 0) return false;
        if (count > 1 && r->normal[0] == 'a' && r->normal[count - 1] == 'a') own = (text){r->normal + 1, r->normal + count - 1};
    }
    r->read.count = r->form.count = 0;
    for (const char *p = own.begin; p < own.end; p += bytes)
        if (!add_point(&r->read, character_at(p, own.end, &bytes))) return false;
    if (!normalize(&r->g->forms, r->read.all, r->read.count, &r->form)) return false;
    size_t spaces = 0, first = to->size;
    while (spaces < r->form.count && is_space(r->form.all[spaces])) spaces++;
    if (spaces && spaces == r->form.count) r->form.all[0] = ' ', r->form.count = 1;
    else spaces = 0;
    if (spaces && to->size && to->bytes[to->size - 1] == ' ') return to->ends[to->size] = end, true;
    uint32_t before = 0;
    for (size_t i = 0; i < r->form.count; i++) {
        const uint32_t c = r->form.all[i], small = r->folds ? small_of(c) : c;
        char utf8[4];
        if ((!r->folds || c != 0x307 || before != 'i') && !add_read(to, utf8, utf8_of(small, utf8))) return false;
        before = c == 0x130 ? c : small;
    }
    if (to->size > first) to->begins[first] = begin, to->ends[to->size] = end;
    return true;
}

/* Reads a text character by character, each with the marks on it and what else Unicode can write as one with it. */
static bool read_text(reader *r, text t, reading *to) {
    const char *first = t.begin;
    int bytes;
    to->size = r->cluster.count = 0;
    if (!add_read(to, "", 0)) return false;
    for (const char *p = t.begin; p < t.end; p += bytes) {
        const uint32_t c = character_at(p, t.end, &bytes);
        const size_t count = r->cluster.count, before = count < MOST_BEFORE ? count : MOST_BEFORE;
        const int goes_on = count ? continues(&r->g->forms, r->cluster.all + count - before, before, c) : 1;
        if (goes_on < 0) return false;
        if (!goes_on) {
            if (!add_form(r, (text){first, p}, (size_t)(first - t.begin), (size_t)(p - t.begin), to)) return false;
            first = p, r->cluster.count = 0;
        }
        if (!add_point(&r->cluster, c)) return false;
    }
    return first == t.end || add_form(r, (text){first, t.end}, (size_t)(first - t.begin), (size_t)(t.end - t.begin), to);
}

/* --- terms in a text --- */

/* The longest term that is at a place of what was read: its number, -1 for none, and where it ends there. */
static int32_t term_at(reader *exact, const reading *read, text line, size_t place, size_t *end, reading *scratch, bool *fine) {
    const nmt_glossary *g = exact->g;
    const uint32_t before = last_of((text){read->bytes, read->bytes + place});
    int32_t found = -1, first, last;
    int bytes;
    for (size_t to = place; to < read->size;) {
        character_at(read->bytes + to, read->bytes + read->size, &bytes);
        to += (size_t)bytes;
        const text own = {read->bytes + place, read->bytes + to}, rest = {own.end, read->bytes + read->size};
        spelled_range(&g->read, own, &first, &last);
        if (first == last) break;
        if (read->ends[to] == NONE || !is_boundary(before, own) || !is_boundary(last_of(own), rest)) continue;
        const text origin = {line.begin + read->begins[place], line.begin + read->ends[to]};
        for (; first < last; first++) {
            const int32_t number = g->read.sorted[first];
            const text whole = spelled_by(&g->read, number), spelling = g->terms[number].own;
            if (whole.end - whole.begin != own.end - own.begin) break;
            if (spelling.begin && !(*fine = *fine && read_text(exact, origin, scratch))) return -1;
            if (spelling.begin && !same_text(spelling, (text){scratch->bytes, scratch->bytes + scratch->size})) continue;
            found = number, *end = to;
            break;
        }
    }
    return found;
}

bool glossary_find(const nmt_glossary *g, text line, found_terms *to) {
    reader folded = {.g = g, .folds = true}, exact = {.g = g};
    reading read = {0}, scratch = {0};
    bool fine = read_text(&folded, line, &read);
    int bytes;
    for (size_t place = 0, end; fine && place < read.size; place = end) {
        character_at(read.bytes + place, read.bytes + read.size, &bytes);
        end = place + (size_t)bytes;
        const int32_t number = read.begins[place] == NONE ? -1 : term_at(&exact, &read, line, place, &end, &scratch, &fine);
        if (number < 0 || !fine) continue;
        if (!(fine = grown(&to->all, sizeof *to->all, &to->room, to->count + 1))) break;
        const text at = {line.begin + read.begins[place], line.begin + read.ends[end]};
        to->all[to->count++] = (found_term){at, g->terms[number].translation};
    }
    reading_clear(&read), reading_clear(&scratch);
    reader_clear(&folded), reader_clear(&exact);
    return fine;
}

/* --- terms of a text in lines --- */

/* A copy that the glossary owns, empty where memory ends. */
static text own(nmt_glossary *g, text t) {
    const size_t size = (size_t)(t.end - t.begin);
    char *made = malloc(size + 1);
    if (made && !grown(&g->owned, sizeof *g->owned, &g->owned_room, g->owned_count + 1)) free(made), made = NULL;
    if (!made) return (text){NULL, NULL};
    if (size) memcpy(made, t.begin, size);
    g->owned[g->owned_count++] = made;
    return (text){made, made + size};
}

/* A text with one space for any white space, and `nfc` composed. */
static text canonical(nmt_glossary *g, text t, bool nfc) {
    points read = {0}, form = {0};
    reading made = {0};
    int bytes;
    text found = {NULL, NULL};
    bool fine = true;
    t = stripped(t);
    for (const char *p = t.begin; fine && p < t.end; p += bytes) {
        const uint32_t c = character_at(p, t.end, &bytes);
        if (!is_space(c)) fine = add_point(&read, c);
        else if (read.all[read.count - 1] != ' ') fine = add_point(&read, ' ');
    }
    fine = fine && (!nfc || normalize(&g->forms, read.all, read.count, &form));
    const points *from = nfc ? &form : &read;
    char utf8[4];
    for (size_t i = 0; fine && i < from->count; i++) fine = add_read(&made, utf8, utf8_of(from->all[i], utf8));
    if (fine) found = own(g, (text){made.bytes, made.bytes + made.size});
    free(read.all), free(form.all);
    reading_clear(&made);
    return found;
}

typedef struct {
    text term, translation;
    size_t line;
} row;

#define SHOWN(t) (int)((t).end - (t).begin < 100 ? (t).end - (t).begin : 100), (t).begin

/* The terms of a text in lines and their translations; false with a line in `problem`. */
static bool read_rows(nmt_glossary *g, text lines, row **rows, size_t *count, char *problem, size_t room) {
    size_t row_room = 0, number = 0;
    snprintf(problem, room, "not enough memory");
    while (lines.begin < lines.end) {
        const char *end = memchr(lines.begin, '\n', (size_t)(lines.end - lines.begin)), *tab = NULL;
        text line = {lines.begin, end ? end : lines.end};
        lines.begin = line.end + (end != NULL), number++;
        if (line.begin < line.end && line.end[-1] == '\r') line.end--;
        if (after_spaces(line) == line.end || *line.begin == '#') continue;
        tab = memchr(line.begin, '\t', (size_t)(line.end - line.begin));
        const text sides[] = {stripped((text){line.begin, tab ? tab : line.end}), stripped((text){tab ? tab + 1 : line.end, line.end})};
        if (sides[0].begin == sides[0].end || sides[1].begin == sides[1].end ||
            memchr(tab + 1, '\t', (size_t)(line.end - tab) - 1)) {
            snprintf(problem, room, "line %zu: '%.*s' is not a term, a tab and its translation", number, SHOWN(line));
            return false;
        }
        if (!grown(rows, sizeof **rows, &row_room, *count + 1)) return false;
        (*rows)[*count] = (row){canonical(g, sides[0], true), canonical(g, sides[1], false), number};
        if (!(*rows)[*count].term.begin || !(*rows)[*count].translation.begin) return false;
        ++*count;
    }
    if (!*count) snprintf(problem, room, "the glossary is empty; lines of a term, a tab and its translation are expected");
    return *count > 0 && *count < INT32_MAX;
}

/* Texts to be sorted. */
static bool add_spelled(spelled *s, size_t *room, text t) {
    const size_t used = s->begins[s->size], size = (size_t)(t.end - t.begin);
    if (used + size > UINT32_MAX || !grown(&s->bytes, 1, room, used + size + 1)) return false;
    memcpy(s->bytes + used, t.begin, size);
    s->begins[++s->size] = (uint32_t)(used + size);
    return true;
}

static bool spelled_begin(spelled *s, size_t count) {
    s->begins = calloc(count + 1, sizeof *s->begins), s->sorted = calloc(count, sizeof *s->sorted);
    return s->begins && s->sorted;
}

/* Whether no term has two translations; the first that has is named in `problem`. */
static bool are_unique(const row *rows, size_t count, char *problem, size_t room) {
    spelled terms = {0};
    size_t bytes = 0, first = 0, bad = NONE, other = 0;
    bool fine = spelled_begin(&terms, count);
    for (size_t i = 0; fine && i < count; i++) fine = add_spelled(&terms, &bytes, rows[i].term);
    fine = fine && spelled_sort(&terms);
    for (size_t i = 0; fine && i < count; i++) {
        const size_t own = (size_t)terms.sorted[i];
        if (!i || !same_text(rows[own].term, rows[first].term)) first = own;
        if (!same_text(rows[own].translation, rows[first].translation) && own < bad) bad = own, other = first;
    }
    spelled_clear(&terms);
    if (bad == NONE) return fine;
    snprintf(problem, room, "line %zu: '%.*s' has two translations, '%.*s' and '%.*s'", rows[bad].line, SHOWN(rows[bad].term),
             SHOWN(rows[other].translation), SHOWN(rows[bad].translation));
    return false;
}

static bool is_small(text t) {
    int bytes;
    for (const char *p = t.begin; p < t.end; p += bytes) {
        const uint32_t c = character_at(p, t.end, &bytes);
        if (c != 0x3c2 && small_of(c) != c) return false;
    }
    return true;
}

/* Terms that are found in one spelling alone come before those that are found in any, with which they may be equal. */
static bool add_terms(nmt_glossary *g, const row *rows, size_t count) {
    reader folded = {.g = g, .folds = true}, exact = {.g = g};
    reading read = {0};
    size_t bytes = 0;
    bool fine = spelled_begin(&g->read, count) && (g->terms = calloc(count, sizeof *g->terms));
    for (size_t i = 0; fine && i < 2 * count; i++) {
        const row *one = &rows[i % count];
        const bool any_case = is_small(one->term);
        if (any_case != (i >= count)) continue;
        term *to = &g->terms[g->read.size];
        *to = (term){{NULL, NULL}, one->translation};
        if (!any_case) {
            fine = read_text(&exact, one->term, &read);
            if (fine && read.size) fine = (to->own = own(g, (text){read.bytes, read.bytes + read.size})).begin;
        }
        fine = fine && read_text(&folded, one->term, &read);
        if (fine && read.size) fine = add_spelled(&g->read, &bytes, (text){read.bytes, read.bytes + read.size});
    }
    reading_clear(&read);
    reader_clear(&folded), reader_clear(&exact);
    return fine && (!g->read.size || spelled_sort(&g->read));
}

nmt_glossary *glossary_open(const subwords *source, text lines, char *problem, size_t room) {
    nmt_glossary *g = calloc(1, sizeof *g);
    row *rows = NULL;
    size_t count = 0;
    snprintf(problem, room, "not enough memory");
    bool fine = g && (g->source = source) && forms_open(&g->forms) && read_rows(g, lines, &rows, &count, problem, room) &&
                are_unique(rows, count, problem, room) && add_terms(g, rows, count);
    free(rows);
    if (fine) return g;
    nmt_glossary_close(g);
    return NULL;
}

void nmt_glossary_close(nmt_glossary *g) {
    if (!g) return;
    for (size_t i = 0; i < g->owned_count; i++) free(g->owned[i]);
    free(g->owned), free(g->terms), free(g->forms.all), free(g->forms.by_code);
    spelled_clear(&g->read);
    free(g);
}
