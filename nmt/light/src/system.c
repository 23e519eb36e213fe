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

#if defined(__unix__) || defined(__APPLE__) || defined(_WIN32)
#include <fcntl.h>
#include <sys/stat.h>
#if defined(_WIN32)
#include <io.h>
#include <process.h>
#include <windows.h>

/* Names are in UTF-8, as everywhere; Windows has a function for them in UTF-16. */
static int open_to_read(const char *path) {
    int size = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, NULL, 0), file = -1;
    wchar_t *wide = size ? malloc((size_t)size * sizeof *wide) : NULL;
    errno = size ? ENOMEM : EILSEQ;
    if (wide && MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, size))
        file = _wopen(wide, _O_RDONLY | _O_BINARY | _O_NOINHERIT);
    free(wide);
    return file;
}

typedef struct _stat64 file_status;
#define fstat _fstat64
#define read(file, bytes, size) _read(file, bytes, (unsigned)(size))
#define close _close
#else
#include <pthread.h>
#include <unistd.h>

static int open_to_read(const char *path) {
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* so that a pipe without a writer does not block */
}

typedef struct stat file_status;
#endif

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
    file_status status;
    char first[FIRST_BYTES], *bytes = NULL;
    const char *said = NULL;
    bool taken = false;
    int file = open_to_read(path);
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
    aligned_free(bytes);
    return NULL;
}

typedef struct {
    void *(*work)(void *);
    void *context;
} task;

#if defined(_WIN32)
typedef HANDLE thread;

static unsigned __stdcall work_on(void *given) {
    const task *own = given;
    own->work(own->context);
    return 0;
}

static bool start(thread *one, task *own) {
    *one = (HANDLE)_beginthreadex(NULL, 0, work_on, own, 0, NULL);
    return *one != 0;
}

static void join(thread one) { WaitForSingleObject(one, INFINITE), CloseHandle(one); }
#else
typedef pthread_t thread;

static bool start(thread *one, task *own) { return !pthread_create(one, NULL, own->work, own->context); }

static void join(thread one) { pthread_join(one, NULL); }
#endif

void run_threads(int threads, void *(*work)(void *), void *context) {
    thread *started = threads > 1 ? malloc((size_t)(threads - 1) * sizeof *started) : NULL;
    task own = {work, context};
    int count = 0;
    while (started && count < threads - 1 && start(&started[count], &own)) count++;
    work(context);
    for (int i = 0; i < count; i++) join(started[i]);
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
