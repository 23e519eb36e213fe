/* See case.h. */

#include "case.h"

#include <string.h>

#include "letters.h"
#include "system.h"

static const char KIND[] = "markup 1\n";

enum { CAPITAL, UPPER, AS_IS, STRETCH, TITLE, END, LITERAL, NO_MARK };

static const uint16_t MARK_CODES[] = {0x21e7, 0x21ee, 0x21e9, 0x21ea, 0x21eb, 0x21ec, 0x21ed};

/* Words that are not as expected and make a stretch, by its mark. */
static int least_of(int stretch) { return stretch == STRETCH ? 2 : 3; }

uint32_t lower_of(uint32_t c) {
    size_t first = 0, end = sizeof LETTERS / sizeof *LETTERS;
    if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
    while (first < end) {
        size_t middle = (first + end) / 2;
        if (c > LETTERS[middle].last) first = middle + 1;
        else end = middle;
    }
    const letter_range *r = &LETTERS[first];
    bool is_capital = first < sizeof LETTERS / sizeof *LETTERS && c >= r->first && (c - r->first) % r->step == 0;
    return is_capital ? c + (uint32_t)r->to_small : c;
}

uint32_t upper_of(uint32_t c) {
    if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
    for (size_t i = 0; i < sizeof LETTERS / sizeof *LETTERS; i++) {
        const letter_range *r = &LETTERS[i];
        uint32_t capital = c - (uint32_t)r->to_small;
        if (capital >= r->first && capital <= r->last && (capital - r->first) % r->step == 0) return capital;
    }
    return c == 0x3c2 ? 0x3a3 : c;
}

static bool is_combining(uint32_t c) { return c >= 0x300 && c < 0x370; }

static bool is_word_letter(uint32_t c) {
    return c == 0xdf || is_combining(c) || lower_of(c) != c || upper_of(c) != c;
}

static int mark_of(uint32_t c) {
    int mark = CAPITAL;
    while (mark < NO_MARK && MARK_CODES[mark] != c) mark++;
    return mark;
}

/* The character with which a text begins; 0 for an empty one. */
static uint32_t first_of(text t, int *bytes) {
    *bytes = 0;
    return t.begin < t.end ? character_at(t.begin, t.end, bytes) : 0;
}

bool case_begins_with_mark(const char *from, size_t size) {
    int bytes;
    return mark_of(first_of((text){from, from + size}, &bytes)) != NO_MARK;
}

bool case_is_mark(const char *from, size_t size) { return size == 3 && case_begins_with_mark(from, size); }

/* --- writing --- */

typedef struct {
    char **to;
    size_t *room, size;
    bool failed; /* memory has ended */
    text from;   /* what is written with marks */
    const char *at;        /* where in it what is written next stands, unless that is a part of it */
    case_origins *origins; /* null: not wanted */
} output;

static void put(output *o, text t) {
    size_t size = (size_t)(t.end - t.begin);
    case_origins *origins = o->origins;
    o->failed = o->failed || !grown(o->to, 1, o->room, o->size + size + 1);
    if (origins) o->failed = o->failed || !grown(&origins->all, sizeof *origins->all, &origins->room, o->size + size + 1);
    if (o->failed) return;
    bool is_part = t.begin >= o->from.begin && t.begin < o->from.end;
    for (size_t i = 0; origins && i < size; i++)
        origins->all[o->size + i] = (uint32_t)(is_part ? t.begin + i - o->from.begin : o->at - o->from.begin);
    memcpy(*o->to + o->size, t.begin, size);
    o->size += size;
}

static void put_character(output *o, uint32_t c) {
    char utf8[4];
    put(o, (text){utf8, utf8 + utf8_of(c, utf8)});
}

static void put_mark(output *o, int mark) { put_character(o, MARK_CODES[mark]); }

/* Each character by a function; bytes that are no UTF-8 as they are. */
static void put_by(output *o, text t, uint32_t (*of)(uint32_t)) {
    int bytes;
    for (; t.begin < t.end; t.begin += bytes) {
        uint32_t c = first_of(t, &bytes), made = of(c);
        o->at = t.begin;
        if (made != c) put_character(o, made);
        else put(o, (text){t.begin, t.begin + bytes});
    }
}

