/* Live translation in the engine: text in, as it comes, and out what no longer changes of its translation, as session.py and
   policies.py have it. */

#include <math.h>
#include <stdio.h>

#include "../light/src/case.h"
#include "../light/src/engine.h"
#include "../light/src/kept.h"
#include "../light/src/system.h"

enum { WAIT_K, LOCAL_AGREEMENT, ALIGNATT, POLICY_COUNT };
enum { LETTER = 1, ENDING = 2, COMMA = 4 }; /* tokens that would make a word longer; see `token_words` */

static const struct {
    const char *name, *option;
    int32_t least, usual;
} POLICIES[POLICY_COUNT] = {{"wait_k", "wait", 1, 3}, {"local_agreement", "agree", 2, 2}, {"alignatt", "unread", 1, 2}};

static const size_t LONGEST = 1 << 28; /* bytes of a sentence */

struct nmt_session {
    nmt_model *m;
    nmt_options set;
    int policy;
    i64 number; /* of words to wait for, and the like */
    bool has_ended;
    char *problem; /* of the call under way */
    size_t room;
    written_text waiting;    /* the word that may continue, and the white space before it */
    size_t seen;             /* bytes of that in which no word ends */
    written_text sentence, whole; /* so far; what is split into sentences */
    splitting growing;
    sentence_state known;
    i64 words;                    /* of the sentence */
    written_text written, tail;   /* its translation so far, and what may follow */
    size_t told;                  /* bytes of that which have been returned */
    bool is_later;                /* there is a translation before it, from which a space separates it */
    written_text out;             /* what a call returns */
    written_text last;            /* local_agreement: the last translation, and for each of its words how many of the */
    int32_t *agreed;              /* last ones begin with the words up to it */
    size_t agreed_room;
    /* wait_k, where nothing is encoded twice. */
    runner *r; /* null: all others */
    memory heard;
    block logits, scratch;
    int32_t *source, *split; /* its tokens; those of the part that was split last */
    size_t source_room, split_room, read; /* read: bytes of the sentence that have been split */
    i64 source_count;
    size_t word; /* where its last word begins, and how many tokens are before it */
    i64 word_ids;
    word_state before, after; /* this word */
    int32_t *ids;             /* of the words that have been written */
    size_t id_room;
    i64 id_count, id_words;
    unsigned char *kinds; /* of tokens: LETTER, ENDING, COMMA [vocabulary] */
    block behind, marked; /* states of the decoder behind them, and behind those that are tried */
    block unended;        /* the same before marks that end the sentence */
    bool has_marks;       /* the source has case marks */
    bool rereads;         /* the encoder's self-attention keeps no keys */
    bool is_complete;     /* the translation */
};

#define REFUSE(...) return snprintf(s->problem, s->room, __VA_ARGS__), false

static bool no_memory(const nmt_session *s) { REFUSE("not enough memory"); }

static bool put(written_text *to, const char *bytes, size_t size) {
    if (!grown(&to->bytes, 1, &to->room, to->size + size + 1)) return false;
    if (size) memcpy(to->bytes + to->size, bytes, size);
    return to->size += size, true;
}

static text text_of(const written_text *w) { return (text){w->bytes, w->size ? w->bytes + w->size : w->bytes}; }

static bool is_comma(uint32_t c) { return c == ',' || c == ';' || c == ':' || ends_sentence(c); }

/* Where what ends a sentence begins at the end of a text, with a space before it; the end of the text where nothing does.
   `is_over`: whether there is a mark among it. */
static const char *ending_of(text t, bool *is_over) {
    const char *found = t.end;
    *is_over = false;
    for (const char *p = t.end; p > t.begin; found = p) {
        const uint32_t c = last_of((text){t.begin, p});
        if (!ends_sentence(c) && !closes_sentence(c)) break;
        *is_over = *is_over || ends_sentence(c);
        for (p--; p > t.begin && (*p & 0xc0) == 0x80; p--) continue;
    }
    return found < t.end && found > t.begin && found[-1] == ' ' ? found - 1 : found;
}

static bool is_over(const nmt_session *s) {
    bool found;
    ending_of(text_of(&s->sentence), &found);
    return found;
}

/* --- words: what white space separates and, in scripts without it, each character --- */

