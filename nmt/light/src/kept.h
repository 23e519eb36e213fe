/* What is kept of a line: placeholders, and terms of a glossary; what the model reads in their place, and where they stand
   in its translation. */

#ifndef NMT_KEPT_H
#define NMT_KEPT_H

#include "glossary.h"
#include "placeholders.h"

typedef struct {
    size_t begin, end;
} stretch;

typedef struct {
    text own;           /* what must be in the translation */
    placeholder from;   /* what it is in the line; a term likewise */
    stretch read;       /* what represents it in what the model reads; empty for a mark */
    text before, after; /* the white space around it in the line */
    size_t partner;     /* of a mark that others end or begin: its place among all that is kept; else SIZE_MAX */
} kept;

/* A line of which something is kept; zero at first. */
typedef struct {
    text line;
    char *bytes; /* what the model reads */
    size_t size, room;
    uint32_t *origins; /* where in the line each byte of that was, and its end */
    size_t origin_room;
    kept *items; /* in order */
    size_t count, item_room;
    char stand_in[3]; /* the character that represents a placeholder there */
} kept_line;

typedef enum { KEEPS, KEEPS_NOTHING, NO_STAND_IN, NO_MEMORY } keeping;

/* Whether a text has letters or digits. */
bool has_letters(text);

/* Prepares a line, whose terms are those of a glossary; null: none. */
keeping keep_line(kept_line *, text line, bool placeholders, const nmt_glossary *);
void kept_clear(kept_line *);

/* Where a token is in a text; NOWHERE one that is not in it. */
#define NOWHERE ((stretch){SIZE_MAX, SIZE_MAX})

/* A piece of a translation: a word, a mark, or the symbol for an unknown word. */
typedef struct {
    text own, gap; /* gap: the white space before it */
    size_t weights; /* place of the row that has how much of each unit of the source went into it; SIZE_MAX: none */
    size_t source;  /* the unit that most of it comes from; SIZE_MAX: none */
    size_t unknown; /* which token it is, if it is that symbol; else SIZE_MAX */
    const kept *item; /* that it represents */
    bool is_word;
} piece;

typedef struct {
    piece *all;
    size_t count, room;
    char **owned; /* texts that were made for pieces */
    size_t owned_count, owned_room;
    stretch *units; /* of the source: words and marks in what the model read */
    size_t unit_count;
    float *weights; /* [rows][units] */
    stretch *spans; /* where in what is written each piece is */
    size_t span_room;
} pieces;

void pieces_clear(pieces *);

/* A part of a source and a translation of it. */
typedef struct {
    const kept_line *kept; /* null: nothing is kept */
    size_t first, last;    /* the items of the part */
    text source, target;   /* what the model read of the whole line, and what it has written */
    const stretch *source_tokens, *target_tokens;
    size_t source_count, target_count;
    const int32_t *ids;     /* of the target tokens */
    const float *attention; /* of each target token [source_stride] */
    size_t source_stride;
    int32_t unknown; /* the id of an unknown word */
} placing;

/* The pieces of a translation with all that is kept, each once. False where memory ends. */
bool place_kept(const placing *, pieces *);

/* Puts in place of each symbol for an unknown word, except among the first `fixed` tokens, the source word that it comes from.
   `source_ids` are those of the source tokens, of which the first `led` are not in the text. */
bool replace_unknown(const placing *, pieces *, const int32_t *source_ids, size_t led, size_t fixed);

/* Puts all that was not kept in capitals. */
bool put_in_capitals(pieces *);

typedef struct {
    char *bytes;
    size_t size, room;
} written_text;

/* Writes the texts of the parts of a line, which together have each placeholder of what is kept as often as that has. */
bool write_parts(const kept_line *, pieces *parts, size_t count, written_text *texts);

typedef struct {
    stretch *all;
    size_t count, room;
} stretches;

/* Adds the words of a text, which white space separates. False where memory ends, as below. */
bool find_words(text, stretches *);

/* Pairs of a word of the line and one of its translation, from 0. */
typedef struct {
    int32_t *all; /* [count][2] */
    size_t count, room;
} word_pairs;

/* Adds for each word of a part that has been written the word of the line that it comes from: `words` are those of the line,
   `before` is how many words the translation has before those of the part. What was kept comes from where it was. */
bool align_part(const kept_line *, text line, const stretches *words, const pieces *, text written, size_t before,
                word_pairs *);

#endif
