/* Where words end, and what each token of a vocabulary adds to a text: what is looked for in texts is looked for as whole
   words, as nmt/data/matching.py describes them. */

#ifndef NMT_WORDS_H
#define NMT_WORDS_H

#include <stdbool.h>
#include <string.h>

#include "subwords.h"

/* A stretch of a text in UTF-8. */
typedef struct {
    const char *begin, *end;
} text;

bool is_alphanumeric(uint32_t);
bool is_mark(uint32_t); /* on a letter, or a vowel that is written as one */

/* What opens a bracket or quotation; what closes one, and characters without width; a dash. */
bool is_opening(uint32_t);
bool is_closing(uint32_t);
bool is_dash(uint32_t);

/* Of scripts without spaces between words. */
bool is_unspaced(uint32_t);

/* The character that ends where a text ends; 0 for an empty one, 0xfffd where it is cut. */
uint32_t last_of(text);

/* Writes a character in UTF-8, of at most 4 bytes, and returns how many it has. */
size_t utf8_of(uint32_t, char *to);

/* The next number of a table of text (scripts/unicode_tables). */
uint32_t next_number(const char **at);

static inline bool same_text(text a, text b) {
    return a.end - a.begin == b.end - b.begin && (a.begin == a.end || !memcmp(a.begin, b.begin, (size_t)(a.end - a.begin)));
}

/* Behind the white space with which a text begins; the text without that at both of its ends. */
const char *after_spaces(text);
text stripped(text);

/* Whether a word can end between a character, 0 at the beginning of a text, and what follows: where a letter, a digit or
   `_` is next to another kind of character; in scripts without spaces between any two letters; in Korean also before
   particles. */
bool is_boundary(uint32_t last, text after);

/* What tokens add to a text, and the tokens by it. */
typedef struct {
    char *bytes;
    uint32_t *begins; /* of each token, and the end of the last one [size + 1] */
    int32_t *sorted;  /* [size] */
    uint64_t *letters; /* of each token `letters_of` what it adds [size] */
    int32_t size;
} spelled;

/* A bit for each byte, which some share: a text has all bits of what it contains. */
static inline uint64_t letters_of(text t) {
    uint64_t bits = 0;
    for (; t.begin < t.end; t.begin++) bits |= (uint64_t)1 << (*t.begin & 63);
    return bits;
}

/* Fills `sorted`: by their bytes, then by their numbers. False where memory ends. */
bool spelled_sort(spelled *);
void spelled_clear(spelled *);

static inline text spelled_by(const spelled *s, int32_t token) {
    return (text){s->bytes + s->begins[token], s->bytes + s->begins[token + 1]};
}

/* The places in `sorted` of the tokens that begin with `start`, from the first to behind the last; those that are no more
   than that come first. */
void spelled_range(const spelled *, text start, int32_t *first, int32_t *last);

typedef struct {
    spelled as_is, single; /* single: with one space for several */
    bool *begins_word;     /* [size] by a space, which is no byte of its own */
    bool any_begins_word;
} vocabulary;

/* Null where memory ends. */
vocabulary *vocabulary_of(const subwords *);
void vocabulary_close(vocabulary *);

#endif