/* Where the first word of a text, with the white space before it, ends, or the text does; up to `from` it is known not to. */
static const char *word_end(text t, const char *from) {
    const char *word = after_spaces(t), *p = from > word ? from : word;
    for (int bytes; p < t.end; p += bytes) {
        const uint32_t c = character_at(p, t.end, &bytes);
        if (is_space(c)) return p;
        if (is_unspaced(c)) return p > word ? p : p + bytes;
    }
    return t.end;
}

/* The words of a text, each with the white space before it. False where memory ends. */
static bool split_words(text t, stretches *to) {
    for (const char *at = t.begin, *end; at < t.end; at = end) {
        end = word_end((text){at, t.end}, at);
        if (after_spaces((text){at, end}) == end) break;
        if (!grown(&to->all, sizeof *to->all, &to->room, to->count + 1)) return false;
        to->all[to->count++] = (stretch){(size_t)(at - t.begin), (size_t)(end - t.begin)};
    }
    return true;
}

/* How a token continues the words of a text, as nmt/live/words.py has it. */
typedef struct {
    i64 count;   /* words that begin in it behind others */
    bool inside; /* it begins inside a word, if one can continue */
    bool opens;  /* its word continues in the next one: a lone space */
    bool closes; /* it ends with a word of one character */
    bool is_mark, is_letter;
    bool is_ending, is_comma; /* it ends a sentence; it must not follow what ended one */
} token_words;

static token_words words_of(const subwords *p, int32_t token) {
    size_t size;
    int bytes;
    token_words found = {.is_mark = subwords_is_mark(p, token)};
    const char *at = subwords_piece(p, token, &size), *end = at + size;
    found.is_ending = size > 0;
    for (bool within = false; at < end; at += bytes) {
        const uint32_t c = character_at(at, end, &bytes);
        const bool space = c == 0x2581 || is_space(c), is_alone = is_unspaced(c), is_first = at + size == end;
        if (is_first && !space && !is_alone && !found.is_mark) found.inside = true, found.is_letter = is_alphanumeric(c);
        found.count += !space && (is_alone || !within);
        within = !space && !is_alone, found.closes = is_alone;
        found.is_ending = found.is_ending && (ends_sentence(c) || closes_sentence(c) || (is_first && space && (size_t)bytes < size));
        if (is_first) found.is_comma = is_comma(c);
        if (is_first && space && (size_t)bytes == size) found.opens = true;
    }
    found.count += found.opens - (found.inside || found.is_mark);
    return found;
}

/* The words that begin in a token behind another one; null: it is the first. */
static i64 words_begun(const token_words *own, const token_words *before) {
    if (!before) return own->count > 1 ? own->count : 1;
    return own->count + (before->closes && own->inside) - (before->opens && own->count);
}

/* The last word, from 0, that each token has a part of. */
static void number_words(const subwords *p, const int32_t *ids, i64 count, int32_t *to) {
    i64 word = -1;
    token_words before;
    for (i64 i = 0; i < count; i++) {
        const token_words own = words_of(p, ids[i]);
        word += !i && own.is_mark ? 0 : words_begun(&own, i ? &before : NULL);
        to[i] = (int32_t)(word < 0 ? 0 : word), before = own;
    }
    for (i64 i = count - 1; i-- > 0;)
        if (words_of(p, ids[i]).is_mark) to[i] = to[i + 1];
}

/* --- a model that reads forward: no token is encoded twice, and each step takes the most probable one --- */

/* Whether a segment ends with a word that ends so, whatever follows: case marks of others depend on no word in small letters. */
static bool ends_segment(const nmt_session *s, text t) {
    bool is_small = false;
    const char *p = t.end;
    while (p > t.begin && p[-1] != ' ') p--;
    for (int bytes; s->has_marks && p < t.end; p += bytes) {
        const uint32_t c = character_at(p, t.end, &bytes);
        if (lower_of(c) != c) return false;
        is_small = is_small || upper_of(c) != c;
    }
    return is_small || !s->has_marks;
}

