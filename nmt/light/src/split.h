/* Where the sentences of a text are. */

#ifndef NMT_SPLIT_H
#define NMT_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the words of a language, or of all, say about full stops. */
typedef struct {
    const struct language_words *words; /* of `count` languages */
    int count;
    const char *more; /* abbreviations of the caller, each between line feeds; may be null */
    bool ordinals, is_known;
} split_rules;

/* For the language with this code, such as `de` or `pt-BR`; of null, or of one that is not known, the words of all. */
split_rules split_rules_of(const char *language);

/* A text whose sentences are looked for from `at` on. */
typedef struct {
    const split_rules *rules;
    const char *text;
    size_t size, at, words, looked; /* words: where the last letter or digit ends; looked: as far as letters are known */
    bool no_capitals, all_capitals;
} splitting;

splitting split_begin(const split_rules *, const char *text, size_t size);

/* The next sentence, without the white space around it, in bytes of the text; false where there is none. Each has a
   letter or a digit, unless the text has none. Time is linear in the size of the text. */
bool split_next(splitting *, size_t *begin, size_t *end);

/* How far a sentence has been looked at, and what is open there. Begins as zeros. */
typedef struct {
    size_t at, last;
    bool has_any;
    int quotes, brackets;
} sentence_state;

/* Whether the first sentence of a text, which begins without white space, is followed by another one. The text grows from call to call, in
   which what is far enough behind is not looked at again. */
bool split_grown(splitting *, sentence_state *, const char *text, size_t size);

/* A character that begins at `p`, and how many bytes it has; of what is no UTF-8 each byte is one, 0xfffd. */
uint32_t character_at(const char *p, const char *end, int *bytes);
bool is_space(uint32_t);
bool ends_sentence(uint32_t);   /* a full stop or another mark */
bool closes_sentence(uint32_t); /* a quote or a bracket that may stand behind it */

#endif
