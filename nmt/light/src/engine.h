/* What the files of the engine share behind nmt_engine.h. */

#ifndef NMT_ENGINE_PARTS_H
#define NMT_ENGINE_PARTS_H

#include <stdatomic.h>

#include "nmt_engine.h"
#include "parts.h"
#include "search.h"
#include "subwords.h"
#include "system.h"

enum { LARGEST_ENSEMBLE = 64, IDLE = 64, ROWS = 40 }; /* ROWS: hypotheses that a thread computes at once */

struct nmt_model {
    int count;
    void *files[LARGEST_ENSEMBLE]; /* what was read of them; null where the caller has it */
    model *models[LARGEST_ENSEMBLE];
    nmt_options defaults;
    split_rules rules; /* of the source language */
    split_mode split;  /* of lines, where a call does not say */
    size_t trained;    /* tokens of the longest source in training; 0: not known */
    bool spaced;       /* whether the target language has spaces between sentences */
    subwords *source, *target; /* the same where the file has only one */
    const kernels *k;
    /* Searchers that no call uses. No lock guards them: in the child of a process that forks meanwhile it would be held
       for ever. */
    _Atomic(searcher *) idle[IDLE];
};

/* A line: its parts are `first` to `first + parts`. */
typedef struct {
    size_t first, parts, count; /* count: translations */
    cut_line cut;
    char **texts;
    size_t *sizes;
} line_result;

struct nmt_results {
    size_t count;
    line_result *lines;
    sentences all; /* parts of all lines */
    found_list *found; /* of each part */
    char *joined; /* of all lines */
    size_t joined_size;
};

/* Whether each option is within its range, else a line about one that is not. */
bool options_allowed(const nmt_options *, char *problem, size_t room);

/* The options that a file asks for; false where this engine cannot do what it asks for. */
bool options_of_model(const model *, nmt_options *, char *problem, size_t room);

/* Searches all parts of the results by as many threads as the options say. False as searcher_run. */
bool search_all(nmt_model *, nmt_results *, const nmt_options *);

#endif
