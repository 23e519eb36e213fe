/* libFuzzer: any bytes as the text of a live session, for valid models. The first byte chooses a model of NMT_FUZZ_MODELS
   (paths with colons between them) and a policy, the second in what pieces the text comes: what is written must be the
   same as of the whole text at once, and what may follow it must be readable. */

#define _POSIX_C_SOURCE 200809L

#include <stdbool.h>

#include "engine_use.h"
#include "fuzz_counts.h"

int LLVMFuzzerInitialize(int *count, char ***arguments);

enum { MODELS = 8, PATH = 4096, LONGEST = 200 };

static const char *const policies[] = {"wait_k", "wait_k,wait=1", "wait_k,wait=9", "local_agreement", "alignatt,unread=1"};
enum { POLICIES = sizeof policies / sizeof *policies };

static nmt_model *models[MODELS];
static size_t model_count;

int LLVMFuzzerInitialize(int *count, char ***arguments) {
    (void)count, (void)arguments;
    char problem[ROOM] = "";
    for (const char *at = getenv("NMT_FUZZ_MODELS"); at && *at && model_count < MODELS; model_count++) {
        char path[PATH];
        size_t size = strcspn(at, ":");
        if (size >= PATH) abort();
        memcpy(path, at, size), path[size] = 0;
        content file = read_file(path); /* stays to the end */
        models[model_count] = nmt_open_memory(file.bytes, file.size, "plain", problem, ROOM);
        if (!models[model_count]) abort();
        at += size + (at[size] == ':');
    }
    if (!model_count) abort();
    return 0;
}

/* Appends what a call has returned. */
static void append(content *to, const char *text, size_t size, const char *problem) {
    if (!text) fprintf(stderr, "%s\n", problem), abort();
    unsigned char *bytes = realloc(to->bytes, to->size + size + 1);
    if (!bytes) exit(2);
    memcpy(bytes + to->size, text, size);
    *to = (content){bytes, to->size + size};
}

/* All that a session writes of a text in pieces of so many bytes. */
static content written(nmt_model *m, const char *policy, const uint8_t *text, size_t size, size_t piece, bool is_tried) {
    char problem[ROOM] = "";
    content all = {NULL, 0};
    size_t found, begin = 0;
    nmt_options o = nmt_defaults(m);
    o.beam_size = 2;
    nmt_session *s = nmt_live_open(m, policy, is_tried ? &o : NULL, problem, ROOM);
    if (!s) fprintf(stderr, "%s\n", problem), abort();
    for (size_t end; begin < size; begin = end) {
        end = size - begin > piece ? begin + piece : size;
        char *own = malloc(end - begin); /* no byte behind it is read */
        if (!own) exit(2);
        memcpy(own, text + begin, end - begin);
        append(&all, nmt_live_feed(s, own, end - begin, &found, problem, ROOM), found, problem);
        free(own);
        const char *tail = nmt_live_tail(s, &found);
        for (size_t i = 0; i < found; i++)
            if (tail[i] == '\n') abort();
        if (nmt_live_words(s) > size) abort();
    }
    append(&all, nmt_live_end(s, &found, problem, ROOM), found, problem);
    if (nmt_live_feed(s, "x", 1, &found, problem, ROOM)) abort();
    nmt_live_close(s);
    return all;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2 || size > LONGEST) return 0;
    nmt_model *m = models[data[0] % model_count];
    const char *policy = policies[data[0] / model_count % POLICIES];
    const bool is_tried = data[1] & 1;
    const size_t piece = 1 + data[1] / 2 % 16;
    data += 2, size -= 2;
    count_taken();
    content whole = written(m, policy, data, size, size + 1, is_tried), parts = written(m, policy, data, size, piece, is_tried);
    if (whole.size != parts.size || (whole.size && memcmp(whole.bytes, parts.bytes, whole.size))) abort();
    if (whole.size && memchr(whole.bytes, '\n', whole.size)) abort();
    free(whole.bytes), free(parts.bytes);
    return 0;
}
