/* Text in small letters with marks where a word is not written as it usually is, and back, as nmt/case_marks/marks.py
   describes it. */

#ifndef NMT_CASE_H
#define NMT_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "split.h"
#include "words.h"

/* The small letter of a capital and the other way, where each leads to the other; else the character itself. */
uint32_t lower_of(uint32_t);
uint32_t upper_of(uint32_t);

typedef struct case_marks case_marks;

/* Bytes of a piece that stands in a text as it is, with which one begins; 0 for none. */
typedef size_t (*symbol_size_of)(const void *model, const char *text, size_t size);

/* From a table of a model file, which must outlive it; `model` is passed to `symbol`. Null where memory ends or the table
   is of a kind that is not known; *problem says which. */
case_marks *case_open(const char *table, size_t size, symbol_size_of symbol, const void *model, const char **problem);
void case_close(case_marks *);

/* Of each byte of a text with marks, and of its end, the byte of the text that it stands for; grown. */
typedef struct {
    uint32_t *all;
    size_t room;
} case_origins;

/* A text in UTF-8 with marks. `inside`: it does not begin its line. Writes to `*to`, which has room for `*room` bytes and
   is grown, and returns how many it has; -1 where memory ends, as below. The origins may be null, as may the places below. */
int64_t case_mark(const case_marks *, const char *text, size_t size, bool inside, char **to, size_t *room, case_origins *);

/* The text that one with marks stands for, and where in it each of the `size` bytes, and their end, stands. */
int64_t case_unmark(const case_marks *, const char *text, size_t size, char **to, size_t *room, size_t *places);

/* Whether a text is one mark and nothing else, or begins with one. */
bool case_is_mark(const char *text, size_t size);
bool case_begins_with_mark(const char *text, size_t size);

/* Bytes of a text that are another one, in whatever letters; 0 if it begins otherwise. */
size_t begins_alike(text of, text start);

/* A text in small letters. */
int64_t case_lower(const char *text, size_t size, char **to, size_t *room);

/* A text in capitals, as nmt/case_marks/lines.py describes it, and back: whether two words have capitals, and none a small
   letter; small letters of as many bytes, except the first letter of each sentence and the English I; capitals. */
bool case_in_capitals(const char *text, size_t size);
void case_lower_line(const char *text, size_t size, const split_rules *, bool is_english, char *to);
int64_t case_upper(const char *text, size_t size, char **to, size_t *room);

#endif
