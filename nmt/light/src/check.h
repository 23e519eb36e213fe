/* Whether the programs of a model stay within their registers and tensors. */

#ifndef NMT_CHECK_H
#define NMT_CHECK_H

#include "model.h"

/* Also finds out which registers are kept with a sentence, and how wide caches are. False with a line in `problem`. */
bool check_programs(model *, char *problem, size_t room);

#endif