/* Splits and encodes what is new of the sentence, the segment since s->word; what was split otherwise before is encoded anew. */
static bool hear(nmt_session *s, bool is_last) {
    const bool by_words = subwords_by_words(s->m->source) && !is_last;
    int bytes;
    if (!by_words || s->sentence.size < s->read)
        s->word = 0, s->word_ids = 0, s->before = (word_state){0};
    else if (s->read && s->read < s->sentence.size && is_space(character_at(s->sentence.bytes + s->read, text_of(&s->sentence).end, &bytes)) &&
             ends_segment(s, (text){s->sentence.bytes, s->sentence.bytes + s->read}))
        s->word = s->read, s->word_ids = s->source_count, s->before = s->after;
    const char *begin = s->sentence.bytes + s->word;
    const size_t size = s->sentence.size - s->word;
    s->after = s->before, s->read = s->sentence.size;
    const i64 count = by_words ? subwords_encode_word(s->m->source, begin, size, s->word > 0, &s->after, &s->split, &s->split_room)
                               : subwords_encode(s->m->source, begin, size, &s->split, &s->split_room);
    const i64 total = s->word_ids + count;
    if (count < 0 || !grown(&s->source, sizeof *s->source, &s->source_room, (size_t)total + 1)) return no_memory(s);
    for (i64 i = s->word_ids; i < s->source_count; i++)
        if (i >= total || s->source[i] != s->split[i - s->word_ids]) s->heard.length = 0;
    if (count) memcpy(s->source + s->word_ids, s->split, (size_t)count * sizeof *s->source);
    s->source_count = total, s->source[total] = EOS;
    if (s->rereads) s->heard.length = 0;
    const i64 more = total + (is_last && total) - s->heard.length;
    return more <= 0 || runner_read(s->r, s->source + s->heard.length, more, &s->heard) || no_memory(s);
}

/* The most probable token behind so many ids. */
static int32_t next_token(nmt_session *s, i64 count, bool is_new) {
    const model *m = s->m->models[0];
    const tensor *table = &m->tensors[m->set.table];
    const hypothesis_row row = {&s->heard, count ? s->ids[count - 1] : -1, count, NULL};
    float *logits = s->logits.values;
    i64 apart;
    if (!runner_step(s->r, &row, 1)) return -1;
    const float *features = runner_features(s->r, 0, &apart);
    s->m->k->linear(table, features, apart, table->bias, NO_ACTIVATION, logits, table->rows, 1, s->scratch.values);
    logits[PAD] = -INFINITY;
    if (!count) logits[EOS] = -INFINITY;
    const int banned = !is_new ? 0 : LETTER | (s->kinds[row.token] & ENDING ? COMMA : 0);
    for (i64 id = 0; banned && id < table->rows; id++)
        if (s->kinds[id] & banned) logits[id] = -INFINITY; /* what has been written becomes no other word */
    return (int32_t)s->m->k->first_maximum(logits, table->rows);
}

/* Writes until there are so many complete words; all where the source is complete. Nothing ends the translation of a sentence that
   is not over. */
static bool write_words(nmt_session *s, i64 words, bool is_last) {
    const i64 limit = (i64)(s->set.max_length_factor * (float)(s->source_count + 1)) + s->set.max_length_offset;
    const i64 most = limit < 1 ? 1 : limit, nothing = 0, written = s->id_count;
    i64 count = written, begun = s->id_words, marked = count, marked_words = begun, unended = count, unended_words = begun;
    const bool may_end = is_last || is_over(s);
    bool has_mark = false, is_ending = false;
    token_words before = {0};
    if (!s->source_count || s->is_complete) return true;
    if (count) runner_restore(s->r, &s->behind), before = words_of(s->m->target, s->ids[count - 1]);
    else runner_begin(s->r, 0); /* from what has been read when the first word is written */
    while (is_last || (begun <= words && words > 0)) {
        if (count >= most) {
            if (is_last) s->is_complete = true, s->id_count = count;
            break;
        }
        if (!has_mark && !runner_keep(s->r, &s->marked)) return no_memory(s);
        if (!has_mark) marked = count, marked_words = begun;
        if (!has_mark && !is_ending) {
            if (!runner_keep(s->r, &s->unended)) return no_memory(s);
            unended = count, unended_words = begun;
        }
        const int32_t token = next_token(s, count, count && count == written);
        if (token < 0 || !grown(&s->ids, sizeof *s->ids, &s->id_room, (size_t)count + 1)) return no_memory(s);
        const token_words own = words_of(s->m->target, token);
        const i64 more = (has_mark = own.is_mark) ? 0 : words_begun(&own, begun ? &before : NULL);
        if (more || token == EOS) {
            block *sure = &s->marked;
            if (token == EOS && !may_end && is_ending) marked = unended, marked_words = unended_words, sure = &s->unended;
            const block kept = s->behind;
            s->behind = *sure, *sure = kept;
            s->id_count = marked, s->id_words = marked_words, s->is_complete = token == EOS && is_last;
            if (token == EOS || (!is_last && begun + more > words)) break; /* it is predicted again when more has been read */
        }
        begun += more, before = own, is_ending = own.is_ending;
        s->ids[count++] = token;
        if (!runner_reorder(s->r, &nothing, 1)) return no_memory(s);
    }
    const i64 size = subwords_decode(s->m->target, s->ids, s->id_count, &s->written.bytes, &s->written.room);
    if (size < 0) return no_memory(s);
    s->written.size = (size_t)size;
    for (i64 i = 0; i < size; i++)
        if (s->written.bytes[i] == '\n' || s->written.bytes[i] == '\r') s->written.bytes[i] = ' ';
    return true;
}

