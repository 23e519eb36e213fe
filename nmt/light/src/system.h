/* What an operating system gives: files in memory, threads and locks. Where there are no threads (WebAssembly) one does
   all the work. */

#ifndef NMT_SYSTEM_H
#define NMT_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>

/* A file in memory, at a multiple of 64 bytes. */
typedef struct {
    void *bytes;
    size_t size;
    bool mapped;
} mapped_file;

/* Null, or one line that says why not; it need not be freed. */
const char *map_file(const char *path, mapped_file *);
void unmap_file(mapped_file *);

typedef struct lock lock;
lock *lock_new(void);
void lock_free(lock *);
void lock_take(lock *);
void lock_give(lock *);

/* Calls `work` with `context` from so many threads at once, of which this is one, and returns when all have returned.
   Fewer where there are no more. */
void run_threads(int threads, void (*work)(void *), void *context);

#endif
