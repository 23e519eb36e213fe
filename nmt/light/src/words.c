/* See words.h. */

#include "words.h"

#include "split.h"
#include "system.h"
#include "unicode_tables.h"

uint32_t next_number(const char **at) {
    uint32_t number = 0;
    for (int shift = 0;; shift += 5) {
        const uint32_t digit = (uint32_t)(**at - 40 - (**at > 92));
        ++*at, number |= (digit & 31) << shift;
        if (digit < 32) return number;
    }
}

size_t utf8_of(uint32_t c, char *to) {
    const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t LEADS[] = {0, 0xc0, 0xe0, 0xf0};
    to[0] = (char)(LEADS[more] | c >> 6 * more);
    for (int i = 1; i <= more; i++) to[i] = (char)(0x80 | (c >> 6 * (more - i) & 63));
    return (size_t)more + 1;
}

/* Whether a character is in one of the runs of a table, which has the lengths of those without and with it in turn. */
static bool is_in(uint32_t c, const char *runs) {
    bool is_run = false;
    for (uint32_t end = 0; *runs; is_run = !is_run)
        if (c < (end += next_number(&runs))) return is_run;
    return false;
}

bool is_alphanumeric(uint32_t c) { return is_in(c, ALPHANUMERIC); }
bool is_mark(uint32_t c) { return c >= 0x300 && is_in(c, MARKS); }
bool is_opening(uint32_t c) { return is_in(c, OPENING); }
bool is_closing(uint32_t c) { return is_in(c, CLOSING); }
bool is_dash(uint32_t c) { return is_in(c, DASHES); }

bool is_unspaced(uint32_t c) {
    static const uint32_t RANGES[][2] = {
        {0xe00, 0x109f},   {0x1780, 0x17ff}, {0x19e0, 0x19ff}, {0xaa60, 0xaa7f}, {0x3005, 0x3007}, {0x3040, 0x312f},
        {0x31f0, 0x31ff}, {0x3400, 0x9fff}, {0xf900, 0xfaff}, {0xff66, 0xff9f}, {0x20000, 0x3ffff}};
    for (size_t i = 0; c >= 0xe00 && i < sizeof RANGES / sizeof *RANGES; i++)
        if (c >= RANGES[i][0] && c <= RANGES[i][1]) return true;
    return false;
}

uint32_t last_of(text t) {
    int bytes;
    if (t.begin == t.end) return 0;
    const char *p = t.end - 1;
    while (p > t.begin && t.end - p < 4 && (*p & 0xc0) == 0x80) p--;
    uint32_t c = character_at(p, t.end, &bytes);
    return p + bytes == t.end ? c : 0xfffd;
}

const char *after_spaces(text t) {
    int bytes;
    while (t.begin < t.end && is_space(character_at(t.begin, t.end, &bytes))) t.begin += bytes;
    return t.begin;
}

text stripped(text t) {
    int bytes;
    const char *last = t.begin = after_spaces(t);
    for (const char *p = last; p < t.end; p += bytes)
        if (!is_space(character_at(p, t.end, &bytes))) last = p + bytes;
    return (text){t.begin, last};
}

/* Joins the letters on both sides to one word: `_`, soft hyphen, and marks without width. */
static bool is_joiner(uint32_t c) { return c == '_' || c == 0xad || c == 0x200c || c == 0x200d || c == 0x2060; }

static bool is_letter(uint32_t c) { return is_alphanumeric(c) || is_joiner(c) || is_mark(c); }

/* Korean particles; those after a vowel and after a consonant, and those after both. */
static const char *const PARTICLES[] = {
    "는 가 를 와 로 나 랑 라도 라고 라는 예요 였다 ",
    "은 이 을 과 으로 로 이나 이랑 이라도 이라고 이라는 이에요 이었다 이다 이고 이며 인 ",
    "의 에 에서 에게 에게서 께 께서 한테 한테서 도 만 까지 부터 마저 조차 보다 처럼 같이 마다 밖에 뿐 들 하고 입니다 "};
enum { AFTER_VOWEL = 1, AFTER_CONSONANT = 2, AFTER_ANY = 4 };

/* Whether a text begins with particles of these kinds, then of any, behind which a word ends. */
static bool begins_with_particles(text t, int kinds) {
    for (int kind = 0; kind < 3; kind++)
        for (const char *p = PARTICLES[kind]; kinds >> kind & 1 && *p; p = strchr(p, ' ') + 1) {
            size_t size = strcspn(p, " ");
            if ((size_t)(t.end - t.begin) < size || memcmp(t.begin, p, size)) continue;
            text rest = {t.begin + size, t.end};
            int bytes;
            uint32_t next = rest.begin < rest.end ? character_at(rest.begin, rest.end, &bytes) : 0;
            if (!is_alphanumeric(next) && next != '_' && !is_mark(next)) return true;
            if (begins_with_particles(rest, AFTER_VOWEL | AFTER_CONSONANT | AFTER_ANY)) return true;
        }
    return false;
}

static bool is_hangul(uint32_t c) { return c >= 0xac00 && c < 0xd7a4; }

