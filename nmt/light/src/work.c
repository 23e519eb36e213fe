/* Sentences shared among threads, each of which has a searcher of its own. */

#include <stdlib.h>
#include <string.h>

#include "engine.h"

static void give_searcher(nmt_model *m, searcher *s) {
    for (int i = 0; i < IDLE; i++) {
        searcher *none = NULL;
        if (atomic_compare_exchange_strong(&m->idle[i], &none, s)) return;
    }
    searcher_close(s);
}

/* A searcher with so many rows: one that is idle, or a new one. */
static searcher *take_searcher(nmt_model *m, i64 rows) {
    for (int i = 0; i < IDLE; i++) {
        searcher *found = atomic_load(&m->idle[i]) ? atomic_exchange(&m->idle[i], NULL) : NULL;
        if (found && searcher_rows(found) == rows) return found;
        if (found) give_searcher(m, found);
    }
    return searcher_open((const model *const *)m->models, m->count, m->k, rows);
}

/* Sentences that threads take from, the longest first. */
typedef struct {
    nmt_model *m;
    const nmt_options *set;
    sentence *sentences;
    size_t *order;
    i64 count, rows;
    _Atomic(i64) next;
    found_list *found;
    atomic_bool failed;
} work;

static i64 next_of(void *context) {
    work *w = context;
    i64 place = w->failed ? w->count : w->next++;
    return place < w->count ? (i64)w->order[place] : -1;
}

static void do_work(void *context) {
    work *w = context;
    searcher *s = take_searcher(w->m, w->rows);
    bool fine = s && searcher_run(s, w->set, w->sentences, next_of, w, w->found);
    if (fine) {
        give_searcher(w->m, s);
        return;
    }
    searcher_close(s);
    w->failed = true;
}

/* Numbers by falling length, of equal ones in order: a merge sort of `order` with as much room behind it. */
static void sort_by_length(size_t *order, size_t count, const sentence *sentences) {
    size_t *from = order, *to = order + count;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t start = 0; start < count; start += 2 * width) {
            size_t middle = start + width < count ? start + width : count,
                   end = start + 2 * width < count ? start + 2 * width : count;
            size_t a = start, b = middle, at = start;
            while (a < middle || b < end) {
                bool first = b >= end || (a < middle && sentences[from[a]].length >= sentences[from[b]].length);
                to[at++] = first ? from[a++] : from[b++];
            }
        }
        size_t *last = from;
        from = to, to = last;
    }
    if (from != order) memcpy(order, from, count * sizeof *order);
}

bool search_all(nmt_model *m, nmt_results *r, const nmt_options *o) {
    work w = {.m = m, .set = o, .count = (i64)r->all.parts, .found = r->found};
    w.rows = o->beam_size > ROWS ? o->beam_size : w.count == 1 ? o->beam_size : ROWS;
    w.sentences = calloc(r->all.parts + 1, sizeof *w.sentences);
    w.order = calloc(2 * r->all.parts + 1, sizeof *w.order);
    bool fine = w.sentences && w.order;
    for (size_t i = 0, start = 0; fine && i < r->all.parts; start = r->all.ends[i++]) {
        w.sentences[i] = (sentence){r->all.ids + start, (i64)(r->all.ends[i] - start)};
        w.order[i] = i;
    }
    if (fine) {
        sort_by_length(w.order, r->all.parts, w.sentences);
        run_threads(o->threads < w.count ? o->threads : (int)w.count, do_work, &w);
    }
    fine = fine && !w.failed;
    free(w.sentences);
    free(w.order);
    return fine;
}
