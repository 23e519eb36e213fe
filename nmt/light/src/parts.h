/* What of a line is translated at once: its sentences, or all of it, and of what is too long parts, which are cut at the
   ends of sentences, else between words, else within. */

#ifndef NMT_PARTS_H
#define NMT_PARTS_H

#include <stdbool.h>

#include "split.h"
#include "subwords.h"

/* Parts in ids, one after the other, and the white space before the translation of each. Begins as zeros. */
typedef struct {
    int32_t *ids;
    size_t count, room;       /* of ids */
    size_t *ends;             /* where each part ends */
    char *spaces;
    size_t space_count, space_room;
    size_t *space_ends;       /* where the white space of each part ends */
    size_t parts, part_room;
} sentences;

void sentences_clear(sentences *);

/* Adds a part in ids, its end symbol, and the white space before its translation. False where memory ends. */
bool add_sentence(sentences *, const int32_t *ids, size_t count, const char *space, size_t space_size);

typedef enum { SPLIT_NONE, SPLIT_LONGER, SPLIT_ALL } split_mode;

typedef struct {
    const split_rules *rules;
    split_mode split;  /* LONGER: lines of more than `trained` tokens alone */
    size_t trained;    /* tokens; 0: not known, none is longer */
    size_t longest;    /* tokens of a part; 0: any number */
    bool spaced;       /* whether the target language has spaces between sentences */
} cutting;

/* What became of a line. */
typedef struct {
    size_t sentences; /* that are translated by themselves */
    bool several;     /* has several sentences, but is translated as a whole */
} cut_line;

/* Adds the parts of a line; none for a line of white space or of nothing that has tokens. False where memory ends. */
bool add_line(sentences *, const subwords *, const cutting *, const char *line, size_t size, cut_line *);

#endif
