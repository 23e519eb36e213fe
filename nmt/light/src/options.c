/* The options of nmt_engine.h, each once: what it may be, and what it is where a file does not say. Their order is that of
   the names, for whoever sets them by name. */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine.h"

typedef struct {
    const char *name;
    size_t offset;
    bool is_float;
    double least, most, usual;
} row;

#define IS_FLOAT(name) _Generic(((nmt_options *)0)->name, float: true, default: false)
#define ROW(name, least, most, usual) {#name, offsetof(nmt_options, name), IS_FLOAT(name), least, most, usual}

static const row TABLE[] = {
    ROW(beam_size, 1, 1000, 1),
    ROW(beam_of_one, 0, 1, 0),
    ROW(n_best, 1, 1000, 1),
    ROW(max_length_offset, 0, 1000000, 0),
    ROW(length_penalty, 0, 10, 0),
    ROW(threads, 1, 1024, 1),
    ROW(shortlist, 0, 1, 1),
    ROW(scores, 0, 1, 1),
    ROW(attention, 0, 1, 0),
    ROW(split, 0, 2, 0),
    ROW(split_long, 0, INT32_MAX, 0),
    ROW(repeat_penalty, 0.01, 10, 1),
};
enum { COUNT = sizeof TABLE / sizeof *TABLE };

_Static_assert(offsetof(nmt_options, stop) - COUNT * sizeof(int32_t) < sizeof(int32_t *), "each option has a row");

static double value_of(const nmt_options *o, const row *r) {
    const char *at = (const char *)o + r->offset;
    float number;
    int32_t whole;
    memcpy(&number, at, sizeof number);
    memcpy(&whole, at, sizeof whole);
    return r->is_float ? (double)number : whole;
}

static const row *row_of(const char *name) {
    for (int i = 0; i < COUNT; i++)
        if (!strcmp(TABLE[i].name, name)) return &TABLE[i];
    return NULL;
}

static bool is_allowed(const row *r, double value, char *problem, size_t room) {
    bool fits = r->is_float ? (float)value >= (float)r->least && (float)value <= (float)r->most
                            : value >= r->least && value <= r->most && value == floor(value);
    if (fits) return true;
    snprintf(problem, room, "%s must be %.10g to %.10g", r->name, r->least, r->most);
    return false;
}

bool options_allowed(const nmt_options *o, char *problem, size_t room) {
    for (int i = 0; i < COUNT; i++)
        if (!is_allowed(&TABLE[i], value_of(o, &TABLE[i]), problem, room)) return false;
    return true;
}

size_t nmt_options_size(void) { return sizeof(nmt_options); }

const char *nmt_option_name(int32_t i) { return i >= 0 && i < COUNT ? TABLE[i].name : NULL; }

double nmt_option(const nmt_options *o, const char *name) {
    const row *r = row_of(name);
    return r ? value_of(o, r) : NAN;
}

int32_t nmt_set_option(nmt_options *o, const char *name, double value, char *problem, size_t room) {
    const row *r = row_of(name);
    if (!r) {
        int size = snprintf(problem, room, "%.40s: is not an option of the engine. Allowed:", name);
        for (int i = 0; i < COUNT && size > 0 && (size_t)size < room; i++)
            size += snprintf(problem + size, room - (size_t)size, " %s%s", TABLE[i].name, i + 1 < COUNT ? "," : ".");
        return 0;
    }
    if (!is_allowed(r, value, problem, room)) return 0;
    float number = (float)value;
    int32_t whole = r->is_float ? 0 : (int32_t)value;
    memcpy((char *)o + r->offset, r->is_float ? (const void *)&number : (const void *)&whole, sizeof whole);
    return 1;
}

void nmt_set_stop(nmt_options *o, const volatile int32_t *stop) { o->stop = stop; }

bool options_of_model(const model *m, nmt_options *o, char *problem, size_t room) {
    char said[100];
    memset(o, 0, sizeof *o);
    for (int i = 0; i < COUNT; i++) nmt_set_option(o, TABLE[i].name, TABLE[i].usual, said, sizeof said);
    const settings *set = &m->set;
    o->beam_size = (int32_t)set->beam_size, o->max_length_offset = (int32_t)set->length_offset;
    o->length_penalty = set->length_penalty, o->split_long = (int32_t)set->longest;
    for (size_t i = 0; i < m->stored.size; i += sizeof(stored_option)) {
        const stored_option *one = (const stored_option *)((const char *)m->stored.bytes + i);
        if (one->name[sizeof one->name - 1])
            return snprintf(problem, room, "inconsistent: an option whose name does not end"), false;
        if (nmt_set_option(o, one->name, (double)one->value, said, sizeof said)) continue;
        if (row_of(one->name)) return snprintf(problem, room, "inconsistent: %s", said), false;
        snprintf(problem, room, "asks for the option '%s', which this version of the engine does not have", one->name);
        return false;
    }
    return true;
}
