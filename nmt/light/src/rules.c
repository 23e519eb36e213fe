/* See rules.h. */

#include "rules.h"

#include <math.h>
#include <stdio.h>

#include "model.h"
#include "split.h"
#include "system.h"

enum { MOST_RESPELLED = 8 }; /* tokens at the end of a prefix that others may spell; where no spaces are, all of it is a word */

i64 place_of(const next_words *n, int32_t token) {
    i64 first = 0, end = n->count;
    if (!n->ids) return token;
    while (end - first > 1) {
        i64 middle = (first + end) / 2;
        if (n->ids[middle] <= token)
            first = middle;
        else
            end = middle;
    }
    return n->ids[first] == token ? first : -1;
}

/* --- from words to wishes --- */

static text text_of(const char *bytes, size_t size) { return (text){bytes, size ? bytes + size : bytes}; }

/* A text with one space for all white space between words; the bytes that it has, -1 where memory ends. */
static int64_t with_single_spaces(text t, char **to, size_t *room) {
    size_t used = 0;
    int bytes;
    if (!grown(to, 1, room, (size_t)(t.end - t.begin) + 1)) return -1;
    for (const char *p = t.begin; p < t.end; p += bytes) {
        if (is_space(character_at(p, t.end, &bytes))) {
            if (used && (*to)[used - 1] != ' ') (*to)[used++] = ' ';
        } else {
            memcpy(*to + used, p, (size_t)bytes);
            used += (size_t)bytes;
        }
    }
    return (int64_t)(used - (used && (*to)[used - 1] == ' '));
}

/* Whether a text has a phrase as whole words from byte `first` on. */
static bool occurs(text t, text phrase, size_t first) {
    size_t size = (size_t)(phrase.end - phrase.begin);
    for (const char *p = t.begin + first; p + size <= t.end; p++)
        if (!memcmp(p, phrase.begin, size) && is_boundary(last_of((text){t.begin, p}), phrase) &&
            is_boundary(last_of(phrase), (text){p + size, t.end}))
            return true;
    return false;
}

/* Whether a word can end, after the character `last`, behind the first bytes of the token at a place of the sorted ones. */
static bool completes(const spelled *s, int32_t at, size_t bytes, uint32_t last) {
    text own = spelled_by(s, s->sorted[at]);
    return is_boundary(last, (text){own.begin + bytes, own.end});
}

static bool add_token(pattern *to, size_t *room, int32_t token) {
    if (!grown(&to->within, sizeof *to->within, room, to->all + 1)) return false;
    to->within[to->all++] = token;
    return true;
}

/* Adds a spelling, if it is new. False where memory ends. */
static bool add_pattern(wishes *w, const vocabulary *words, text spelling) {
    pattern one = {0};
    size_t room = 0;
    int64_t size = with_single_spaces(spelling, &one.bytes, &room);
    bool is_known = size <= 0;
    for (size_t i = 0; size > 0 && i < w->pattern_count; i++)
        is_known = is_known || (w->patterns[i].size == (size_t)size && !memcmp(w->patterns[i].bytes, one.bytes, (size_t)size));
    if (is_known) return free(one.bytes), size >= 0;
    one.size = (size_t)size, one.bytes[size] = 0, room = 0;
    const spelled *s = &words->single;
    const text phrase = text_of(one.bytes, one.size);
    const uint64_t letters = letters_of(phrase);
    bool fine = true;
    for (int32_t i = 0; fine && i < s->size; i++)
        if (!(letters & ~s->letters[i]) && occurs(spelled_by(s, i), phrase, 1)) fine = add_token(&one, &room, i);
    one.count = one.all;
    int32_t at, end;
    for (spelled_range(s, phrase, &at, &end); fine && at < end; at++)
        if (completes(s, at, one.size, last_of(phrase))) fine = add_token(&one, &room, s->sorted[at]);
    pattern *all = realloc(w->patterns, (w->pattern_count + 1) * sizeof *all);
    if (all) w->patterns = all;
    if (!all || !fine) return free(one.bytes), free(one.within), false;
    all[w->pattern_count++] = one;
    return true;
}

/* A phrase as the tokenizer's pieces spell it. */
static bool add_spelled(wishes *w, text phrase, const subwords *target, const vocabulary *words) {
    char *spelled = NULL;
    size_t room = 0;
    int64_t size = subwords_spelled(target, phrase.begin, (size_t)(phrase.end - phrase.begin), &spelled, &room);
    bool fine = size >= 0 && add_pattern(w, words, text_of(spelled, (size_t)size));
    free(spelled);
    return fine;
}

