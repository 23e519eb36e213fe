/* Lines that are too long to be translated at once, cut into parts: at the ends of sentences, else between words, else
   within. */

#ifndef NMT_PARTS_H
#define NMT_PARTS_H

#include <stdbool.h>

#include "subwords.h"

/* Sentences in ids, one after the other. Begins as zeros. */
typedef struct {
    int32_t *ids;
    size_t count, room;     /* of ids */
    size_t *ends;           /* where each sentence ends */
    size_t parts, part_room;
} sentences;

void sentences_clear(sentences *);

/* Adds a sentence in ids, and its end symbol. False where memory ends. */
bool add_sentence(sentences *, const int32_t *ids, size_t count);

/* Adds the parts of a line, of at most `longest` tokens each and one for the end symbol, which is added; none for a
   line of white space or of nothing that has tokens; one for any line if `longest` is 0. False where memory ends. */
bool add_parts(sentences *, const subwords *, const char *line, size_t size, size_t longest);

#endif