/* --- all others: the sentence is translated anew for each word, from what has been written on --- */

/* With how many words the last translations all begin; -1 where memory ends, as below. */
static i64 agreeing(nmt_session *s, text found, const stretches *words) {
    stretches before = {0};
    size_t same = 0;
    if (!split_words(text_of(&s->last), &before) || !grown(&s->agreed, sizeof *s->agreed, &s->agreed_room, words->count + 1))
        return free(before.all), -1;
    for (; same < words->count && same < before.count; same++) {
        const stretch a = before.all[same], b = words->all[same];
        if (!same_text((text){s->last.bytes + a.begin, s->last.bytes + a.end}, (text){found.begin + b.begin, found.begin + b.end})) break;
    }
    free(before.all);
    for (size_t i = 0; i < words->count; i++) s->agreed[i] = i < same ? s->agreed[i] + 1 : 1;
    s->last.size = 0;
    if (!put(&s->last, found.begin, (size_t)(found.end - found.begin))) return -1;
    for (same = 0; same < words->count && s->agreed[same] >= s->number; same++) continue;
    return (i64)same;
}

/* The first word of the translation that attends most to one of the last words of the source; -1 where memory ends. */
static i64 first_unsure(const nmt_session *s, const nmt_results *r) {
    size_t length, count, words = 1;
    if (s->words <= s->number || !nmt_parts(r, 0)) return 0;
    const int32_t *source = nmt_source_ids(r, 0, 0, &length), *ids = nmt_ids(r, 0, 0, 0, &count);
    const float *attention = nmt_attention(r, 0, 0, 0);
    int32_t *origins = malloc(length * sizeof *origins), *places = malloc((count + 1) * sizeof *places);
    float *sums = calloc(length, sizeof *sums);
    i64 found = -1;
    if (origins && places && sums) {
        number_words(s->m->source, source, (i64)length - 1, origins);
        if (length > 1) words = (size_t)origins[length - 2] + 1;
        if (count) number_words(s->m->target, ids, (i64)--count, places);
        found = count ? places[count - 1] + 1 : 0;
        for (size_t t = 0, next; t < count; t = next) {
            memset(sums, 0, words * sizeof *sums);
            for (next = t; next < count && places[next] == places[t]; next++)
                for (size_t j = 0; j + 1 < length; j++) sums[origins[j]] += attention[next * length + j];
            if (s->m->k->first_maximum(sums, (i64)words) < (i64)words - s->number) continue;
            found = places[t];
            break;
        }
    }
    free(origins), free(places), free(sums);
    return found;
}