/* Phrases, one a line, each also as the tokenizer writes it. */
static bool read_forbidden(wishes *w, text lines, const subwords *target, const vocabulary *words) {
    int32_t *ids = NULL;
    char *written = NULL;
    size_t id_room = 0, room = 0;
    bool fine = true;
    while (fine && lines.begin < lines.end) {
        const char *feed = memchr(lines.begin, '\n', (size_t)(lines.end - lines.begin));
        text one = {lines.begin, feed ? feed : lines.end};
        lines.begin = feed ? feed + 1 : lines.end;
        int64_t count = subwords_encode(target, one.begin, (size_t)(one.end - one.begin), &ids, &id_room), size = 0;
        bool is_known = true;
        for (int64_t i = 0; i < count; i++) is_known = is_known && ids[i] != UNK;
        if (count > 0 && is_known) size = subwords_decode(target, ids, count, &written, &room);
        fine = count >= 0 && size >= 0 && add_spelled(w, one, target, words);
        if (fine && size) fine = add_spelled(w, text_of(written, (size_t)size), target, words);
    }
    free(ids);
    free(written);
    return fine;
}

/* The last word of a prefix, which may continue: then other tokens than those of its beginning may spell it. */
static bool find_rest(wishes *w, const vocabulary *words) {
    wish *own = &w->first;
    i64 after = -1;
    size_t size = 0;
    for (i64 i = 0; i < own->count; i++) {
        text piece = spelled_by(&words->as_is, own->prefix[i]);
        if (piece.begin < piece.end && *piece.begin == ' ') after = i;
    }
    if (after < 0) return true;
    if (after < own->count - MOST_RESPELLED) after = own->count - MOST_RESPELLED;
    for (i64 i = after; i < own->count; i++) {
        text piece = spelled_by(&words->as_is, own->prefix[i]);
        if (own->prefix[i] == UNK) return true;
        size += (size_t)(piece.end - piece.begin);
    }
    if (!(w->rest = malloc(size + 1))) return false;
    own->forced = after, own->rest = w->rest;
    for (i64 i = after; i < own->count; i++) {
        text piece = spelled_by(&words->as_is, own->prefix[i]);
        memcpy(w->rest + own->rest_size, piece.begin, (size_t)(piece.end - piece.begin));
        own->rest_size += piece.end - piece.begin;
    }
    return true;
}

static bool read_prefix(wishes *w, text prefix, const subwords *target, const vocabulary *words) {
    wish *own = &w->first;
    size_t id_room = 0, room = 0;
    w->prefix = stripped(prefix);
    if (w->prefix.begin == w->prefix.end) return true;
    const size_t bytes = (size_t)(w->prefix.end - w->prefix.begin);
    own->count = subwords_encode(target, w->prefix.begin, bytes, &own->prefix, &id_room);
    int64_t size = own->count < 0 ? -1 : subwords_decode(target, own->prefix, own->count, &w->written, &room);
    if (size < 0) return false;
    for (int64_t i = 0; i < size; i++)
        if (w->written[i] == '\n' || w->written[i] == '\r') w->written[i] = ' ';
    text written = stripped(text_of(w->written, (size_t)size));
    w->written_size = (size_t)(written.end - written.begin);
    if (w->written_size) memmove(w->written, written.begin, w->written_size);
    own->forced = own->count;
    if (!own->count) return true;
    if (w->prefix.end == prefix.end) return find_rest(w, words);
    text last = spelled_by(&words->as_is, own->prefix[own->count - 1]);
    own->ends_word = words->any_begins_word && !(last.begin < last.end && last.end[-1] == ' ');
    return true;
}

bool wishes_read(wishes *w, const nmt_request *asked, const subwords *target, const vocabulary *words, char *problem,
                 size_t room) {
    char *prefix = NULL, *spelled = NULL;
    size_t prefix_room = 0, spelled_room = 0;
    *w = (wishes){.first.words = words};
    bool fine = read_prefix(w, text_of(asked->prefix, asked->prefix_size), target, words) &&
                read_forbidden(w, text_of(asked->forbidden, asked->forbidden_size), target, words);
    int64_t size = fine ? with_single_spaces(w->prefix, &prefix, &prefix_room) : -1;
    if (size >= 0) size = subwords_spelled(target, prefix, (size_t)size, &spelled, &spelled_room);
    if (size < 0) snprintf(problem, room, "not enough memory");
    for (size_t i = 0; size >= 0 && i < w->pattern_count; i++) {
        const pattern *one = &w->patterns[i];
        if (!occurs(text_of(spelled, (size_t)size), text_of(one->bytes, one->size), 0)) continue;
        snprintf(problem, room, "forbidden: '%.200s' is in the prefix", one->bytes);
        size = -1;
    }
    free(prefix), free(spelled);
    if (size < 0) return wishes_clear(w), false;
    w->first.patterns = w->patterns, w->first.pattern_count = w->pattern_count;
    w->later = w->first;
    w->later.count = w->later.forced = w->later.rest_size = 0, w->later.ends_word = false;
    return true;
}

