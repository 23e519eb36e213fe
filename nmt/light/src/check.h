/* Whether the programs of a model stay within their registers and tensors. */

#ifndef NMT_CHECK_H
#define NMT_CHECK_H

#include "model.h"

/* Also finds out which registers are kept with a sentence, and how wide caches are. `weights`: bytes of all tensors.
   False with a line in `problem`. */
bool check_programs(model *, uint64_t weights, char *problem, size_t room);

#endif
