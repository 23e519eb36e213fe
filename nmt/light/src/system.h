/* What an operating system gives: the content of files, and threads. Where there are none (WebAssembly) one does all the
   work. */

#ifndef NMT_SYSTEM_H
#define NMT_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>

enum { FIRST_BYTES = 64 };

/* The content of a regular file in memory of its own, at a multiple of 64 bytes, to be freed: whatever becomes of the
   file, that stays as it was checked. It is read, and memory taken for it, only if `begins` accepts its FIRST_BYTES, or
   all of its `size` if it has fewer. Null with a line in `problem`. */
void *read_file(const char *path, bool (*begins)(const void *bytes, size_t size, char *problem, size_t room),
                size_t *size, char *problem, size_t room);

/* Calls `work` with `context` from so many threads at once, of which this is one, and returns when all have returned.
   Fewer where there are no more. */
void run_threads(int threads, void (*work)(void *), void *context);

#endif
