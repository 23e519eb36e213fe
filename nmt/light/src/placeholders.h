/* Where placeholders of a text are: fields such as `{name}` and `%s`, markup, entities and addresses. */

#ifndef NMT_PLACEHOLDERS_H
#define NMT_PLACEHOLDERS_H

#include "words.h"

/* How what is kept stands in its sentence: as a word, which the model reads as a symbol; as ordinary words; or as a mark
   before the word that follows or after the word before, which the model does not read. */
typedef enum { KEPT_WORD, KEPT_TERM, KEPT_OPENING, KEPT_CLOSING } kept_kind;

typedef struct {
    text at;
    kept_kind kind;
    bool stands_alone; /* a mark between words, such as a line break */
    bool is_code;      /* the tag is that of a template: `{% if %}` and `{% endif %}` */
    text tag;          /* the name of a tag that is one of a pair; empty for what is none */
} placeholder;

enum { SCANNED_MARKS = 8 };

/* A text that is read for placeholders; zero at first, except the `whole` text. What has been read once is not read again:
   time is linear in the size of the text. */
typedef struct {
    text whole;
    const char *at;                   /* up to where it has been read */
    const char *next[SCANNED_MARKS]; /* where each closing mark is next */
    uint8_t *failed;                  /* a bit for each byte from where no end of a tag has been found */
    const char **read;                /* the places that the tag at hand has been read from */
    size_t read_count, read_room;
    text *ends; /* the last end tag of each name, by its hash */
    size_t end_slots;
    bool out_of_memory;
    bool has_ahead;
    placeholder ahead; /* found, but not yet told */
} scanner;

/* The next placeholder; those that stand for words and touch each other are one. False where there is none, and where
   memory ends. */
bool scan_next(scanner *, placeholder *);
void scan_end(scanner *);

/* Writes a text so that it contains no placeholder and no beginning of one, whatever follows after a space, to *to, which is
   grown; returns its size, -1 where memory ends. */
int64_t without_placeholders(text, char **to, size_t *room);

/* Whether some texts together have each placeholder as often as others have. Placeholders that touch each other count one by
   one. -1 where memory ends. */
int same_placeholders(const text *some, size_t count, const text *others, size_t other_count);

/* Whether two tags have one name: of markup in any case. */
bool same_tag(const placeholder *, const placeholder *);

#endif
