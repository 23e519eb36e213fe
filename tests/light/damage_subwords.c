/* Opens damaged SentencePiece models and splits text with them, under the compiler's sanitizers; or lets each allocation in turn
   fail, for which it is linked with --wrap=malloc and its like.

   Arguments: model, file with text, rounds (0: failing allocations), seed. Prints how many models were opened, or how many
   allocations have failed. */

#include "subwords.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long allowed = -1; /* allocations until one fails, -1: all succeed */

static bool fails(void) { return allowed >= 0 && allowed-- == 0; }

void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void *__wrap_malloc(size_t);
void *__wrap_calloc(size_t, size_t);
void *__wrap_realloc(void *, size_t);
void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return fails() ? NULL : __real_calloc(count, size); }
void *__wrap_realloc(void *p, size_t size) { return fails() ? NULL : __real_realloc(p, size); }

static uint64_t state;

static size_t drawn(size_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (size_t)(state >> 11) % below;
}

typedef struct {
    char *bytes;
    size_t size;
} content;

static content read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    content c = {NULL, 0};
    if (!file || fseek(file, 0, SEEK_END)) exit(2);
    c.size = (size_t)ftell(file);
    rewind(file);
    c.bytes = malloc(c.size);
    if (fread(c.bytes, 1, c.size, file) != c.size) exit(2);
    fclose(file);
    return c;
}

/* A copy of just its size, so that a byte beyond it is noticed, with some of it changed. */
static content damaged(content from) {
    size_t kind = drawn(4), flips = kind == 3 ? 0 : 1 + drawn(kind == 2 ? 64 : 3);
    content c = {NULL, kind == 1 || kind == 3 ? drawn(from.size + 1) : from.size};
    c.bytes = malloc(c.size ? c.size : 1);
    memcpy(c.bytes, from.bytes, c.size);
    for (size_t i = 0; c.size && i < flips; i++) {
        /* Half of them near the ends, where the lengths and the settings are. */
        size_t window = c.size < 200 || drawn(2) ? c.size : 200;
        size_t place = drawn(window) + (window < c.size && drawn(2) ? c.size - window : 0);
        c.bytes[place] = (char)(drawn(2) ? (int)drawn(256) : c.bytes[place] ^ 1 << drawn(8));
    }
    return c;
}

/* 0, or -1 if memory has ended. */
static int use(const subwords *model, content text) {
    int32_t *ids = NULL, odd[] = {-1, INT32_MIN, INT32_MAX, subwords_size(model), 0, 0, 0, 0};
    char *back = NULL;
    size_t id_room = 0, text_room = 0, size;
    int64_t count = subwords_encode(model, text.bytes, text.size, &ids, &id_room);
    int result = count < 0 ? -1 : 0;
    for (int i = 4; i < 8; i++) odd[i] = (int32_t)drawn((size_t)subwords_size(model));
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] >= 0 && !subwords_piece(model, ids[i], &size)) abort();
    }
    if (count >= 0 && subwords_decode(model, ids, count, &back, &text_room) < 0) result = -1;
    if (!result && subwords_decode(model, odd, 8, &back, &text_room) < 0) result = -1;
    if (subwords_piece(model, -1, &size) || subwords_piece(model, subwords_size(model), &size)) abort();
    free(ids), free(back);
    return result;
}

static content part_of(content text) {
    size_t begin = drawn(text.size), size = drawn(2) ? drawn(40) : drawn(1000);
    content c = {NULL, size < text.size - begin ? size : text.size - begin};
    c.bytes = malloc(c.size ? c.size : 1);
    memcpy(c.bytes, text.bytes + begin, c.size);
    return c;
}

static long open_damaged(content model, content text, long rounds) {
    long opened = 0;
    for (long round = 0; round < rounds; round++) {
        const char *problem;
        content file = damaged(model);
        subwords *m = subwords_open(file.bytes, file.size, &problem);
        if (!m && (!problem || !*problem || strchr(problem, '\n'))) abort();
        for (int i = 0; m && i < 4; i++) {
            content part = part_of(text);
            use(m, part);
            free(part.bytes);
        }
        opened += m != NULL;
        subwords_close(m);
        free(file.bytes);
    }
    return opened;
}

static long fail_allocations(content model, content text) {
    for (long failing = 0;; failing++) {
        const char *problem;
        allowed = failing;
        subwords *m = subwords_open(model.bytes, model.size, &problem);
        int result = m ? use(m, text) : -1;
        bool has_failed = allowed < 0;
        if (has_failed != (result < 0)) abort();
        subwords_close(m);
        allowed = -1;
        if (!has_failed) return failing;
    }
}

int main(int count, char **arguments) {
    if (count != 5) return 2;
    content model = read_file(arguments[1]), text = read_file(arguments[2]);
    long rounds = atol(arguments[3]);
    state = 0x9E3779B97F4A7C15u + (uint64_t)atol(arguments[4]);
    printf("%ld\n", rounds ? open_damaged(model, text, rounds) : fail_allocations(model, text));
    free(model.bytes), free(text.bytes);
    return 0;
}
