/* One round of scripts/bench_engine_subwords.py: opens a SentencePiece model, splits and joins each line of a text.

   Arguments: model, text. Prints the CPU seconds of each of the three steps and the number of ids. */

#define _POSIX_C_SOURCE 200809L

#include "subwords.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    char *bytes;
    size_t size;
} content;

static content read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    content c = {NULL, 0};
    if (!file || fseek(file, 0, SEEK_END)) exit(1);
    c.size = (size_t)ftell(file);
    rewind(file);
    c.bytes = malloc(c.size + 1);
    if (!c.bytes || fread(c.bytes, 1, c.size, file) != c.size) exit(1);
    fclose(file);
    return c;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    content file = read_file(arguments[1]), text = read_file(arguments[2]);
    const char *problem, *end = text.bytes + text.size;
    double times[3] = {0}, started = seconds();
    subwords *model = subwords_open(file.bytes, file.size, &problem);
    times[0] = seconds() - started;
    if (!model) {
        fprintf(stderr, "%s: %s\n", arguments[1], problem);
        return 1;
    }
    int32_t *ids = NULL;
    char *joined = NULL;
    size_t id_room = 0, joined_room = 0;
    int64_t total = 0;
    for (const char *line = text.bytes, *after; line < end; line = after + 1) {
        after = memchr(line, '\n', (size_t)(end - line));
        if (!after) after = end;
        started = seconds();
        int64_t found = subwords_encode(model, line, (size_t)(after - line), &ids, &id_room);
        double split = seconds();
        if (found < 0 || subwords_decode(model, ids, found, &joined, &joined_room) < 0) return 1;
        times[1] += split - started, times[2] += seconds() - split, total += found;
    }
    printf("%.9f %.9f %.9f %lld\n", times[0], times[1], times[2], (long long)total);
    subwords_close(model);
    free(ids), free(joined), free(file.bytes), free(text.bytes);
    return 0;
}