/* The translation, which begins with what has been written; if that would become another word, with a space behind it. */
static nmt_results *translated(nmt_session *s) {
    nmt_request asked = {s->sentence.bytes, s->sentence.size, s->written.bytes, s->written.size, NULL, 0};
    nmt_results *r = nmt_translate_requests(s->m, &asked, 1, &s->set, s->problem, s->room);
    size_t size;
    int bytes;
    const char *found = r ? nmt_text(r, 0, 0, &size) : NULL;
    const uint32_t last = last_of(text_of(&s->written));
    const uint32_t next = r && size > s->written.size ? character_at(found + s->written.size, found + size, &bytes) : 0;
    const bool is_longer = is_alphanumeric(last) && !is_unspaced(last) && is_alphanumeric(next) && !is_unspaced(next);
    if (is_longer || (ends_sentence(last) && is_comma(next))) {
        nmt_free(r);
        if (!put(&s->written, " ", 1)) return no_memory(s), NULL;
        asked.prefix = s->written.bytes, asked.prefix_size = s->written.size--;
        r = nmt_translate_requests(s->m, &asked, 1, &s->set, s->problem, s->room);
    }
    if (!r && !strncmp(s->problem, "line 0: ", 8)) memmove(s->problem, s->problem + 8, strlen(s->problem + 8) + 1);
    return r;
}

static bool translate_again(nmt_session *s, bool is_last) {
    const i64 allowed = s->words - s->number + 1;
    if (s->policy == WAIT_K && !is_last && allowed <= 0) return true;
    nmt_results *r = translated(s);
    size_t size, end = 0;
    if (!r) return false;
    const char *bytes = nmt_text(r, 0, 0, &size);
    const text found = {bytes, bytes + size};
    stretches words = {0};
    bool fine = split_words(found, &words);
    i64 count = (i64)words.count;
    if (fine && !is_last) {
        const i64 sure = s->policy == WAIT_K ? allowed : s->policy == LOCAL_AGREEMENT ? agreeing(s, found, &words) : first_unsure(s, r);
        fine = sure >= 0, count = sure < count ? sure : count;
    }
    if (is_last) end = size;
    else if (count > 0) end = words.all[count - 1].end;
    if (!is_last && end && end == words.all[words.count - 1].end && !is_over(s)) {
        bool has_mark;
        end = (size_t)(ending_of((text){bytes, bytes + end}, &has_mark) - bytes);
    }
    if (fine && size >= s->written.size && (!s->written.size || !memcmp(bytes, s->written.bytes, s->written.size))) {
        if (end > s->written.size) fine = put(&s->written, bytes + s->written.size, end - s->written.size);
        s->tail.size = 0;
        fine = fine && put(&s->tail, bytes + s->written.size, size - s->written.size);
    }
    free(words.all), nmt_free(r);
    return fine || no_memory(s);
}

/* --- sentences, one after the other --- */

static bool go_on(nmt_session *s, bool is_last) {
    const i64 allowed = s->words - s->number + 1;
    const bool has_space = s->is_later && s->m->spaced;
    if (!(s->r ? hear(s, is_last) && write_words(s, allowed, is_last) : translate_again(s, is_last))) return false;
    if (is_last) s->tail.size = 0;
    if (s->written.size > s->told) {
        if (!s->told && has_space && !put(&s->out, " ", 1)) return no_memory(s);
        if (!put(&s->out, s->written.bytes + s->told, s->written.size - s->told)) return no_memory(s);
        s->told = s->written.size;
    }
    if (s->tail.size && !s->told && has_space) {
        if (!put(&s->tail, " ", 1)) return no_memory(s);
        memmove(s->tail.bytes + 1, s->tail.bytes, s->tail.size - 1), s->tail.bytes[0] = ' ';
    }
    return true;
}

/* The rest of the sentence at hand, and a new one. */
static bool finish(nmt_session *s) {
    if (s->sentence.size && !go_on(s, true)) return false;
    s->is_later = s->is_later || s->told;
    s->sentence.size = s->written.size = s->last.size = s->told = s->read = s->word = 0;
    s->words = s->word_ids = s->source_count = s->heard.length = s->id_count = s->id_words = 0;
    s->before = s->after = (word_state){0}, s->is_complete = false;
    s->growing = split_begin(&s->m->rules, "", 0), s->known = (sentence_state){0};
    return true;
}