void wishes_clear(wishes *w) {
    for (size_t i = 0; i < w->pattern_count; i++) {
        free(w->patterns[i].bytes);
        free(w->patterns[i].within);
    }
    free(w->patterns);
    free(w->first.prefix);
    free(w->written);
    free(w->rest);
    *w = (wishes){0};
}

i64 wish_tokens(const wish *own) { /* at worst each byte is a token */
    return (own->rest_size ? own->forced + own->rest_size : own->count) + 1;
}

/* --- the words that may come next --- */

static void exclude(const next_words *n, int32_t token) {
    i64 place = place_of(n, token);
    if (place >= 0) n->logits[place] = -INFINITY;
}

/* No sequence of `size` tokens twice (Paulus et al., ICLR 2018). */
static void exclude_repeated(const int32_t *tokens, i64 count, i64 size, const next_words *n) {
    const int32_t *last = tokens + count - (size - 1);
    for (i64 i = 0; i + size <= count; i++)
        if (!memcmp(tokens + i, last, (size_t)(size - 1) * sizeof *last)) exclude(n, tokens[i + size - 1]);
}

/* Tokens that begin with a text, behind which a word can end after the character `last`. */
static void exclude_beginning(const spelled *s, text start, uint32_t last, const next_words *n) {
    int32_t at, end;
    for (spelled_range(s, start, &at, &end); at < end; at++)
        if (completes(s, at, (size_t)(start.end - start.begin), last)) exclude(n, s->sorted[at]);
}

/* The tokens that complete a phrase after a text. One that does is excluded even if the next could make the last word
   longer: otherwise the search would have to continue with a word that it did not mean. */
static void exclude_phrase(const pattern *one, const spelled *s, text before, rule_room *room, const next_words *n) {
    size_t size = (size_t)(before.end - before.begin);
    text phrase = text_of(one->bytes, one->size);
    bool is_spaced = !size || before.end[-1] == ' '; /* then another space adds nothing */
    size_t tokens = is_boundary(last_of(before), phrase) ? one->all : one->count;
    for (size_t i = 0; i < tokens; i++) exclude(n, one->within[i]);
    for (size_t length = 1; length < one->size && length <= size; length++) {
        const char *start = before.end - length;
        if (memcmp(start, one->bytes, length) || !is_boundary(last_of((text){before.begin, start}), phrase)) continue;
        text rest = {phrase.begin + length, phrase.end};
        exclude_beginning(s, rest, last_of(phrase), n);
        if (!is_spaced) continue;
        room->text[0] = ' ';
        memcpy(room->text + 1, rest.begin, (size_t)(rest.end - rest.begin));
        exclude_beginning(s, text_of(room->text, 1 + (size_t)(rest.end - rest.begin)), last_of(phrase), n);
    }
}

static bool exclude_phrases(rule_room *room, const wish *own, const int32_t *tokens, i64 count, const next_words *n) {
    const spelled *s = &own->words->single;
    size_t longest = 0, used;
    for (size_t i = 0; i < own->pattern_count; i++)
        if (own->patterns[i].size > longest) longest = own->patterns[i].size;
    used = ++longest; /* of what `exclude_phrase` writes there; behind it the text so far */
    for (i64 i = 0; i <= count; i++) {
        text piece = i < count ? spelled_by(s, tokens[i]) : (text){NULL, NULL};
        if (!grown(&room->text, 1, &room->text_room, used + (size_t)(piece.end - piece.begin) + 1)) return false;
        for (const char *p = piece.begin; p < piece.end; p++) {
            bool is_white = *p == ' ' || (*p >= '\t' && *p <= '\r');
            if (used == longest ? !is_white : *p != ' ' || room->text[used - 1] != ' ') room->text[used++] = *p;
        }
    }
    for (size_t i = 0; i < own->pattern_count; i++)
        exclude_phrase(&own->patterns[i], s, text_of(room->text + longest, used - longest), room, n);
    return true;
}

