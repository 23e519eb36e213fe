/* See system.h. */

#if defined(__unix__) || defined(__APPLE__)
#define _POSIX_C_SOURCE 200809L
#endif

#include "system.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const char *map_file(const char *path, mapped_file *to) {
    struct stat status;
    *to = (mapped_file){0};
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* so that a pipe without a writer does not block */
    if (file < 0) return strerror(errno);
    const char *problem = NULL;
    if (fstat(file, &status)) {
        problem = strerror(errno);
    } else if (!S_ISREG(status.st_mode)) {
        problem = "not a regular file";
    } else if (status.st_size <= 0) {
        problem = "empty";
    } else if ((uintmax_t)status.st_size > PTRDIFF_MAX) {
        problem = "larger than memory can be";
    } else {
        void *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (bytes == MAP_FAILED)
            problem = strerror(errno);
        else
            *to = (mapped_file){bytes, (size_t)status.st_size, true};
    }
    close(file);
    return problem;
}

void unmap_file(mapped_file *file) {
    if (file->mapped) munmap(file->bytes, file->size);
    *file = (mapped_file){0};
}

struct lock {
    pthread_mutex_t mutex;
};

lock *lock_new(void) {
    lock *l = malloc(sizeof *l);
    if (l && pthread_mutex_init(&l->mutex, NULL)) free(l), l = NULL;
    return l;
}

void lock_free(lock *l) {
    if (l) pthread_mutex_destroy(&l->mutex);
    free(l);
}

void lock_take(lock *l) { pthread_mutex_lock(&l->mutex); }
void lock_give(lock *l) { pthread_mutex_unlock(&l->mutex); }

typedef struct {
    void (*work)(void *);
    void *context;
} thread_call;

static void *run_call(void *call) {
    const thread_call *c = call;
    c->work(c->context);
    return NULL;
}

void run_threads(int threads, void (*work)(void *), void *context) {
    thread_call call = {work, context};
    pthread_t *started = threads > 1 ? malloc((size_t)(threads - 1) * sizeof *started) : NULL;
    int count = 0;
    while (started && count < threads - 1 && !pthread_create(&started[count], NULL, run_call, &call)) count++;
    work(context);
    for (int i = 0; i < count; i++) pthread_join(started[i], NULL);
    free(started);
}

#else

const char *map_file(const char *path, mapped_file *to) {
    (void)path;
    *to = (mapped_file){0};
    return "there are no files here";
}

void unmap_file(mapped_file *file) { (void)file; }

struct lock {
    int none;
};

lock *lock_new(void) { return calloc(1, sizeof(lock)); }
void lock_free(lock *l) { free(l); }
void lock_take(lock *l) { (void)l; }
void lock_give(lock *l) { (void)l; }

void run_threads(int threads, void (*work)(void *), void *context) {
    (void)threads;
    work(context);
}

#endif