static void put_capital(output *o, text word) {
    int bytes;
    uint32_t c = first_of(word, &bytes);
    if (bytes && upper_of(c) != c) put_character(o, upper_of(c)), word.begin += bytes;
    put(o, word);
}

/* A word that is to be in capitals in small letters, with a final sigma. */
static void put_small(output *o, text word, bool is_upper) {
    int bytes;
    first_of(word, &bytes);
    bool has_sigma = is_upper && word.end - word.begin >= bytes + 2 &&
                     lower_of(character_at(word.end - 2, word.end, &bytes)) == 0x3c3;
    put_by(o, has_sigma ? (text){word.begin, word.end - 2} : word, lower_of);
    o->at = word.end - 2;
    if (has_sigma) put_character(o, 0x3c2);
}

int64_t case_lower(const char *from, size_t size, char **to, size_t *room) {
    output o = {.to = to, .room = room};
    put_by(&o, (text){from, from + size}, lower_of);
    return o.failed ? -1 : (int64_t)o.size;
}

bool case_in_capitals(const char *from, size_t size) {
    text t = {from, from + size};
    int words = 0, bytes;
    for (bool is_new = true; t.begin < t.end; t.begin += bytes) {
        uint32_t c = first_of(t, &bytes);
        if (upper_of(c) != c) return false;
        if (is_space(c)) is_new = true;
        else if (is_new && lower_of(c) != c) is_new = false, words++;
    }
    return words > 1;
}

static bool is_word_character(uint32_t c) { return c == '_' || is_alphanumeric(c); }

void case_lower_line(const char *from, size_t size, const split_rules *rules, bool is_english, char *to) {
    memcpy(to, from, size);
    splitting s = split_begin(rules, from, size);
    uint32_t before = 0;
    bool stays = true; /* the first letter of a sentence does */
    for (size_t at = 0, begin = 0, end = 0, next; at < size; at = next) {
        while (at >= end && split_next(&s, &begin, &end)) stays = true;
        int bytes, others;
        text rest = {from + at, from + size};
        uint32_t c = first_of(rest, &bytes), small = lower_of(c);
        next = at + (size_t)bytes, rest.begin += bytes;
        bool is_i = is_english && c == 'I' && !is_word_character(before) && !is_word_character(first_of(rest, &others));
        before = c;
        if (small == c || (at >= begin && at < end && stays)) {
            stays = stays && small == c;
            continue;
        }
        char made[4];
        if (!is_i && utf8_of(small, made) == (size_t)bytes) memcpy(to + at, made, (size_t)bytes);
    }
}

/* `SS` for the letter that has no capital of its own. */
int64_t case_upper(const char *from, size_t size, char **to, size_t *room) {
    output o = {.to = to, .room = room};
    text t = {from, from + size};
    while (t.begin < t.end) {
        const char *sharp = t.begin;
        while (sharp < t.end && !(sharp + 1 < t.end && !memcmp(sharp, "\xc3\x9f", 2))) sharp++;
        put_by(&o, (text){t.begin, sharp}, upper_of);
        if (sharp < t.end) put(&o, (text){"SS", "SS" + 2});
        t.begin = sharp < t.end ? sharp + 2 : sharp;
    }
    return o.failed ? -1 : (int64_t)o.size;
}

/* --- the table: forms by their small letters, in a hash table with linear probing --- */

struct case_marks {
    text *forms; /* [mask + 1] */
    size_t mask;
    symbol_size_of symbol;
    const void *model;
};

static uint32_t hash_of(text t) {
    uint32_t hash = 0;
    int bytes;
    for (; t.begin < t.end; t.begin += bytes) hash = (hash ^ lower_of(first_of(t, &bytes))) * 0x9e3779b1u, hash ^= hash >> 15;
    return hash;
}

