/* Opens damaged model files, whose checksums are right, and translates with those that are taken, under the compiler's sanitizers; or
   lets each allocation in turn fail, for which it is linked with --wrap=malloc and its like; or translates from several threads; or
   forks while they translate, and translates in the child; or translates live, in pieces of all sizes; or prints what the lines of the
   text become.

   Arguments: model, file with text, what ("damage", "allocations", "ensemble", "threads", "forks", "live", "lines"), rounds, seed. Prints how many
   files were opened, how many allocations have failed, or how many threads there were. Of "threads" the rounds are those of each thread, of
   "forks" they are the children, of "lines" 0 takes kernels in plain C, 1 the best ones, whose name is printed first. */

#define _GNU_SOURCE

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine_use.h"

enum { SECONDS = 20, THREADS = 4, LINES = 3 };

static long allowed = -1; /* allocations until one fails, -1: all succeed */

#ifdef WRAPPED
static bool fails(void) { return allowed >= 0 && allowed-- == 0; }

void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void *__real_aligned_alloc(size_t, size_t);
void *__wrap_malloc(size_t);
void *__wrap_calloc(size_t, size_t);
void *__wrap_realloc(void *, size_t);
void *__wrap_aligned_alloc(size_t, size_t);
void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return fails() ? NULL : __real_calloc(count, size); }
void *__wrap_realloc(void *p, size_t size) { return fails() ? NULL : __real_realloc(p, size); }
void *__wrap_aligned_alloc(size_t at, size_t size) { return fails() ? NULL : __real_aligned_alloc(at, size); }
#endif

#ifdef SLOW_LOCKS
/* In place of that of the system: whoever has a lock holds it so long that a fork meets it. */
int pthread_mutex_lock(pthread_mutex_t *mutex) {
    int (*real)(pthread_mutex_t *) = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
    int result = real(mutex);
    usleep(100);
    return result;
}
#endif

static uint64_t state;

static size_t drawn(size_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (size_t)(state >> 11) % below;
}

/* --- damage --- */

/* Bytes of an item of a section, by its first letters; 0: of those that are read elsewhere, or large. */
static size_t item_of(const unsigned char *name) {
    static const struct { char name[5]; size_t item; } KNOWN[] = {{"SETT", 4}, {"TENS", 40}, {"REGS", 8}, {"STAT", 12},
                                                                  {"ENCO", 64}, {"STEP", 64}, {"LIST", 4}};
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (!memcmp(name, KNOWN[i].name, 4)) return KNOWN[i].item;
    return 0;
}

/* A number that may matter: small ones, those at the ends of their ranges, one of another item. */
static uint32_t odd_number(const unsigned char *section, size_t size) {
    static const uint32_t ODD[] = {0, 1, 2, 3, 4, 16, 17, 24, 0xffffffffu, 0x7fffffffu, 0x80000000u, 0x7f800000u, 0x7fc00000u, 1u << 24};
    switch (drawn(3)) {
    case 0: return ODD[drawn(sizeof ODD / sizeof *ODD)];
    case 1: return (uint32_t)drawn(64);
    default: return (uint32_t)number_at(section + drawn(size / 4) * 4, 4);
    }
}

static void damage_items(unsigned char *section, size_t size, size_t item) {
    unsigned char kept[64], *one = section + drawn(size / item) * item, *other = section + drawn(size / item) * item;
    switch (drawn(4)) {
    case 0: memmove(one, other, item); break;
    case 1: memcpy(kept, one, item), memmove(one, other, item), memcpy(other, kept, item); break;
    default: set_number(one + drawn(item / 4) * 4, odd_number(section, size), 4);
    }
}

static void damage_section(content c) {
    size_t count = (size_t)number_at(c.bytes + 12, 4);
    unsigned char *entry = c.bytes + HEADER + drawn(count) * ENTRY, *section = c.bytes + number_at(entry + 8, 8);
    size_t size = (size_t)number_at(entry + 16, 8), item = item_of(entry);
    if (!size) return;
    if (item && drawn(4)) damage_items(section, size, item);
    else if (!memcmp(entry, "DATA", 4) && drawn(2)) set_number(section + drawn(size / 4) * 4, odd_number(section, size), 4);
    else section[drawn(size)] ^= (unsigned char)(1 << drawn(8));
}

static content damaged(content from) {
    content c = room_for(drawn(12) ? from.size : drawn(from.size + 1));
    memcpy(c.bytes, from.bytes, c.size);
    if (c.size < from.size) {
    } else if (!drawn(12)) { /* the table of sections */
        set_number(c.bytes + 12 + drawn(2 * ENTRY) * 4, odd_number(c.bytes, 400), 4);
    } else {
        for (size_t i = 0, times = 1 + drawn(3); i < times; i++) damage_section(c);
    }
    repair(c);
    return c;
}

/* --- use --- */

static char *texts[LINES];
static size_t sizes[LINES];

