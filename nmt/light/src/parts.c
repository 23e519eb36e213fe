/* See parts.h. */

#include "parts.h"

#include <stdlib.h>
#include <string.h>

enum { END = 2 };

typedef struct {
    const char *begin, *end;
} text;

static const char *after_spaces(text t) {
    int bytes;
    while (t.begin < t.end && is_space(character_at(t.begin, t.end, &bytes))) t.begin += bytes;
    return t.begin;
}

static const char *word_end(text t) {
    while (t.begin < t.end) {
        int bytes;
        if (is_space(character_at(t.begin, t.end, &bytes))) return after_spaces(t);
        t.begin += bytes;
    }
    return t.end;
}

static text stripped(text t) {
    const char *last = t.begin = after_spaces(t), *p = last;
    while (p < t.end) {
        int bytes;
        bool space = is_space(character_at(p, t.end, &bytes));
        p += bytes;
        if (!space) last = p;
    }
    return (text){t.begin, last};
}

void sentences_clear(sentences *s) {
    free(s->ids);
    free(s->ends);
    free(s->spaces);
    free(s->space_ends);
    *s = (sentences){0};
}

/* Room for twice as many items, at least; false where memory ends. */
static bool grown(void *items, size_t item, size_t *room, size_t needed) {
    if (needed <= *room) return true;
    size_t wanted = 2 * needed;
    void *more = wanted > SIZE_MAX / item ? NULL : realloc(*(void **)items, wanted * item);
    if (!more) return false;
    *(void **)items = more, *room = wanted;
    return true;
}

bool add_sentence(sentences *s, const int32_t *ids, size_t count, const char *space, size_t space_size) {
    size_t parts = s->part_room;
    if (!grown(&s->ids, sizeof *s->ids, &s->room, s->count + count + 1) ||
        !grown(&s->ends, sizeof *s->ends, &parts, s->parts + 1) ||
        !grown(&s->space_ends, sizeof *s->space_ends, &s->part_room, s->parts + 1) ||
        !grown(&s->spaces, 1, &s->space_room, s->space_count + space_size + 1))
        return false;
    memcpy(s->ids + s->count, ids, count * sizeof *ids);
    s->count += count;
    s->ids[s->count++] = END;
    for (size_t i = 0; i < space_size; i++)
        s->spaces[s->space_count++] = space[i] == '\n' || space[i] == '\r' ? ' ' : space[i];
    s->space_ends[s->parts] = s->space_count;
    s->ends[s->parts++] = s->count;
    return true;
}

/* What cuts a line, and scratch memory for ids. */
typedef struct {
    sentences *to;
    const subwords *pieces;
    const cutting *how;
    const char *space; /* before the next part, and its size */
    size_t space_size;
    int32_t *ids;
    size_t room;
} cutter;

static int64_t encoded(cutter *c, text t) {
    return subwords_encode(c->pieces, t.begin, (size_t)(t.end - t.begin), &c->ids, &c->room);
}

static bool add(cutter *c, const int32_t *ids, size_t count) {
    bool fine = add_sentence(c->to, ids, count, c->space, c->space_size);
    c->space = " ", c->space_size = 1; /* between the parts of a sentence */
    return fine;
}

enum { SENTENCES, WORDS, TOKENS };

static bool add_level(cutter *c, text t, int level);

/* One group of neighbouring units, which is small enough unless it is a single unit. */
static bool add_group(cutter *c, text t, int level) {
    t = stripped(t);
    int64_t count = encoded(c, t);
    if (count < 0) return false;
    if ((size_t)count > c->how->longest) return add_level(c, t, level + 1);
    return !count || add(c, c->ids, (size_t)count);
}

static bool add_level(cutter *c, text t, int level) {
    size_t longest = c->how->longest, begin, end;
    if (level == TOKENS) {
        int64_t count = encoded(c, t);
        for (int64_t start = 0; start < count; start += (int64_t)longest) {
            size_t left = (size_t)(count - start);
            if (!add(c, c->ids + start, left < longest ? left : longest)) return false;
        }
        return count >= 0;
    }
    splitting s = split_begin(c->how->rules, t.begin, (size_t)(t.end - t.begin));
    const char *first = t.begin, *group = t.begin;
    int64_t room = (int64_t)longest;
    while (t.begin < t.end) {
        const char *unit = level == WORDS ? word_end(t) : split_next(&s, &begin, &end) ? first + end : t.end;
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

/* A line or a sentence, in as many parts as it needs. */
static bool add_text(cutter *c, text t, int64_t count) {
    if (count < 0) return false;
    if (c->how->longest && (size_t)count > c->how->longest) return add_level(c, t, SENTENCES);
    return !count || add(c, c->ids, (size_t)count);
}

static bool add_each(cutter *c, text t, splitting *s, cut_line *found) {
    size_t begin, end, last = 0;
    bool fine = true;
    found->sentences = 0;
    while (fine && split_next(s, &begin, &end)) {
        size_t parts = c->to->parts;
        c->space = t.begin + last, c->space_size = last ? begin - last : 0;
        if (last == begin && c->how->spaced) c->space = " ", c->space_size = 1;
        text own = {t.begin + begin, t.begin + end};
        fine = add_text(c, own, encoded(c, own));
        found->sentences += c->to->parts > parts;
        last = end;
    }
    return fine;
}

bool add_line(sentences *to, const subwords *pieces, const cutting *how, const char *line, size_t size, cut_line *found) {
    cutter c = {.to = to, .pieces = pieces, .how = how, .space = "", .space_size = 0};
    size_t begin, end, parts = to->parts;
    *found = (cut_line){0};
    if (!size) return true; /* of what may be null */
    text t = {line, line + size};
    if (after_spaces(t) == t.end) return true;
    splitting s = split_begin(how->rules, line, size), all = s;
    bool several = how->split != SPLIT_NONE && split_next(&s, &begin, &end) && split_next(&s, &begin, &end);
    int64_t count = several && how->split == SPLIT_ALL ? 0 : encoded(&c, t);
    bool fine;
    if (several && (how->split == SPLIT_ALL || (how->trained && count > (int64_t)how->trained))) {
        fine = add_each(&c, t, &all, found);
    } else {
        fine = add_text(&c, t, count);
        found->several = several;
        found->sentences = to->parts > parts;
    }
    free(c.ids);
    return fine;
}
