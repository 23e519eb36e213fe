/* What the programs of the tests share: the bytes of a model file, whose checksum they make right again, and the use of
   all that the engine says of its translations. */

#ifndef ENGINE_USE_H
#define ENGINE_USE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nmt_engine.h"

enum { HEADER = 32, ENTRY = 24, ROOM = 300 };

typedef struct {
    unsigned char *bytes;
    size_t size;
} content;

/* At a multiple of 64, and no longer than it must be, so that a byte beyond it is noticed. */
static inline content room_for(size_t size) {
    void *p = NULL;
    if (posix_memalign(&p, 64, size ? size : 1)) exit(2);
    return (content){p, size};
}

static inline content read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) exit(2);
    content c = room_for((size_t)ftell(file));
    rewind(file);
    if (fread(c.bytes, 1, c.size, file) != c.size) exit(2);
    fclose(file);
    return c;
}

static inline uint64_t number_at(const unsigned char *p, int bytes) {
    uint64_t x = 0;
    memcpy(&x, p, (size_t)bytes);
    return x;
}

static inline void set_number(unsigned char *p, uint64_t x, int bytes) { memcpy(p, &x, (size_t)bytes); }

static inline uint32_t checksum(const unsigned char *p, size_t n) {
    static uint32_t table[256];
    uint32_t crc = 0xffffffffu;
    for (uint32_t i = 0; i < 256 && !table[255]; i++) {
        uint32_t x = i;
        for (int k = 0; k < 8; k++) x = x >> 1 ^ (x & 1 ? 0xedb88320u : 0);
        table[i] = x;
    }
    for (; n; n--, p++) crc = crc >> 8 ^ table[(crc ^ *p) & 255];
    return ~crc;
}

/* The size and the checksum that a file should have. */
static inline void repair(content c) {
    if (c.size < HEADER) return;
    set_number(c.bytes + 16, c.size, 8);
    set_number(c.bytes + 24, checksum(c.bytes + HEADER, c.size - HEADER), 4);
}

static float looked_at; /* keeps the compiler from leaving out what is only read */

/* Reads all that is known of `lines` lines. */
static inline void look(const nmt_results *r, size_t lines) {
    size_t all, size, ends = 0;
    float sum = 0.0f;
    const char *joined = nmt_lines(r, &all);
    for (size_t i = 0; i < all; i++) ends += joined[i] == '\n';
    if (ends != lines) abort();
    for (size_t line = 0; line < lines; line++)
        for (size_t i = 0; i < nmt_count(r, line); i++) {
            const char *text = nmt_text(r, line, i, &size);
            if (memchr(text, '\n', size) || memchr(text, '\r', size)) abort();
            sum += nmt_score(r, line, i) + (float)nmt_flags(r, line) + (float)nmt_unknown(r, line);
            const int32_t *pairs = nmt_alignment(r, line, i, &size);
            for (size_t k = 0; pairs && k < 2 * size; k++) sum += (float)pairs[k];
            for (size_t part = 0; part < nmt_parts(r, line); part++) {
                size_t count, length;
                const int32_t *ids = nmt_ids(r, line, i, part, &count);
                const float *told = nmt_attention(r, line, i, part), *log_probs = nmt_log_probs(r, line, i, part);
                nmt_source_ids(r, line, part, &length);
                for (size_t k = 0; k < count; k++)
                    sum += (float)ids[k] + log_probs[k] + (told ? told[k * length + length - 1] : 0.0f);
            }
        }
    looked_at = sum + looked_at;
}

static inline nmt_options small_options(const nmt_model *m, int32_t beam) {
    nmt_options o = nmt_defaults(m);
    o.beam_size = beam, o.n_best = beam > 1 ? 2 : 1, o.max_length_offset = 3, o.split_long = 9, o.attention = 1;
    return o;
}

static const char TERMS[] = "\u4e00\u4e01\t{x} Z\n\u4e02\tb\n\u00e9A\tc\n";

/* Translates greedily and by a beam, which keeps placeholders and terms. Null, or what was said in a line. */
static inline const char *use(nmt_model *m, const char *const *texts, const size_t *sizes, size_t lines,
                              char *problem) {
    for (int32_t beam = 1; beam <= 3; beam += 2) {
        nmt_options o = small_options(m, beam);
        nmt_glossary *g = beam > 1 ? nmt_glossary_open(m, TERMS, sizeof TERMS - 1, problem, ROOM) : NULL;
        if (beam > 1 && !g) return problem;
        o.placeholders = o.capitals = beam > 1, o.glossary = g;
        nmt_results *r = nmt_translate(m, texts, sizes, lines, &o, problem, ROOM);
        nmt_glossary_close(g);
        if (!r) return problem;
        look(r, lines);
        nmt_free(r);
    }
    return NULL;
}

static inline void check_line(const char *problem) {
    if (!*problem || strchr(problem, '\n')) abort();
}

#endif
