/* Text to subword ids and back, as SentencePiece does it, for the BPE and unigram models that nmt-train makes. */

#ifndef NMT_SUBWORDS_H
#define NMT_SUBWORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct subwords subwords;

/* A model from the bytes of a SentencePiece model file, which must outlive it. Null where they are not one or ask for
   what is not known here; then `*problem` is one line that says what, which need not be freed. Threads may share a
   model. */
subwords *subwords_open(const void *bytes, size_t size, const char **problem);
void subwords_close(subwords *);

/* Entries of the vocabulary. */
int32_t subwords_size(const subwords *);

/* Ids of a text of `size` bytes, any bytes: SentencePiece's own result for the same text. Writes them to `*ids`, which
   has room for `*room` of them and is grown by realloc (null and 0 at first will do), and returns how many there are;
   -1 where memory ends or the text has more than 2^28 bytes before or after normalisation. No end symbol is added. */
int64_t subwords_encode(const subwords *, const char *text, size_t size, int32_t **ids, size_t *room);

/* What a word leaves to the next one. Begins as zeros. */
typedef struct {
    float score;        /* of a unigram model, as sums are rounded alike then */
    bool after_unknown; /* several unknown parts are one */
} word_state;

/* Whether words can be split one by one: the ids of a text are then those of its words, which white space separates; with case marks
   of its parts that end with a word in small letters. `inside`: the word is not the first. */
bool subwords_by_words(const subwords *);
int64_t subwords_encode_word(const subwords *, const char *text, size_t size, bool inside, word_state *, int32_t **ids, size_t *room);

/* A text as it is read, normalised, without the spaces at its ends; grown and returned as ids are. */
int64_t subwords_read(const subwords *, const char *text, size_t size, char **to, size_t *room);

/* A text as the pieces spell it that are no case marks: with a model that has some in small letters. As
   `subwords_decode`. */
int64_t subwords_spelled(const subwords *, const char *text, size_t size, char **to, size_t *room);

/* Where in a text a token is, in bytes. */
typedef struct {
    uint32_t begin, end;
} token_span;

/* The same with the place of each id, in room that is grown alike: `offset_mapping` of SentencePiece. */
int64_t subwords_encode_spans(const subwords *, const char *text, size_t size, int32_t **ids, size_t *room,
                              token_span **spans, size_t *span_room);

/* The text of ids; ids outside of the vocabulary are as the unknown one. Writes it to `*text`, which has room for
   `*room` bytes and is grown alike, without a 0 at its end, and returns how many bytes it has; -1 where memory ends. */
int64_t subwords_decode(const subwords *, const int32_t *ids, int64_t count, char **text, size_t *room);

/* The same with where in the text each id ends, where the next one begins. */
int64_t subwords_decode_ends(const subwords *, const int32_t *ids, int64_t count, char **text, size_t *room, size_t *ends);

/* What a token adds to a text, where others stand before it: of a byte that byte, of a line end a space. Written as by
   `subwords_decode`. */
int64_t subwords_added(const subwords *, int32_t id, char **text, size_t *room);

/* Whether a token is a case mark; whether it stands for one byte. */
bool subwords_is_mark(const subwords *, int32_t id);
bool subwords_is_byte(const subwords *, int32_t id);

/* The piece with an id, as `id_to_piece` has it; not ended by a 0. Null outside of the vocabulary. */
const char *subwords_piece(const subwords *, int32_t id, size_t *size);

/* The same without the space that it begins with; its size is 0 where no text is split into it. */
const char *subwords_word(const subwords *, int32_t id, size_t *size);

#endif
