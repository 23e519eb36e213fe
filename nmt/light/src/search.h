/* Greedy and beam search over the steps of one or several models, for many sentences at once. */

#ifndef NMT_SEARCH_H
#define NMT_SEARCH_H

#include "nmt_engine.h"
#include "rules.h"
#include "run.h"

/* One translation. */
typedef struct {
    i64 count;         /* tokens, without the end symbol */
    int32_t *ids;
    float *log_probs;  /* of each token and, where it has ended, of the end symbol */
    float *entropies;  /* as many, or null */
    float *attention;  /* [count, and one more where it has ended][length of the source], or null */
    float score;
    bool ended;        /* else the limit of its length has cut it */
    bool finite;       /* else there is no translation, and the ids mean nothing */
} found;

typedef struct {
    found *best;
    i64 count;
} found_list;

void found_clear(found_list *);

/* A sentence in ids, the end symbol last. */
typedef struct {
    const int32_t *ids;
    i64 length, number; /* number: of its results */
    const wish *asked;  /* what its translation keeps to; may be null */
} sentence;

typedef struct searcher searcher;

static inline bool is_stopped(const nmt_options *o) { return o->stop && *o->stop; }

/* Hypotheses of a sentence. */
static inline i64 rows_of(const nmt_options *o) { return o->sample ? o->n_best : o->beam_size; }

/* For one thread, with at most so many hypotheses at a time, of which there are at least as many as the largest beam
   has. The models have the same vocabularies. Null where memory ends. */
searcher *searcher_open(const model *const *models, int count, const kernels *, i64 rows);
i64 searcher_rows(const searcher *);
void searcher_close(searcher *);

/* A sentence that is still to be searched, another one at each call; null if there is none. */
typedef const sentence *(*next_sentence)(void *context);

/* Searches the sentences that `next` gives and writes what is found to `results`. False where memory ends, or the
   options' flag says stop. */
bool searcher_run(searcher *, const nmt_options *, next_sentence next, void *context, found_list *results);

#endif
