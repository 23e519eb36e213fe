/* What translations keep to: a shortest length, no sequence of tokens twice, a prefix, phrases that do not occur. From the
   words of a caller to the tokens that may come next, as nmt/search/constraints.py describes it. */

#ifndef NMT_RULES_H
#define NMT_RULES_H

#include "kernels.h"
#include "nmt_engine.h"
#include "words.h"

/* A phrase that must not occur, in one spelling. */
typedef struct {
    char *bytes; /* ended by a 0 */
    size_t size;
    int32_t *within; /* tokens that contain it as whole words, not at their beginning; then those that begin with it */
    size_t count, all;
} pattern;

/* What one translation keeps to. */
typedef struct {
    const vocabulary *words;
    int32_t *prefix;
    i64 count;          /* tokens of the prefix */
    i64 forced;         /* of which so many must come as they are */
    const char *rest;   /* what the tokens after these must spell before anything else */
    i64 rest_size;      /* 0: nothing */
    bool ends_word;     /* the last word of the prefix is complete */
    const pattern *patterns;
    size_t pattern_count;
} wish;

/* What was asked for a line, and what its parts keep to. */
typedef struct {
    wish first;    /* the first part */
    wish later;    /* the others */
    text prefix;   /* as it was given, without white space around it */
    char *written; /* as the tokenizer writes it */
    size_t written_size, pattern_count;
    pattern *patterns;
    char *rest;
} wishes;

/* The words that the search chooses among: all ids, or those of a shortlist, ascending. */
typedef struct {
    float *logits;
    i64 count;
    const int32_t *ids; /* null: all */
} next_words;

/* The place of a token among them; -1 where it is not there. */
i64 place_of(const next_words *, int32_t token);

/* What is asked for a request; false with a line in `problem` for what no translation could keep to. */
bool wishes_read(wishes *, const nmt_request *, const subwords *target, const vocabulary *, char *problem, size_t room);
void wishes_clear(wishes *);

/* Tokens of what a translation must begin with, the end symbol counted, for each of which there must be room. */
i64 wish_tokens(const wish *);

/* Whether words that may be chosen spell the rest from each place on, [rest_size + 1]. */
void find_spellings(const wish *, const next_words *, bool *spells);

/* Scratch memory. Begins as zeros. */
typedef struct {
    scored_id *kept;
    char *text;
    size_t kept_room, text_room;
} rule_room;

void rule_room_clear(rule_room *);

/* Excludes the words that must not follow so many tokens; `own` may be null, `spells` is what `find_spellings` has found.
   False where memory ends. */
bool rules_apply(rule_room *, const nmt_options *, const wish *own, const bool *spells, const int32_t *tokens, i64 count,
                 const next_words *);

#endif