bool is_boundary(uint32_t last, text after) {
    enum { LONGEST = 64, FINALS = 28 };
    int bytes;
    if (!last || after.begin == after.end) return true;
    uint32_t first = character_at(after.begin, after.end, &bytes);
    if (!is_letter(last) || !is_letter(first)) return true;
    bool lengthens = first == 0x30fc || first == 0xff70;
    if (is_mark(first) || lengthens || is_joiner(last) || is_joiner(first)) return false;
    if (is_unspaced(last) || is_unspaced(first)) return true;
    if (!is_hangul(first)) return false;
    if (after.end - after.begin > LONGEST) after.end = after.begin + LONGEST;
    /* Syllables that differ in their last consonant follow each other, the first of which has none. */
    int kinds = !is_hangul(last) ? AFTER_VOWEL | AFTER_CONSONANT : (last - 0xac00) % FINALS ? AFTER_CONSONANT : AFTER_VOWEL;
    return begins_with_particles(after, kinds | AFTER_ANY);
}

/* --- vocabularies --- */

static int compare(text a, text b) {
    size_t m = (size_t)(a.end - a.begin), n = (size_t)(b.end - b.begin);
    int found = memcmp(a.begin, b.begin, m < n ? m : n);
    return found ? found : (m > n) - (m < n);
}

/* Neighbouring runs are merged, which grow twice as long. */
bool spelled_sort(spelled *s) {
    size_t count = (size_t)s->size;
    int32_t *from = malloc(count * sizeof *from), *to = s->sorted;
    if (!from) return false;
    for (size_t i = 0; i < count; i++) to[i] = (int32_t)i;
    for (size_t run = 1; run < count; run *= 2) {
        memcpy(from, to, count * sizeof *from);
        for (size_t begin = 0; begin < count; begin += 2 * run) {
            size_t middle = begin + run < count ? begin + run : count, end = middle + run < count ? middle + run : count;
            for (size_t i = begin, j = middle, at = begin; at < end; at++) {
                bool left = j == end || (i < middle && compare(spelled_by(s, from[i]), spelled_by(s, from[j])) <= 0);
                to[at] = left ? from[i++] : from[j++];
            }
        }
    }
    free(from);
    return true;
}

void spelled_range(const spelled *s, text start, int32_t *first, int32_t *last) {
    size_t size = (size_t)(start.end - start.begin);
    for (int side = 0; side < 2; side++) { /* the first that does not come before it, and the first that comes behind */
        int32_t low = 0, high = s->size;
        while (low < high) {
            int32_t middle = low + (high - low) / 2;
            text own = spelled_by(s, s->sorted[middle]);
            if ((size_t)(own.end - own.begin) > size && side) own.end = own.begin + size;
            if (compare(own, start) < side) low = middle + 1;
            else high = middle;
        }
        *(side ? last : first) = low;
    }
}

static bool spell(const subwords *model, spelled *s, bool single) {
    char *own = NULL;
    size_t own_room = 0, room = 0, used = 0;
    s->size = subwords_size(model);
    s->begins = calloc((size_t)s->size + 1, sizeof *s->begins);
    s->sorted = calloc((size_t)s->size, sizeof *s->sorted);
    s->letters = calloc((size_t)s->size, sizeof *s->letters);
    bool fine = s->begins && s->sorted && s->letters && grown(&s->bytes, 1, &room, 1);
    for (int32_t i = 0; fine && i < s->size; i++) {
        int64_t size = subwords_added(model, i, &own, &own_room);
        fine = size >= 0 && grown(&s->bytes, 1, &room, used + (size_t)size + 1);
        for (int64_t k = 0; fine && k < size; k++)
            if (!single || own[k] != ' ' || used == s->begins[i] || s->bytes[used - 1] != ' ') s->bytes[used++] = own[k];
        if (fine) s->begins[i + 1] = (uint32_t)used, s->letters[i] = letters_of(spelled_by(s, i));
    }
    free(own);
    return fine && spelled_sort(s);
}

vocabulary *vocabulary_of(const subwords *model) {
    vocabulary *v = calloc(1, sizeof *v);
    if (!v) return NULL;
    v->begins_word = calloc((size_t)subwords_size(model), sizeof *v->begins_word);
    if (!v->begins_word || !spell(model, &v->as_is, false) || !spell(model, &v->single, true)) {
        vocabulary_close(v);
        return NULL;
    }
    for (int32_t i = 0; i < v->as_is.size; i++) {
        size_t size;
        text own = spelled_by(&v->as_is, i);
        const char *name = subwords_piece(model, i, &size);
        bool is_byte = own.end - own.begin == 1 && size == 6 && !memcmp(name, "<0x", 3);
        bool is_spaced = own.begin < own.end && *own.begin == ' ';
        v->begins_word[i] = is_spaced && !is_byte;
        v->any_begins_word = v->any_begins_word || is_spaced;
    }
    return v;
}

void spelled_clear(spelled *s) { free(s->bytes), free(s->begins), free(s->sorted), free(s->letters); }

void vocabulary_close(vocabulary *v) {
    if (!v) return;
    spelled_clear(&v->as_is), spelled_clear(&v->single);
    free(v->begins_word);
    free(v);
}