size_t begins_alike(text t, text start) {
    const char *begin = t.begin;
    int own, others;
    for (; t.begin < t.end && start.begin < start.end; t.begin += own, start.begin += others)
        if (lower_of(first_of(t, &own)) != lower_of(first_of(start, &others))) return 0;
    return start.begin == start.end ? (size_t)(t.begin - begin) : 0;
}

/* Whether two texts have the same small letters. */
static bool same_small(text a, text b) { return begins_alike(a, b) == (size_t)(a.end - a.begin); }

/* The usual form of a word; an empty text where it is that in small letters. */
static text usual_of(const case_marks *m, text word) {
    size_t at = hash_of(word) & m->mask;
    while (m->forms[at].begin && !same_small(m->forms[at], word)) at = (at + 1) & m->mask;
    return m->forms[at];
}

case_marks *case_open(const char *table, size_t size, symbol_size_of symbol, const void *model, const char **problem) {
    const size_t kind = sizeof KIND - 1;
    *problem = "a SentencePiece model with case marks of a kind that is not known here";
    if (size < kind || memcmp(table, KIND, kind)) return NULL;
    size_t count = 0, places = 16;
    for (size_t i = kind; i < size; i++) count += table[i] == '\n';
    while (places < 2 * count + 2) places *= 2;
    *problem = "memory ends";
    case_marks *m = calloc(1, sizeof *m);
    if (m) *m = (case_marks){calloc(places, sizeof *m->forms), places - 1, symbol, model};
    if (!m || !m->forms) return free(m), NULL;
    for (const char *at = table + kind, *feed; (feed = memchr(at, '\n', (size_t)(table + size - at))); at = feed + 1) {
        text form = {at, feed};
        size_t place = hash_of(form) & m->mask;
        while (m->forms[place].begin && !same_small(m->forms[place], form)) place = (place + 1) & m->mask;
        if (feed > at) m->forms[place] = form; /* of two for a word the last one */
    }
    return m;
}

void case_close(case_marks *m) {
    if (!m) return;
    free(m->forms);
    free(m);
}

/* --- marks --- */

typedef struct {
    text own, usual;
    int mark;      /* of a sign that is a mark itself; NO_MARK: it is a word */
    int stretch;   /* NO_MARK for none */
    bool unexpected, composed, upper, title;
} item;

/* Whether a word is in its usual form, with a capital at its beginning or without; an empty `usual` stands for small
   letters. */
static bool is_written(text word, text usual, bool capital) {
    int own, others;
    if (usual.begin == usual.end) {
        for (bool first = true; word.begin < word.end; word.begin += own, first = false) {
            uint32_t c = first_of(word, &own), small = lower_of(c);
            if (c != (first && capital ? upper_of(small) : small)) return false;
        }
        return true;
    }
    uint32_t c = first_of(word, &own), first = first_of(usual, &others);
    if (c != (capital ? upper_of(first) : first)) return false;
    size_t size = (size_t)(word.end - word.begin - own);
    return size == (size_t)(usual.end - usual.begin - others) && !memcmp(word.begin + own, usual.begin + others, size);
}

static item word_of(const case_marks *m, text own, bool inside) {
    item word = {.own = own, .usual = usual_of(m, own), .mark = NO_MARK, .stretch = NO_MARK, .upper = true};
    int bytes;
    bool is_small = true;
    uint32_t before = 0;
    for (text t = own; t.begin < t.end; t.begin += bytes) {
        uint32_t c = first_of(t, &bytes), small = lower_of(c);
        word.composed = word.composed || (is_combining(c) && before != lower_of(before));
        is_small = is_small && c == small;
        word.upper = word.upper && c == upper_of(small);
        before = c;
    }
    word.upper = word.upper && !is_small;
    word.title = !is_small && is_written(own, word.usual, true);
    word.unexpected = !is_written(own, word.usual, !inside);
    return word;
}

static bool suits(const item *i, int stretch) {
    return i->mark == NO_MARK && i->stretch == NO_MARK && !i->composed && (stretch == STRETCH ? i->upper : i->title);
}