static bool keep(rule_room *room, size_t *kept, const next_words *n, int32_t token) {
    i64 place = place_of(n, token);
    if (place < 0) return true;
    if (!grown(&room->kept, sizeof *room->kept, &room->kept_room, *kept + 1)) return false;
    room->kept[(*kept)++] = (scored_id){n->logits[place], (int32_t)place};
    return true;
}

/* Only the words kept stay, as they were when they were. */
static void exclude_others(const rule_room *room, size_t kept, const next_words *n) {
    for (i64 i = 0; i < n->count; i++) n->logits[i] = -INFINITY;
    for (size_t i = 0; i < kept; i++) n->logits[room->kept[i].id] = room->kept[i].value;
}

/* The tokens of a range that may be chosen and spell something: no byte that is a space. */
static bool is_spelling(const wish *own, int32_t token, const next_words *n) {
    text piece = spelled_by(&own->words->as_is, token);
    bool is_byte_space = piece.end - piece.begin == 1 && *piece.begin == ' ' && !own->words->begins_word[token];
    return !is_byte_space && place_of(n, token) >= 0;
}

void find_spellings(const wish *own, const next_words *n, bool *spells) {
    const spelled *s = &own->words->as_is;
    spells[own->rest_size] = true;
    for (i64 at = own->rest_size - 1; at >= 0; at--) {
        spells[at] = false;
        for (i64 end = at + 1; end <= own->rest_size && !spells[at]; end++) {
            int32_t i, last;
            if (!spells[end]) continue;
            for (spelled_range(s, (text){own->rest + at, own->rest + end}, &i, &last); i < last && !spells[at]; i++) {
                text piece = spelled_by(s, s->sorted[i]);
                spells[at] = piece.end - piece.begin == end - at && is_spelling(own, s->sorted[i], n);
            }
        }
    }
}

/* Keeps the tokens that spell the beginning of what is left, or with `beyond` those that spell more than that. */
static bool keep_spelling(rule_room *room, size_t *kept, const wish *own, const bool *spells, i64 at, bool beyond,
                          const next_words *n) {
    const spelled *s = &own->words->as_is;
    for (i64 end = beyond ? own->rest_size : at + 1; end <= own->rest_size; end++) {
        int32_t i, last;
        if (!spells[end]) continue;
        for (spelled_range(s, (text){own->rest + at, own->rest + end}, &i, &last); i < last; i++) {
            text piece = spelled_by(s, s->sorted[i]);
            if ((piece.end - piece.begin > end - at) != beyond || !is_spelling(own, s->sorted[i], n)) continue;
            if (!keep(room, kept, n, s->sorted[i])) return false;
        }
    }
    return true;
}

bool rules_apply(rule_room *room, const nmt_options *set, const wish *own, const bool *spells, const int32_t *tokens,
                 i64 count, const next_words *n) {
    size_t kept = 0;
    i64 spelled_size = -1;
    if (own && count < own->forced) {
        bool fine = keep(room, &kept, n, own->prefix[count]);
        exclude_others(room, kept, n);
        return fine;
    }
    if (own && own->rest_size) {
        spelled_size = 0;
        for (i64 i = own->forced; i < count; i++) {
            text piece = spelled_by(&own->words->as_is, tokens[i]);
            spelled_size += piece.end - piece.begin;
        }
        if (spelled_size >= own->rest_size) spelled_size = -1;
    }
    /* What spells the rest of a word keeps its probability, whatever is excluded. */
    if (spelled_size >= 0 && !keep_spelling(room, &kept, own, spells, spelled_size, false, n)) return false;
    size_t within = kept;
    if (count < set->min_length) exclude(n, EOS);
    if (set->no_repeat_ngram && count >= set->no_repeat_ngram) exclude_repeated(tokens, count, set->no_repeat_ngram, n);
    if (own && own->pattern_count && !exclude_phrases(room, own, tokens, count, n)) return false;
    if (own && own->ends_word && count == own->count)
        for (i64 i = 0; i < n->count; i++) {
            int32_t token = n->ids ? n->ids[i] : (int32_t)i;
            if (token != EOS && !own->words->begins_word[token]) n->logits[i] = -INFINITY;
        }
    if (spelled_size < 0) return true;
    if (within && !keep_spelling(room, &kept, own, spells, spelled_size, true, n)) return false;
    exclude_others(room, kept, n);
    return true;
}

void rule_room_clear(rule_room *room) {
    free(room->kept);
    free(room->text);
    *room = (rule_room){0};
}
