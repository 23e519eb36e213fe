/* libFuzzer: any bytes as text, for valid models. The first byte chooses a model of NMT_FUZZ_MODELS (paths with colons
   between them), the second what is done: split and joined again, once or many times over, or translated; as a whole or
   in parts, with placeholders and terms or without. */

#define _POSIX_C_SOURCE 200809L

#include "engine_use.h"
#include "fuzz_counts.h"
#include "subwords.h"

int LLVMFuzzerInitialize(int *count, char ***arguments);

enum { MODELS = 8, LONGEST = 1 << 11, TRANSLATED = 60, PATH = 4096 };

static nmt_model *models[MODELS];
static subwords *pieces[MODELS];
static nmt_glossary *glossaries[MODELS];
static size_t model_count;

static subwords *pieces_of(content file) {
    const char *problem;
    for (uint64_t i = 0; i < number_at(file.bytes + 12, 4); i++) {
        const unsigned char *entry = file.bytes + HEADER + i * ENTRY;
        if (!memcmp(entry, "SPMS", 4))
            return subwords_open(file.bytes + number_at(entry + 8, 8), (size_t)number_at(entry + 16, 8), &problem);
    }
    return NULL;
}

int LLVMFuzzerInitialize(int *count, char ***arguments) {
    (void)count, (void)arguments;
    char problem[ROOM];
    for (const char *at = getenv("NMT_FUZZ_MODELS"); at && *at && model_count < MODELS; model_count++) {
        char path[PATH];
        size_t size = strcspn(at, ":");
        if (size >= PATH) abort();
        memcpy(path, at, size), path[size] = 0;
        content file = read_file(path); /* stays to the end */
        models[model_count] = nmt_open_memory(file.bytes, file.size, "plain", problem, ROOM);
        pieces[model_count] = pieces_of(file);
        if (!models[model_count] || !pieces[model_count]) abort();
        glossaries[model_count] = nmt_glossary_open(models[model_count], TERMS, sizeof TERMS - 1, problem, ROOM);
        at += size + (at[size] == ':');
    }
    if (!model_count) abort();
    return 0;
}

static void check_ids(const subwords *p, const int32_t *ids, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= subwords_size(p)) abort();
}

/* Split as a whole and joined, and in parts. */
static void split(nmt_model *m, const subwords *p, const char *text, size_t size, int longest) {
    int32_t *ids = NULL;
    char *back = NULL, problem[ROOM] = "";
    size_t room = 0, back_room = 0;
    int64_t count = subwords_encode(p, text, size, &ids, &room);
    if (count < 0) abort();
    check_ids(p, ids, (size_t)count);
    if (subwords_decode(p, ids, count, &back, &back_room) < 0) abort();
    if (nmt_split(text, size, longest & 1 ? "de" : "zh", NULL, NULL, 0) > size) abort();
    nmt_options o = nmt_defaults(m);
    o.split = longest & 2 ? 1 : 2, o.split_long = longest;
    nmt_results *parts = nmt_cut(m, &text, &size, 1, &o, problem, ROOM);
    if (!parts || nmt_sentences(parts, 0) > nmt_parts(parts, 0)) abort();
    for (size_t i = 0; i < nmt_parts(parts, 0); i++) {
        size_t length;
        check_ids(p, nmt_source_ids(parts, 0, i, &length), length);
        if (length < 2 || (longest && length > (size_t)longest + 1)) abort();
    }
    nmt_free(parts);
    free(ids), free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    size_t which = data[0] % model_count, times = 1, options = data[1];
    char problem[ROOM] = "";
    data += 2, size -= 2;
    count_taken();
    if (options & 1 || size > TRANSLATED) {
        if (options & 2 && size) times = LONGEST / size + 1;
        char *text = malloc(size * times + 1); /* no byte behind it can be missed, as none is needed there */
        for (size_t i = 0; i < times; i++)
            if (size) memcpy(text + i * size, data, size);
        split(models[which], pieces[which], text, size * times, (int)(options >> 2));
        free(text);
    } else {
        const char *text = (const char *)data;
        nmt_options o = small_options(models[which], options & 2 ? 3 : 1);
        o.split_long = (int32_t)(options >> 3), o.threads = 1;
        if (options & 4) o.placeholders = o.capitals = 1, o.glossary = glossaries[which];
        nmt_results *r = nmt_translate(models[which], &text, &size, 1, &o, problem, ROOM);
        if (!r) abort();
        look(r, 1);
        nmt_free(r);
    }
    return 0;
}
