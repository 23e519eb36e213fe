/* libFuzzer: any bytes as a SentencePiece model file; what opens splits text that is made of its own pieces, and joins
   ids. Mutations change one field of the message and put it together again, so that most inputs get beyond the
   framing. */

#include <string.h>

#include "fuzz_counts.h"
#include "subwords.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

enum { TEXT = 6000, FIELDS = 4096 };

/* Bytes of any kind, then pieces once and one piece again and again: what is long and alike is slowest to split. */
static size_t make_text(const subwords *m, char text[TEXT]) {
    static const char ODD[] = " a　 ﬁ ﷺ ▁▁ \xff\xc3 🎉 e\xcc\x81\t<0x41> ";
    size_t at = sizeof ODD, size;
    const char *bytes;
    memcpy(text, ODD, sizeof ODD); /* with its 0 */
    for (int32_t id = 0; (bytes = subwords_piece(m, id, &size)) && at + size < TEXT / 2; id++)
        memcpy(text + at, bytes, size), at += size;
    int32_t last = subwords_size(m) - 1;
    for (; last > 0 && (bytes = subwords_piece(m, last, &size)) && size > TEXT / 8; last--) {}
    bytes = subwords_piece(m, last, &size);
    while (at + size < TEXT) memcpy(text + at, bytes, size), at += size;
    return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *problem = NULL;
    char text[TEXT], *exact = malloc(size ? size : 1), *own, *back = NULL;
    int32_t *ids = NULL, odd[] = {-1, INT32_MIN, INT32_MAX, 0, 1, 2, 3, 4, 5, 6, 7};
    size_t room = 0, back_room = 0;
    if (size) memcpy(exact, data, size);
    subwords *m = subwords_open(exact, size, &problem);
    if (!m) {
        if (!problem || !*problem || strchr(problem, '\n')) abort();
        free(exact);
        return 0;
    }
    count_taken();
    size_t length = make_text(m, text);
    own = malloc(length); /* exactly: a byte beyond it is noticed */
    memcpy(own, text, length);
    int64_t count = subwords_encode(m, own, length, &ids, &room);
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < -1 || ids[i] >= subwords_size(m)) abort(); /* -1: the unknown piece of a model without one */
    if (count >= 0) subwords_decode(m, ids, count, &back, &back_room);
    subwords_decode(m, odd, sizeof odd / sizeof *odd, &back, &back_room);
    free(own), free(ids), free(back);
    subwords_close(m);
    free(exact);
    return 0;
}

/* --- mutation --- */

typedef struct {
    size_t begin, payload, end; /* of a field of bytes with a tag of one byte */
} field;

static size_t varint_at(const uint8_t *data, size_t size, size_t *at) {
    size_t value = 0;
    for (int shift = 0; *at < size && shift < 28; shift += 7) {
        uint8_t byte = data[(*at)++];
        value |= (size_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
    return SIZE_MAX;
}

/* The fields of a message; 0 where it is damaged. */
static size_t fields_of(const uint8_t *data, size_t size, field *fields) {
    size_t count = 0;
    for (size_t at = 0; at < size && count < FIELDS; count++) {
        size_t begin = at++, length = data[begin] & 7, bytes;
        if (data[begin] >= 0x80 || length != 2 || (bytes = varint_at(data, size, &at)) > size - at) return 0;
        fields[count] = (field){begin, at, at + bytes};
        at += bytes;
    }
    return count;
}

static size_t write_varint(uint8_t *to, size_t value) {
    size_t at = 0;
    for (; value >= 0x80; value >>= 7) to[at++] = (uint8_t)(value | 0x80);
    to[at++] = (uint8_t)value;
    return at;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    static field fields[FIELDS];
    uint64_t state = 0x9E3779B97F4A7C15u + seed;
    drawn_from(&state, 2);
    size_t count = drawn_from(&state, 20) ? fields_of(data, size, fields) : 0, spare = most > size ? most - size : 0;
    if (!count || spare < 8) return LLVMFuzzerMutate(data, size, most);
    /* Half of the time one of the last fields, the settings. */
    size_t near = count < 3 ? count : 3;
    field f = fields[drawn_from(&state, 2) ? count - 1 - drawn_from(&state, near) : drawn_from(&state, count)];
    size_t kind = drawn_from(&state, 6), length = f.end - f.begin, behind = size - f.end;
    if (kind == 0) { /* without it */
        memmove(data + f.begin, data + f.end, behind);
        return size - length;
    }
    if (kind == 1 && spare >= length) { /* twice */
        memmove(data + f.end + length, data + f.end, behind);
        memcpy(data + f.end, data + f.begin, length);
        return size + length;
    }
    size_t payload = f.end - f.payload, room = payload + (spare - 8 < 4096 ? spare - 8 : 4096);
    uint8_t *changed = malloc(room + 1), head[8];
    memcpy(changed, data + f.payload, payload);
    size_t made = LLVMFuzzerMutate(changed, payload, room);
    size_t named = write_varint(head, made);
    memmove(data + f.begin + 1 + named + made, data + f.end, behind);
    memcpy(data + f.begin + 1, head, named);
    memcpy(data + f.begin + 1 + named, changed, made);
    free(changed);
    return f.begin + 1 + named + made + behind;
}