/* Bytes of a symbol that is no mark; 0 for none. */
static size_t symbol_at(const case_marks *m, const char *p, const char *end) {
    size_t symbol = m->symbol(m->model, p, (size_t)(end - p));
    return case_is_mark(p, symbol) ? 0 : symbol;
}

/* The items of a text; how many there are, -1 where memory ends. */
static int64_t find_items(const case_marks *m, text t, bool inside, item **items) {
    size_t count = 0, room = 0;
    int bytes;
    for (const char *p = t.begin; p < t.end;) {
        uint32_t c = character_at(p, t.end, &bytes);
        size_t symbol = symbol_at(m, p, t.end);
        int mark = symbol ? NO_MARK : mark_of(c);
        const char *begin = p;
        p += symbol ? symbol : (size_t)bytes;
        if (symbol || (mark == NO_MARK && !is_word_letter(c))) {
            inside = inside || (!symbol && c >= '0' && c <= '9');
            continue;
        }
        while (mark == NO_MARK && p < t.end && is_word_letter(character_at(p, t.end, &bytes))) p += bytes;
        if (!grown(items, sizeof **items, &room, count + 1)) return -1;
        text own = {begin, p};
        (*items)[count++] = mark == NO_MARK ? word_of(m, own, inside) : (item){.own = own, .mark = mark, .stretch = NO_MARK};
        inside = inside || mark == NO_MARK;
    }
    return (int64_t)count;
}

static int64_t next_word(const item *items, int64_t count, int64_t at) {
    while (at < count && items[at].mark != NO_MARK) at++;
    return at;
}

/* Runs of words that suit a stretch become one if so many of them are not as expected. */
static void find_stretches(item *items, int64_t count, int stretch) {
    for (int64_t first = next_word(items, count, 0), end; first < count; first = end) {
        int unexpected = 0;
        for (end = first; end < count && suits(&items[end], stretch); end = next_word(items, count, end + 1))
            unexpected += items[end].unexpected;
        for (int64_t i = first; i < end && unexpected >= least_of(stretch); i++) items[i].stretch = stretch;
        if (end == first) end = next_word(items, count, first + 1);
    }
}

/* What begins a word: its mark, and behind it the rest of the word; NO_MARK and all of it in a stretch of capitals. */
static int own_mark(const item *word) {
    int bytes;
    if (word->composed || is_written(word->own, (text){NULL, NULL}, false)) return AS_IS;
    if (is_written(word->own, (text){NULL, NULL}, true)) return CAPITAL;
    if (word->upper) return UPPER;
    uint32_t c = first_of(word->own, &bytes);
    return lower_of(c) == c ? AS_IS : CAPITAL;
}

static void put_marked(output *o, const item *word, int mark) {
    if (mark == AS_IS && word->composed) {
        put(o, word->own);
        return;
    }
    if (mark == UPPER || mark == NO_MARK) {
        put_small(o, word->own, true);
        return;
    }
    int bytes;
    for (text t = word->own; t.begin < t.end; t.begin += bytes) { /* all but the first capital have a mark of their own */
        uint32_t c = first_of(t, &bytes), small = lower_of(c);
        o->at = t.begin;
        if (small != c && t.begin > word->own.begin) put_mark(o, CAPITAL);
        if (small != c) put_character(o, small);
        else put(o, (text){t.begin, t.begin + bytes});
    }
}

