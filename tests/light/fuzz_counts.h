/* What the fuzzing programs share: how many inputs were taken, told on stderr at the end. */

#ifndef FUZZ_COUNTS_H
#define FUZZ_COUNTS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* What libFuzzer calls, and what it has. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

static long inputs_taken;

static inline void tell_taken(void) { fprintf(stderr, "inputs taken: %ld\n", inputs_taken); }

/* An input that was not refused. */
static inline void count_taken(void) {
    if (!inputs_taken++) atexit(tell_taken);
}

/* Numbers that follow from a seed. */
static inline size_t drawn_from(uint64_t *state, size_t below) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return (size_t)(*state >> 11) % below;
}

#endif