static void choose_lines(content text) {
    for (int i = 0; i < LINES; i++) {
        size_t begin = drawn(text.size), left = text.size - begin, size = drawn(60);
        sizes[i] = size < left ? size : left;
        free(texts[i]);
        texts[i] = malloc(sizes[i] + 1); /* no byte behind it can be missed, as none is needed there */
        memcpy(texts[i], text.bytes + begin, sizes[i]);
    }
}

static const char *use_texts(nmt_model *m, char *problem) {
    return use(m, (const char *const *)texts, sizes, LINES, problem);
}

static void limit_time(void) {
    struct itimerval timer = {.it_value = {.tv_sec = SECONDS}};
    setitimer(ITIMER_PROF, &timer, NULL); /* of this process alone: SIGPROF ends it */
}

static long open_damaged(content model, content text, long rounds) {
    long opened = 0;
    for (long round = 0; round < rounds; round++) {
        char problem[ROOM] = "";
        content file = damaged(model);
        limit_time();
        nmt_model *m = nmt_open_memory(file.bytes, file.size, "plain", problem, ROOM);
        if (!m) check_line(problem);
        choose_lines(text);
        if (m && use_texts(m, problem)) check_line(problem);
        opened += m != NULL;
        nmt_close(m);
        free(file.bytes);
    }
    return opened;
}

static nmt_model *opened(content model, const char *path, bool ensemble, char *problem) {
    const char *both[] = {path, path};
    return ensemble ? nmt_open(both, 2, "plain", problem, ROOM) : nmt_open_memory(model.bytes, model.size, "plain", problem, ROOM);
}

/* What fails is said, nothing is lost, and the model goes on working. */
static long fail_allocations(content model, const char *path, bool ensemble) {
    for (long failing = 0;; failing++) {
        char problem[ROOM] = "";
        allowed = failing;
        nmt_model *m = opened(model, path, ensemble, problem);
        bool failed = !m || use_texts(m, problem), has_failed = allowed < 0;
        allowed = -1;
        if (failed != has_failed || (failed && !strstr(problem, "not enough memory") && !strstr(problem, "memory ends"))) {
            fprintf(stderr, "allocation %ld: %s\n", failing, problem);
            abort();
        }
        if (m && use_texts(m, problem)) abort();
        nmt_close(m);
        if (!has_failed) return failing;
    }
}

/* Feeds two sessions of a model in turns, the first one in pieces of so many bytes, and copies what it returns. Null, or what was said. */
static const char *live(nmt_model *m, const char *how, const nmt_options *o, size_t line, size_t piece, content to, char *problem) {
    nmt_session *s = nmt_live_open(m, how, o, problem, ROOM), *other = s ? nmt_live_open(m, "wait_k,wait=1", o, problem, ROOM) : NULL;
    size_t used = 0, size = 0;
    bool fine = other;
    for (size_t at = 0; fine && at <= sizes[line]; at += piece) {
        const size_t left = sizes[line] - at, count = left < piece ? left : piece;
        char place[1000], *own = place + sizeof place - count; /* behind which nothing may be read */
        memcpy(own, texts[line] + at, count);
        const char *told = nmt_live_feed(s, own, count, &size, problem, ROOM);
        fine = told && nmt_live_feed(other, "\xe4\xb8", at % 3, &(size_t){0}, problem, ROOM);
        if (!told) break;
        if (used + size > to.size) abort();
        memcpy(to.bytes + used, told, size);
        used += size;
        if (nmt_live_tail(s, &size)[0] == '\n') abort();
    }
    const char *last = fine ? nmt_live_end(s, &size, problem, ROOM) : NULL;
    if (last && used + size < to.size) memcpy(to.bytes + used, last, size), to.bytes[used + size] = 0;
    nmt_live_close(s), nmt_live_close(other); /* which has not ended */
    return last ? NULL : problem;
}

/* Pieces of any size write the same, and an allocation that fails is told. How many sessions there were. */
static long use_live(content model, content text, long rounds) {
    static const char *const POLICIES[] = {"wait_k,wait=1", "wait_k,wait=3", "local_agreement", "alignatt,unread=1"};
    static const char ODD[] = " a\0b \xff\xe4\xb8 \xe4\xb8\x80\xe3\x80\x82 ";
    char problem[ROOM] = "";
    long sessions = 0;
    nmt_model *m = nmt_open_memory(model.bytes, model.size, "plain", problem, ROOM);
    if (!m) abort();
    content found[2] = {room_for(1 << 16), room_for(1 << 16)};
    for (long round = 0; round < rounds; round++) {
        choose_lines(text);
        texts[0] = realloc(texts[0], sizes[0] + sizeof ODD);
        memcpy(texts[0] + sizes[0], ODD, sizeof ODD - 1);
        sizes[0] += sizeof ODD - 1;
        nmt_options o = small_options(m, 2);
        o.split_long = 0;
        for (size_t i = 0; i < sizeof POLICIES / sizeof *POLICIES; i++, sessions++) {
            const nmt_options *given = round % 2 ? &o : NULL;
            if (live(m, POLICIES[i], given, 0, 1000, found[0], problem)) abort();
            for (size_t piece = 1; piece < 9; piece += 3)
                if (live(m, POLICIES[i], given, 0, piece, found[1], problem) || strcmp((char *)found[0].bytes, (char *)found[1].bytes)) abort();
            for (long failing = 0; !round; failing++) {
                allowed = failing;
                const bool failed = live(m, POLICIES[i], given, 0, 7, found[1], problem), has_failed = allowed < 0;
                allowed = -1;
                if (failed != has_failed || (failed && !strstr(problem, "not enough memory"))) abort();
                if (!has_failed) break;
            }
        }
    }
    nmt_close(m);
    free(found[0].bytes), free(found[1].bytes);
    return sessions;
}

