/* What nmt/light/src/glossary.c finds and how it composes, as numbers. */

#include "glossary.c"

void *open_terms(const subwords *source, const char *lines, size_t size, char *problem, size_t room) {
    return glossary_open(source, (text){lines, lines + size}, problem, room);
}

/* Begin, end and translation, which is a number, of each term; how many there are. */
int64_t find_terms(const nmt_glossary *g, const char *line, size_t size, int64_t *to) {
    found_terms found = {0};
    const bool fine = glossary_find(g, (text){line, line + size}, &found);
    for (size_t i = 0; i < found.count; i++) {
        to[3 * i] = found.all[i].at.begin - line, to[3 * i + 1] = found.all[i].at.end - line;
        to[3 * i + 2] = 0;
        for (text t = found.all[i].translation; t.begin < t.end; t.begin++) to[3 * i + 2] = 10 * to[3 * i + 2] + *t.begin - '0';
    }
    free(found.all);
    return fine ? (int64_t)found.count : -1;
}

/* Characters in normalisation form C. */
size_t composed_points(const nmt_glossary *g, const uint32_t *from, size_t count, uint32_t *to) {
    points found = {0};
    const bool fine = normalize(&g->forms, from, count, &found);
    for (size_t i = 0; fine && i < found.count; i++) to[i] = found.all[i];
    free(found.all);
    return fine ? found.count : 0;
}
