/* What an operating system gives: memory that grows, the content of files, and threads. Where there are none
   (WebAssembly) one does all the work. */

#ifndef NMT_SYSTEM_H
#define NMT_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#include <malloc.h>
#define aligned_alloc(multiple, size) _aligned_malloc(size, multiple)
#define aligned_free _aligned_free
#else
#define aligned_free free
#endif

/* Makes room for `needed` items of `size` bytes in *items, whose place is of any type, at least for twice as many as
   there was. False where memory ends. */
static inline bool grown(void *items, size_t size, size_t *room, size_t needed) {
    if (needed <= *room) return true;
    size_t larger = *room > SIZE_MAX / 2 || needed > *room * 2 ? needed : *room * 2;
    void *moved;
    memcpy(&moved, items, sizeof moved);
    moved = larger > SIZE_MAX / 2 / size ? NULL : realloc(moved, larger * size);
    if (!moved) return false;
    memcpy(items, &moved, sizeof moved);
    *room = larger;
    return true;
}

typedef struct {
    uint64_t key;
    size_t place;
} keyed;

/* By their keys, then by their places. */
void sort_keyed(keyed *, size_t count);

enum { FIRST_BYTES = 64 };

/* The content of a regular file in memory of its own, at a multiple of 64 bytes, for aligned_free: whatever becomes of the
   file, that stays as it was checked. It is read, and memory taken for it, only if `begins` accepts its FIRST_BYTES, or
   all of its `size` if it has fewer. Null with a line in `problem`. */
void *read_file(const char *path, bool (*begins)(const void *bytes, size_t size, char *problem, size_t room),
                size_t *size, char *problem, size_t room);

/* Calls `work` with `context` from so many threads at once, of which this is one, and returns when all have returned.
   Fewer where there are no more. */
void run_threads(int threads, void *(*work)(void *), void *context);

#endif