int64_t case_mark(const case_marks *m, const char *from, size_t size, bool inside, char **to, size_t *room,
                  case_origins *origins) {
    const text all = {from, from + size};
    item *items = NULL;
    output o = {.to = to, .room = room, .from = all, .at = from, .origins = origins};
    const int64_t count = find_items(m, all, inside, &items);
    int64_t unexpected = 0;
    int stretch = NO_MARK;
    for (int64_t i = 0; i < count; i++) unexpected += items[i].unexpected;
    for (int which = STRETCH; which <= TITLE && unexpected >= least_of(which); which++) find_stretches(items, count, which);
    const char *at = from;
    for (int64_t i = 0; i < count; i++) {
        const item *own = &items[i];
        if (own->mark != NO_MARK) {
            put(&o, (text){at, own->own.begin});
            o.at = own->own.begin;
            put_mark(&o, LITERAL), put_character(&o, (uint32_t)('0' + own->mark));
            at = own->own.end;
            continue;
        }
        int opens = own->stretch != NO_MARK && own->stretch != stretch ? own->stretch : NO_MARK, mark = NO_MARK;
        bool is_marked = own->stretch == NO_MARK && (own->unexpected || own->composed);
        if (is_marked) mark = own_mark(own);
        bool any = opens != NO_MARK || is_marked, spaced = any && own->own.begin > at && own->own.begin[-1] == ' ';
        put(&o, (text){at, own->own.begin - spaced});
        o.at = own->own.begin - spaced;
        if (opens != NO_MARK) put_mark(&o, opens);
        if (is_marked) put_mark(&o, mark);
        if (spaced || (any && own->own.begin == from)) put_character(&o, ' ');
        if (is_marked || own->stretch == STRETCH) put_marked(&o, own, mark);
        else put_small(&o, own->own, false);
        at = o.at = own->own.end, stretch = own->stretch;
        int64_t next = next_word(items, count, i + 1);
        if (stretch != NO_MARK && next < count && items[next].stretch == NO_MARK) put_mark(&o, END);
    }
    put(&o, (text){at, all.end});
    if (origins && !o.failed) origins->all[o.size] = (uint32_t)size;
    free(items);
    return count < 0 || o.failed ? -1 : (int64_t)o.size;
}

int64_t case_unmark(const case_marks *m, const char *from, size_t size, char **to, size_t *room, size_t *places) {
    const text all = {from, from + size};
    output o = {.to = to, .room = room};
    int bytes, mark = NO_MARK, stretch = NO_MARK;
    bool inside = false;
    const bool begins = case_begins_with_mark(from, size);
    put(&o, (text){from, from});
    for (const char *p = from; p < all.end;) {
        const char *begin = p;
        size_t before = o.size;
        uint32_t c = character_at(p, all.end, &bytes);
        size_t symbol = symbol_at(m, p, all.end);
        int found = symbol ? NO_MARK : mark_of(c);
        p += symbol ? symbol : (size_t)bytes;
        if (found == LITERAL) {
            if (p < all.end && *p >= '0' && *p < '0' + NO_MARK) put_mark(&o, *p++ - '0');
        } else if (found <= AS_IS) {
            mark = found;
        } else if (found != NO_MARK) {
            stretch = found == END ? NO_MARK : found;
        } else if (symbol || !is_word_letter(c)) {
            inside = inside || (!symbol && c >= '0' && c <= '9');
            if (o.size || c != ' ' || !begins) put(&o, (text){begin, p}); /* before a mark at the beginning is no space */
        } else {
            while (p < all.end && is_word_letter(character_at(p, all.end, &bytes))) p += bytes;
            text word = {begin, p}, usual = mark == NO_MARK && stretch != STRETCH ? usual_of(m, word) : word;
            if (!usual.begin) usual = word;
            bool is_upper = mark == UPPER || (mark == NO_MARK && stretch == STRETCH);
            bool is_capital = mark == CAPITAL || (mark == NO_MARK && (!inside || stretch == TITLE));
            if (is_upper) put_by(&o, word, upper_of);
            else if (is_capital) put_capital(&o, usual);
            else put(&o, usual);
            mark = NO_MARK, inside = true;
        }
        for (const char *q = begin; places && !o.failed && q < p; q += bytes) { /* character by character */
            character_at(q, p, &bytes);
            for (int i = 0; i < bytes; i++) places[q - from + i] = before;
            if (before < o.size) character_at(*to + before, *to + o.size, &bytes), before += (size_t)bytes;
            character_at(q, p, &bytes);
        }
    }
    if (places) places[size] = o.size;
    return o.failed ? -1 : (int64_t)o.size;
}
