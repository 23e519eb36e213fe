/* A model that is open, as engine.c opens it. */

#ifndef NMT_OPEN_ENGINE_H
#define NMT_OPEN_ENGINE_H

#include <stdatomic.h>

#include "search.h"
#include "split.h"
#include "subwords.h"

enum { LARGEST_ENSEMBLE = 64, IDLE = 64 };

typedef enum { SPLIT_NONE, SPLIT_LONGER, SPLIT_ALL } split_mode; /* LONGER: lines of more than `trained` tokens alone */

struct nmt_model {
    int count;
    void *files[LARGEST_ENSEMBLE]; /* what was read of them; null where the caller has it */
    model *models[LARGEST_ENSEMBLE];
    nmt_options defaults;
    split_rules rules; /* of the source language */
    bool is_english;   /* the source */
    split_mode split;  /* of lines, where a call does not say */
    size_t trained;    /* tokens of the longest source in training; 0: not known */
    bool spaced;       /* whether the target language has spaces between sentences */
    subwords *source, *target; /* the same where the file has only one */
    int32_t *languages;        /* ids of the source tokens of target languages, ended by 0 */
    size_t language_count;
    const kernels *k;
    _Atomic(vocabulary *) words; /* of the target, once a call has needed it */
    /* Searchers that no call uses. No lock guards them: in the child of a process that forks meanwhile it would be held
       for ever. */
    _Atomic(searcher *) idle[IDLE];
};

#endif