typedef struct {
    nmt_model *m;
    long rounds;
} user;

static void *use_often(void *context) {
    const user *u = context;
    char problem[ROOM];
    for (long round = 0; round < u->rounds; round++) {
        nmt_options o = small_options(u->m, round % 2 ? 3 : 1);
        o.threads = 2;
        nmt_results *r = nmt_translate(u->m, (const char *const *)texts, sizes, LINES, &o, problem, ROOM);
        if (!r) abort();
        size_t size;
        if (!nmt_lines(r, &size) || nmt_count(r, 0) < 1) abort();
        nmt_free(r);
    }
    return NULL;
}

static long use_from_threads(content model, long rounds) {
    char problem[ROOM];
    pthread_t threads[THREADS];
    user u = {nmt_open_memory(model.bytes, model.size, NULL, problem, ROOM), rounds};
    if (!u.m) abort();
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, use_often, &u)) exit(2);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    nmt_close(u.m);
    return THREADS;
}

static atomic_bool is_over;

static void translate_one(nmt_model *m) {
    char problem[ROOM];
    const int32_t id = 3, *one = &id;
    const size_t length = 1;
    nmt_options o = nmt_defaults(m);
    o.beam_size = 1, o.max_length_offset = 0;
    nmt_results *r = nmt_translate_ids(m, &one, &length, 1, &o, problem, ROOM);
    if (!r) abort();
    nmt_free(r);
}

static void *translate_until_over(void *context) {
    while (!is_over) translate_one(context);
    return NULL;
}

static long fork_meanwhile(content model, long rounds) {
    char problem[ROOM];
    pthread_t threads[THREADS];
    nmt_model *m = nmt_open_memory(model.bytes, model.size, NULL, problem, ROOM);
    if (!m) abort();
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, translate_until_over, m)) exit(2);
    for (long round = 0; round < rounds; round++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            alarm(SECONDS); /* ends one that waits for a thread of its parent */
            translate_one(m);
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child) exit(2);
        if (status) {
            fprintf(stderr, "child %ld: status %d\n", round, status);
            exit(1);
        }
    }
    is_over = true;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    nmt_close(m);
    return THREADS;
}

static long print_lines(content model, content text, const char *kernels) {
    char problem[ROOM];
    nmt_model *m = nmt_open_memory(model.bytes, model.size, kernels, problem, ROOM);
    if (!m) abort();
    nmt_options o = nmt_defaults(m);
    printf("%s\n", nmt_kernels(m));
    for (const char *at = (const char *)text.bytes, *end = at + text.size, *next; at < end; at = next + 1) {
        if (!(next = memchr(at, '\n', (size_t)(end - at)))) next = end;
        size_t length = (size_t)(next - at), size;
        nmt_results *r = nmt_translate(m, &at, &length, 1, &o, problem, ROOM);
        if (!r) abort();
        const char *joined = nmt_lines(r, &size);
        fwrite(joined, 1, size, stdout);
        nmt_free(r);
    }
    nmt_close(m);
    return 0;
}

int main(int count, char **arguments) {
    if (count != 6) return 2;
    content model = read_file(arguments[1]), text = read_file(arguments[2]);
    const char *what = arguments[3];
    long rounds = atol(arguments[4]), result;
    state = 0x9E3779B97F4A7C15u + (uint64_t)atol(arguments[5]);
    choose_lines(text);
    if (!strcmp(what, "damage")) result = open_damaged(model, text, rounds);
    else if (!strcmp(what, "lines")) result = print_lines(model, text, rounds ? NULL : "plain");
    else if (!strcmp(what, "threads")) result = use_from_threads(model, rounds);
    else if (!strcmp(what, "live")) result = use_live(model, text, rounds);
    else if (!strcmp(what, "forks")) result = fork_meanwhile(model, rounds);
    else result = fail_allocations(model, arguments[1], !strcmp(what, "ensemble"));
    printf("%ld\n", result);
    for (int i = 0; i < LINES; i++) free(texts[i]);
    free(model.bytes), free(text.bytes);
    return 0;
}
