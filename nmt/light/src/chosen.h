/* The words that a shortlist allows for one sentence, and their part of the table of the softmax. */

#ifndef NMT_CHOSEN_H
#define NMT_CHOSEN_H

#include "model.h"

typedef struct {
    i64 count;      /* 0: all words */
    int32_t *ids;   /* ascending, of which the first three are PAD, UNK and EOS */
    tensor *tables; /* one for each model, [count, width] */
    uint8_t *marks; /* [vocabulary], all 0 between calls */
    void **values;  /* of the tables */
    size_t room, *rooms;
    int models;
} chosen_words;

/* For a source sentence, by the shortlist of the first model. False where memory ends. */
bool chosen_make(chosen_words *, const model *const *models, int count, const int32_t *ids, i64 length);
void chosen_clear(chosen_words *);

#endif