/* One more word, with the white space before it: of the sentence at hand, or of a new one. */
static bool read_word(nmt_session *s, text word) {
    size_t begin, end, next, after;
    if (is_stopped(&s->set)) REFUSE("stopped");
    if (!s->sentence.size) word.begin = after_spaces(word);
    if (!put(&s->sentence, word.begin, (size_t)(word.end - word.begin))) return no_memory(s);
    if (split_grown(&s->growing, &s->known, s->sentence.bytes, s->sentence.size)) {
        s->whole.size = 0;
        if (!put(&s->whole, s->sentence.bytes, s->sentence.size)) return no_memory(s);
        splitting all = split_begin(&s->m->rules, s->whole.bytes, s->whole.size);
        split_next(&all, &begin, &end);
        for (; split_next(&all, &next, &after); begin = next, end = after) {
            s->sentence.size = 0;
            if (!put(&s->sentence, s->whole.bytes + begin, end - begin)) return no_memory(s);
            if (!finish(s)) return false;
        }
        s->sentence.size = 0;
        if (!put(&s->sentence, s->whole.bytes + begin, s->whole.size - begin)) return no_memory(s);
        s->words = -1;
        for (const char *p = s->sentence.bytes, *last = text_of(&s->sentence).end; p < last; s->words++) p = word_end((text){p, last}, p);
    }
    return s->words++, go_on(s, false);
}

static const char *returned(nmt_session *s, bool fine, size_t *written) {
    *written = s->out.size;
    s->has_ended = s->has_ended || !fine;
    return !fine ? NULL : put(&s->out, "", 0) ? s->out.bytes : (no_memory(s), NULL);
}

const char *nmt_live_feed(nmt_session *s, const char *bytes, size_t size, size_t *written, char *problem, size_t room) {
    s->problem = problem, s->room = room, s->out.size = 0;
    if (s->has_ended) return snprintf(problem, room, "this session has ended"), NULL;
    if (size > LONGEST || s->waiting.size + s->sentence.size + size > LONGEST)
        return snprintf(problem, room, "a sentence of more than %zu bytes", LONGEST), NULL;
    const size_t first = s->waiting.size;
    bool fine = put(&s->waiting, bytes, size) || no_memory(s);
    for (size_t i = first; fine && i < s->waiting.size; i++)
        if (s->waiting.bytes[i] == '\n' || s->waiting.bytes[i] == '\r') s->waiting.bytes[i] = ' ';
    text left = text_of(&s->waiting);
    for (const char *end; fine && size && left.begin < left.end; left.begin = end, s->seen = 0) {
        end = word_end(left, s->waiting.bytes + s->seen);
        if (end == left.end && !is_unspaced(last_of(left))) break;
        fine = read_word(s, (text){left.begin, end});
    }
    if (left.begin > s->waiting.bytes) memmove(s->waiting.bytes, left.begin, s->waiting.size = (size_t)(left.end - left.begin));
    s->seen = s->waiting.size > 3 ? s->waiting.size - 3 : 0; /* a character may be cut */
    return returned(s, fine, written);
}

const char *nmt_live_end(nmt_session *s, size_t *written, char *problem, size_t room) {
    s->problem = problem, s->room = room, s->out.size = 0;
    if (s->has_ended) return snprintf(problem, room, "this session has ended"), NULL;
    const text rest = text_of(&s->waiting);
    const bool has_word = rest.begin < rest.end && after_spaces(rest) < rest.end;
    const bool fine = (!has_word || read_word(s, rest)) && finish(s);
    s->has_ended = true;
    return returned(s, fine, written);
}

const char *nmt_live_tail(const nmt_session *s, size_t *size) {
    *size = s->tail.size;
    return s->tail.bytes ? s->tail.bytes : "";
}

size_t nmt_live_words(const nmt_session *s) { return (size_t)s->words; }

