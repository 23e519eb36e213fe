/* See parts.h; what counts as a sentence is as in nmt/search/splitting.py. */

#include "parts.h"

#include <stdlib.h>
#include <string.h>

enum { END = 2 };

typedef struct {
    const char *begin, *end;
} text;

/* A character and how many bytes it has; of what is no UTF-8 each byte is one, and none that is looked for. */
static uint32_t character(text t, int *bytes) {
    const unsigned char *p = (const unsigned char *)t.begin;
    size_t left = (size_t)(t.end - t.begin);
    *bytes = 1;
    if (p[0] < 0x80) return p[0];
    int more = p[0] >= 0xf0 ? 3 : p[0] >= 0xe0 ? 2 : p[0] >= 0xc0 ? 1 : 0;
    if (!more || left <= (size_t)more) return 0xfffd;
    uint32_t c = p[0] & (0x3fu >> more);
    for (int i = 1; i <= more; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0xfffd;
        c = c << 6 | (p[i] & 0x3f);
    }
    *bytes = more + 1;
    return c;
}

static bool is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static bool is_one_of(uint32_t c, const uint32_t *set) {
    for (; *set; set++)
        if (*set == c) return true;
    return false;
}

static const uint32_t STOPS[] = {'.', '!', '?', 0x2026, 0}, CLOSING[] = {'"', '\'', 0x201d, 0x2019, 0xbb, ')', ']', 0};
static const uint32_t WIDE_STOPS[] = {0x3002, 0xff01, 0xff1f, 0xff61, 0},
                      WIDE_CLOSING[] = {0x300d, 0x300f, 0x201d, 0x2019, 0xff09, 0};

static const char *after_spaces(text t) {
    int bytes;
    while (t.begin < t.end && is_space(character(t, &bytes))) t.begin += bytes;
    return t.begin;
}

static const char *after_closing(text t, const uint32_t *closing) {
    int bytes;
    for (int i = 0; i < 3 && t.begin < t.end && is_one_of(character(t, &bytes), closing); i++) t.begin += bytes;
    return t.begin;
}

/* Where the sentence ends that begins here. A stop ends one if white space follows, behind up to three closing
   marks. */
static const char *sentence_end(text t) {
    while (t.begin < t.end) {
        int bytes;
        uint32_t c = character(t, &bytes);
        t.begin += bytes;
        if (is_one_of(c, STOPS)) {
            const char *closed = after_closing(t, CLOSING), *end = after_spaces((text){closed, t.end});
            if (end > closed) return end;
        } else if (is_one_of(c, WIDE_STOPS)) {
            return after_closing(t, WIDE_CLOSING);
        }
    }
    return t.end;
}

static const char *word_end(text t) {
    while (t.begin < t.end) {
        int bytes;
        if (is_space(character(t, &bytes))) return after_spaces(t);
        t.begin += bytes;
    }
    return t.end;
}

static text stripped(text t) {
    const char *last = t.begin = after_spaces(t), *p = last;
    while (p < t.end) {
        int bytes;
        bool space = is_space(character((text){p, t.end}, &bytes));
        p += bytes;
        if (!space) last = p;
    }
    return (text){t.begin, last};
}

void sentences_clear(sentences *s) {
    free(s->ids);
    free(s->ends);
    *s = (sentences){0};
}

bool add_sentence(sentences *s, const int32_t *ids, size_t count) {
    if (s->count + count + 1 > s->room) {
        size_t room = 2 * (s->count + count + 1);
        int32_t *more = room > SIZE_MAX / sizeof *more ? NULL : realloc(s->ids, room * sizeof *more);
        if (!more) return false;
        s->ids = more, s->room = room;
    }
    if (s->parts == s->part_room) {
        size_t room = s->part_room ? 2 * s->part_room : 16, *more = realloc(s->ends, room * sizeof *more);
        if (!more) return false;
        s->ends = more, s->part_room = room;
    }
    memcpy(s->ids + s->count, ids, count * sizeof *ids);
    s->count += count;
    s->ids[s->count++] = END;
    s->ends[s->parts++] = s->count;
    return true;
}

/* Scratch memory for ids. */
typedef struct {
    const subwords *pieces;
    int32_t *ids;
    size_t room, longest;
} encoder;

static int64_t encoded(encoder *e, text t) {
    return subwords_encode(e->pieces, t.begin, (size_t)(t.end - t.begin), &e->ids, &e->room);
}

typedef const char *(*end_function)(text);
static const end_function LEVELS[] = {sentence_end, word_end, NULL};

static bool add_level(sentences *s, encoder *e, text t, const end_function *level);

/* One group of neighbouring units, which is small enough unless it is a single unit. */
static bool add_group(sentences *s, encoder *e, text t, const end_function *level) {
    t = stripped(t);
    int64_t count = encoded(e, t);
    if (count < 0) return false;
    if ((size_t)count > e->longest) return add_level(s, e, t, level + 1);
    return !count || add_sentence(s, e->ids, (size_t)count);
}

static bool add_level(sentences *s, encoder *e, text t, const end_function *level) {
    if (!*level) {
        int64_t count = encoded(e, t);
        for (int64_t start = 0; start < count; start += (int64_t)e->longest) {
            size_t left = (size_t)(count - start);
            if (!add_sentence(s, e->ids + start, left < e->longest ? left : e->longest)) return false;
        }
        return count >= 0;
    }
    const char *group = t.begin;
    int64_t room = (int64_t)e->longest;
    while (t.begin < t.end) {
        const char *end = (*level)(t);
        int64_t count = encoded(e, (text){t.begin, end});
        if (count < 0) return false;
        if (count > room && group < t.begin) {
            if (!add_group(s, e, (text){group, t.begin}, level)) return false;
            group = t.begin, room = (int64_t)e->longest;
        }
        room -= count;
        t.begin = end;
    }
    return group == t.end || add_group(s, e, (text){group, t.end}, level);
}

bool add_parts(sentences *s, const subwords *pieces, const char *line, size_t size, size_t longest) {
    encoder e = {.pieces = pieces, .longest = longest};
    bool fine = true;
    if (!size) return true; /* of what may be null */
    text t = {line, line + size};
    if (after_spaces(t) < t.end) {
        int64_t count = encoded(&e, t);
        if (count < 0)
            fine = false;
        else if (!longest || (size_t)count <= longest)
            fine = !count || add_sentence(s, e.ids, (size_t)count);
        else
            fine = add_level(s, &e, t, LEVELS);
    }
    free(e.ids);
    return fine;
}
