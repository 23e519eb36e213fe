/* See system.h. */

#if defined(__unix__) || defined(__APPLE__)
#define _POSIX_C_SOURCE 200809L
#endif

#include "system.h"

#include <errno.h>
#include <stdio.h>

/* Shell's sort, with Knuth's gaps; qsort would make the WebAssembly a tenth larger. */
void sort_keyed(keyed *all, size_t count) {
    size_t gap = 1;
    while (gap < count / 3) gap = 3 * gap + 1;
    for (; gap; gap /= 3)
        for (size_t i = gap; i < count; i++) {
            const keyed one = all[i];
            size_t at = i;
            for (; at >= gap; at -= gap) {
                const keyed *before = &all[at - gap];
                if (before->key < one.key || (before->key == one.key && before->place < one.place)) break;
                all[at] = *before;
            }
            all[at] = one;
        }
}

#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_AT_ONCE = 1 << 30 }; /* bytes; some systems refuse 2^31 */

/* Reads on until there are `end` bytes, or all that a file still has. */
static bool read_until(int file, char *bytes, size_t *size, size_t end) {
    while (*size < end) {
        size_t left = end - *size;
        ssize_t count = read(file, bytes + *size, left < MOST_AT_ONCE ? left : MOST_AT_ONCE);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return count == 0;
        *size += (size_t)count;
    }
    return true;
}

void *read_file(const char *path, bool (*begins)(const void *bytes, size_t size, char *problem, size_t room),
                size_t *size, char *problem, size_t room) {
    struct stat status;
    char first[FIRST_BYTES], *bytes = NULL;
    const char *said = NULL;
    bool taken = false;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* so that a pipe without a writer does not block */
    *size = 0;
    if (file < 0 || fstat(file, &status)) said = strerror(errno);
    else if (!S_ISREG(status.st_mode)) said = "not a regular file";
    else if (status.st_size <= 0) said = "empty";
    else if (!read_until(file, first, size, sizeof first)) said = strerror(errno);
    else taken = begins(first, *size < sizeof first ? *size : (size_t)status.st_size, problem, room);
    if (taken) {
        size_t end = (size_t)status.st_size;
        bytes = end <= PTRDIFF_MAX - 64 ? aligned_alloc(64, (end + 63) / 64 * 64) : NULL;
        if (bytes) memcpy(bytes, first, *size);
        if (!bytes) said = "not enough memory";
        else if (!read_until(file, bytes, size, end)) said = strerror(errno);
    }
    if (file >= 0) close(file);
    if (said) snprintf(problem, room, "%s", said);
    if (taken && !said) return bytes;
    free(bytes);
    return NULL;
}

void run_threads(int threads, void *(*work)(void *), void *context) {
    pthread_t *started = threads > 1 ? malloc((size_t)(threads - 1) * sizeof *started) : NULL;
    int count = 0;
    while (started && count < threads - 1 && !pthread_create(&started[count], NULL, work, context)) count++;
    work(context);
    for (int i = 0; i < count; i++) pthread_join(started[i], NULL);
    free(started);
}

#else

void *read_file(const char *path, bool (*begins)(const void *bytes, size_t size, char *problem, size_t room),
                size_t *size, char *problem, size_t room) {
    (void)path, (void)begins, (void)size;
    snprintf(problem, room, "there are no files here");
    return NULL;
}

void run_threads(int threads, void *(*work)(void *), void *context) {
    (void)threads;
    work(context);
}

#endif
