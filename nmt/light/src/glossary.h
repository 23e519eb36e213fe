/* Terms that are looked for in lines as whole words, and their translations, as nmt/data/matching.py describes them. */

#ifndef NMT_GLOSSARY_H
#define NMT_GLOSSARY_H

#include "nmt_engine.h"
#include "words.h"

/* A term in a line. */
typedef struct {
    text at, translation;
} found_term;

typedef struct {
    found_term *all;
    size_t count, room;
} found_terms;

/* The lines of `nmt_glossary_open`, for lines that are read as this model reads them. */
nmt_glossary *glossary_open(const subwords *, text lines, char *problem, size_t room);

/* Adds the terms in a text, in order; they do not overlap. False where memory ends. */
bool glossary_find(const nmt_glossary *, text, found_terms *);

#endif
