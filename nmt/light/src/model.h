/* A model file in memory, checked: what docs/engine_format.md describes. */

#ifndef NMT_MODEL_H
#define NMT_MODEL_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels.h"

#define NONE 0xffffffffu /* a register, tensor or number that an instruction does not have */

enum { PAD, UNK, EOS };
enum { SOURCE, ONE, STEP };

enum {
    EMBED = 1, LINEAR, NORM, RMS_NORM, ADD, ADD_VECTOR, COPY, TANH_OF, SWIGLU, ROW, LOOP, ROTATE, POWERS,
    ATTEND_ADDITIVE, ATTEND_DOT, ATTEND_SELF, ATTEND_CACHE, POSITIONS, ATTEND_EARLIER,
    LRN = 20, OLRN, SRU, SSRU, MIN_GRU, MIN_LSTM, ATR, RNN, GRU_RESET, GRU, LSTM
};

typedef struct {
    uint32_t number, column;
} place;

/* As they lie in the file. */
typedef struct {
    uint32_t op;
    place out, a, b, c;
    uint32_t t[4], n;
    int32_t p;
    float f;
} instruction;

typedef struct {
    uint32_t space, width;
} register_kind;

typedef struct {
    uint32_t read, written, first;
} state_kind;

typedef struct {
    const instruction *code;
    i64 count;
} program;

typedef struct {
    uint32_t source_size, target_size, table, features, attentions, caches, beam_size;
    float length_penalty;
    uint32_t length_offset, longest;
    uint32_t bias;     /* of the logits: a tensor's number and 1, or 0 */
    uint32_t multiple; /* of the number of a sentence's words with a shortlist, less 1 */
    uint8_t unused[16];
} settings;

/* An option by its name, with zeros behind it. */
typedef struct {
    char name[28];
    float value;
} stored_option;

typedef struct {
    const void *bytes;
    size_t size;
} span;

/* Tokens of a shortlist. */
typedef struct {
    const uint32_t *always, *partners;
    const uint32_t *starts; /* one more than there are source entries; null without a list */
    uint32_t always_count;
} shortlist;

typedef struct {
    size_t size; /* bytes of the file */
    settings set;
    tensor *tensors;
    const register_kind *registers;
    const state_kind *states;
    i64 tensor_count, register_count, state_count;
    program encode, step;
    bool *kept;               /* by register: of SOURCE and read by `step` */
    uint32_t *cache_widths;   /* by cache */
    uint32_t rotated;         /* width of the heads of ROTATE; 0 without one */
    uint32_t placed, slowest; /* width and p of POSITIONS; 0 without one */
    shortlist list;
    span source_pieces, target_pieces, meta;
    span stored;              /* options by their names */
} model;

enum { MODEL_HEADER = 32 };

/* Whether that may be the beginning of a model file of `size` bytes: its first MODEL_HEADER, or all if it has fewer. */
bool model_begins(const void *bytes, size_t size, char *problem, size_t room);

/* The model in `size` bytes at a multiple of 64, which must outlive it and stay as they are. Null with a line in `problem` where they are
   not one. */
model *model_open(const void *bytes, size_t size, char *problem, size_t room);
void model_close(model *);

#endif
