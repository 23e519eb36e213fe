/* Runs the programs of one model: encodes sentences, and computes the steps of a search for many hypotheses at once. */

#ifndef NMT_RUN_H
#define NMT_RUN_H

#include "model.h"

/* Floats at a multiple of 64 bytes. Begins as zeros. */
typedef struct {
    float *values;
    size_t room;
} block;

/* Room for rows of so many floats, all zeros, in place of what was there; that stays if it has room for as many. False
   where memory ends, as below. */
bool renew(block *, size_t rows, size_t width);

/* The same for what a product with a matrix needs for so many rows. */
bool renew_scratch(block *, const tensor *matrix, i64 rows);

/* What is kept of an encoded sentence. Begins as zeros. */
typedef struct {
    i64 length, room; /* tokens, the end symbol counted */
    bool is_long;     /* when the first of them were read */
    float **at;       /* by register that is kept */
    block kept, tiles;
} memory;

void memory_clear(memory *);

/* One hypothesis in a step. */
typedef struct {
    const memory *sentence;
    int32_t token;    /* the last one; -1 before the first */
    i64 position;     /* how many there are */
    float *attention; /* [length], to which the weights of this step are added, or null */
} hypothesis_row;

typedef struct runner runner;

/* For at most `rows` hypotheses at a time. Null where memory ends. */
runner *runner_open(const model *, const kernels *, i64 rows);
void runner_close(runner *);

/* Whether a model reads each token before those that follow it. */
bool reads_forward(const model *);

/* Encodes `count` ids, of which each is in the vocabulary, and the last of a sentence is the end symbol: all of one where
   to->length is 0; else more of one, by such a model, behind those that this runner has read last. False where memory ends. */
bool runner_read(runner *, const int32_t *ids, i64 count, memory *to);

/* Row `row` gets the first state of the sentence that was encoded last. */
void runner_begin(runner *, i64 row);

/* Copies what the first row begins its next step with, and lets it begin one so again: at the position that it had then. */
bool runner_keep(const runner *, block *to);
void runner_restore(runner *, const block *from);

/* Computes features of all rows from their states. False where memory ends. */
bool runner_step(runner *, const hypothesis_row *rows, i64 count);

/* The features of a row, after a step; those of the next row stand `*apart` floats behind. */
const float *runner_features(const runner *, i64 row, i64 *apart);

/* For the next step row i continues what row from[i] became in the last. False where memory ends. */
bool runner_reorder(runner *, const i64 *from, i64 count);

#endif
