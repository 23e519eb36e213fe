/* Shortlists: a sentence's own words, and a table of them alone, in which they stand as docs/engine_format.md says of
   matrices. */

#include "chosen.h"

#include <stdlib.h>
#include <string.h>

enum { GROUP = 4 }; /* bytes of neighbouring inputs, whatever the type */

void chosen_clear(chosen_words *w) {
    for (int m = 0; w->values && m < w->models; m++) free(w->values[m]);
    free(w->values);
    free(w->rooms);
    free(w->tables);
    free(w->marks);
    free(w->ids);
    *w = (chosen_words){0};
}

static bool open_words(chosen_words *w, const model *const *models, int count) {
    if (w->marks) return true;
    w->models = count;
    w->marks = calloc(models[0]->set.target_size, 1);
    w->tables = calloc((size_t)count, sizeof *w->tables);
    w->values = calloc((size_t)count, sizeof *w->values);
    w->rooms = calloc((size_t)count, sizeof *w->rooms);
    return w->marks && w->tables && w->values && w->rooms;
}

static i64 group_size(const tensor *t) { return t->type == MATRIX_INT8 ? 4 : t->type == MATRIX_BF16 ? 2 : 1; }

/* Values, scales and sums of the rows `ids` of a table. */
static bool choose_rows(chosen_words *w, int m, const tensor *from) {
    i64 groups = (from->columns + group_size(from) - 1) / group_size(from);
    size_t rows = ((size_t)w->count + STRIP - 1) / STRIP * STRIP, values = rows * (size_t)groups * GROUP,
           size = values + 8 * rows;
    if (size > w->rooms[m]) {
        free(w->values[m]);
        w->rooms[m] = 0;
        w->values[m] = aligned_alloc(64, size / 64 * 64 + 64);
        if (!w->values[m]) return false;
        w->rooms[m] = size;
    }
    char *to = w->values[m];
    float *scales = (float *)(to + values);
    int32_t *sums = (int32_t *)(scales + rows);
    for (i64 i = 0; i < (i64)rows; i++) { /* what fills up the last strip may be any row */
        i64 id = i < w->count ? w->ids[i] : 0;
        const char *row = (const char *)from->values + (id / STRIP * groups * STRIP + id % STRIP) * GROUP;
        char *own = to + (i / STRIP * groups * STRIP + i % STRIP) * GROUP;
        for (i64 g = 0; g < groups; g++) memcpy(own + g * STRIP * GROUP, row + g * STRIP * GROUP, GROUP);
        if (from->type == MATRIX_INT8) scales[i] = from->scales[id], sums[i] = from->sums[id];
    }
    w->tables[m] = (tensor){from->type, w->count, from->columns, to, scales, sums};
    return true;
}

bool chosen_make(chosen_words *w, const model *const *models, int count, const int32_t *ids, i64 length) {
    const shortlist *list = &models[0]->list;
    if (!open_words(w, models, count)) return false;
    i64 marked = 0;
#define MARK(id) (marked += !w->marks[id], w->marks[id] = 1)
    for (int32_t id = PAD; id <= EOS; id++) MARK(id);
    for (uint32_t i = 0; i < list->always_count; i++) MARK(list->always[i]);
    for (i64 i = 0; i < length; i++)
        for (uint32_t p = list->starts[ids[i]]; p < list->starts[ids[i] + 1]; p++) MARK(list->partners[p]);
    if ((size_t)marked > w->room) {
        free(w->ids);
        w->ids = malloc((size_t)marked * sizeof *w->ids);
        w->room = w->ids ? (size_t)marked : 0;
    }
    w->count = 0;
    for (uint32_t id = 0; id < models[0]->set.target_size; id++) {
        if (w->marks[id] && w->ids) w->ids[w->count++] = (int32_t)id;
        w->marks[id] = 0;
    }
    for (int m = 0; w->ids && m < count; m++)
        if (!choose_rows(w, m, &models[m]->tensors[models[m]->set.table])) return false;
    return w->ids != NULL;
}