void nmt_live_close(nmt_session *s) {
    if (!s) return;
    runner_close(s->r);
    memory_clear(&s->heard);
    void *const all[] = {s->waiting.bytes, s->sentence.bytes, s->whole.bytes, s->written.bytes, s->tail.bytes, s->out.bytes,
                         s->last.bytes, s->agreed, s->kinds, s->logits.values, s->scratch.values, s->behind.values, s->marked.values, s->unended.values, s->source, s->split, s->ids, s};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* The policy and its number, from a text such as wait_k,wait=3. */
static bool read_policy(nmt_session *s, const char *how) {
    size_t size = strcspn(how, ",");
    while (s->policy < POLICY_COUNT && (strncmp(POLICIES[s->policy].name, how, size) || POLICIES[s->policy].name[size])) s->policy++;
    if (s->policy == POLICY_COUNT)
        REFUSE("'%.40s' is not a known policy of live translation. Allowed: wait_k, local_agreement, alignatt.", how);
    const char *name = POLICIES[s->policy].name, *option = POLICIES[s->policy].option;
    const i64 least = POLICIES[s->policy].least;
    s->number = POLICIES[s->policy].usual;
    for (const char *at = how + size; *at; at += size) {
        const size_t named = strlen(option);
        size = strcspn(++at, ",");
        if (!strncmp(at, "revise", 6)) REFUSE("revise: the engine takes back nothing that it has read. In Python nmt.load(FILE).live(revise=True) does.");
        if (size < named || strncmp(at, option, named) || (size > named && at[named] != '='))
            REFUSE("%.*s: is not an option of %s. Allowed: %s.", (int)strcspn(at, "=,") % 41, at, name, option);
        const char *digit = at + named + (size > named);
        for (s->number = 0; *digit >= '0' && *digit <= '9' && s->number < INT32_MAX; digit++) s->number = 10 * s->number + *digit - '0';
        if (digit != at + size || size < named + 2) REFUSE("%s: %.40s: is not a whole number, such as %s=3", name, at, option);
        if (s->number < least || s->number > INT32_MAX)
            REFUSE("%s: %s: must be at least %lld, not %lld", name, option, (long long)least, (long long)s->number);
    }
    return true;
}

static bool open_session(nmt_session *s, const char *how, const nmt_options *given) {
    nmt_model *m = s->m;
    const model *first = m->models[0];
    s->growing = split_begin(&m->rules, "", 0);
    if (!read_policy(s, how)) return false;
    s->set = given ? *given : m->defaults;
    s->set.split = 2, s->set.split_long = 0; /* a sentence is translated as one */
    if (s->policy == ALIGNATT) s->set.attention = 1;
    const nmt_options *set = &s->set;
    if (set->placeholders || set->glossary)
        REFUSE("%s: has its place only when a sentence is complete", set->glossary ? "glossary" : "placeholders");
    nmt_results *checked = nmt_translate_requests(m, NULL, 0, set, s->problem, s->room);
    nmt_free(checked);
    for (int i = 0; s->policy == ALIGNATT && i < m->count; i++)
        if (!m->models[i]->set.attentions) REFUSE("alignatt: the model does not report its attention");
    const bool is_plain = !given && !set->replace_unknown && !set->capitals && !set->min_length && !set->no_repeat_ngram && set->repeat_penalty == 1.0f;
    if (!checked || s->policy != WAIT_K || !is_plain || m->count > 1 || m->language_count || !reads_forward(first)) return checked != NULL;
    const tensor *table = &first->tensors[first->set.table];
    if (!(s->kinds = calloc((size_t)table->rows, sizeof *s->kinds))) return no_memory(s);
    for (int32_t id = 0; id < table->rows; id++) {
        const token_words own = words_of(m->target, id);
        s->kinds[id] = (unsigned char)(own.is_letter * LETTER | own.is_ending * ENDING | own.is_comma * COMMA);
    }
    for (int32_t id = 0; id < subwords_size(m->source); id++) s->has_marks = s->has_marks || subwords_is_mark(m->source, id);
    for (i64 i = 0; i < first->encode.count; i++) s->rereads = s->rereads || first->encode.code[i].op == ATTEND_EARLIER;
    return ((s->r = runner_open(first, m->k, 1)) && renew(&s->logits, 1, ((size_t)table->rows + STRIP - 1) / STRIP * STRIP) &&
            renew_scratch(&s->scratch, table, 1)) || no_memory(s);
}

nmt_session *nmt_live_open(nmt_model *m, const char *how, const nmt_options *given, char *problem, size_t room) {
    nmt_session *s = calloc(1, sizeof *s);
    if (!s) return snprintf(problem, room, "not enough memory"), NULL;
    s->m = m, s->problem = problem, s->room = room;
    if (open_session(s, how, given)) return s;
    nmt_live_close(s);
    return NULL;
}
