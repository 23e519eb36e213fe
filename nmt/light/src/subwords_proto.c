/* The message ModelProto of a SentencePiece model file, read from its wire format (protobuf) without copying text.

   Field numbers are those of sentencepiece_model.proto. As protobuf has it, unknown fields are passed over, the last
   value of a field counts, and a message that comes twice is one. */

#include "subwords_internal.h"

typedef struct {
    uint32_t number, type;
    uint64_t value; /* of varints and fixed numbers */
    span bytes;     /* of strings and messages */
} field;

enum { VARINT, FIXED64, BYTES, FIXED32 = 5 };

static int read_varint(span *rest, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 70 && rest->size; shift += 7) {
        uint8_t byte = (uint8_t)*rest->bytes++;
        rest->size--;
        if (shift < 64) *value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return 0;
    }
    return -1;
}

/* The next field of a message: 1, 0 at its end, -1 if it is damaged. A group, which nothing uses, counts as damage. */
static int next_field(span *rest, field *found) {
    uint64_t tag;
    if (!rest->size) return 0;
    if (read_varint(rest, &tag) || tag >> 32 || tag < 8) return -1;
    found->number = (uint32_t)tag >> 3, found->type = (uint32_t)tag & 7;
    if (found->type == VARINT) return read_varint(rest, &found->value) ? -1 : 1;
    uint64_t size = found->type == FIXED64 ? 8 : 4;
    if (found->type == BYTES) {
        if (read_varint(rest, &size)) return -1;
    } else if (found->type != FIXED64 && found->type != FIXED32) {
        return -1;
    }
    if (size > rest->size) return -1;
    found->bytes = (span){rest->bytes, (size_t)size};
    if (found->type == FIXED32) found->value = little_u32(rest->bytes);
    rest->bytes += size, rest->size -= (size_t)size;
    return 1;
}

static int read_trainer(span rest, model_spec *spec) {
    field f;
    int more;
    while ((more = next_field(&rest, &f)) > 0) {
        int32_t value = (int32_t)(uint32_t)f.value;
        if (f.type == VARINT && f.number == 3 && value >= 1 && value <= 4) spec->model_type = value;
        if (f.type == VARINT && f.number == 24) spec->space_is_suffix = f.value;
        if (f.type == VARINT && f.number == 35) spec->byte_fallback = f.value;
        if (f.type == BYTES && f.number == 44) spec->unknown_text = f.bytes;
    }
    return more;
}

static int read_normalizer(span rest, model_spec *spec) {
    field f;
    int more;
    while ((more = next_field(&rest, &f)) > 0) {
        if (f.type == BYTES && f.number == 2) spec->charsmap = f.bytes;
        if (f.type == VARINT && f.number == 3) spec->dummy_space = f.value;
        if (f.type == VARINT && f.number == 4) spec->remove_extra_spaces = f.value;
        if (f.type == VARINT && f.number == 5) spec->escape_spaces = f.value;
    }
    return more;
}

static int read_piece(span rest, const char *file, piece *to) {
    field f;
    int more;
    *to = (piece){.type = NORMAL};
    while ((more = next_field(&rest, &f)) > 0) {
        if (f.type == BYTES && f.number == 1) {
            if (f.bytes.size >= 8000) return -1; /* SentencePiece's limit */
            to->offset = (uint32_t)(f.bytes.bytes - file), to->size = (uint16_t)f.bytes.size;
        }
        if (f.type == FIXED32 && f.number == 2) to->order = (int32_t)(uint32_t)f.value;
        if (f.type == VARINT && f.number == 3) {
            int32_t type = (int32_t)(uint32_t)f.value;
            if (type >= NORMAL && type <= BYTE) to->type = (uint8_t)type;
        }
    }
    return more;
}

int subwords_read_spec(span file, model_spec *spec, const char **problem) {
    model_spec denormalizer = {0};
    span rest = file;
    field f;
    int more = 0, result = 0;
    *spec = (model_spec){.model_type = UNIGRAM, .dummy_space = true, .remove_extra_spaces = true, .escape_spaces = true,
                         .unknown_text = {" \xe2\x81\x87 ", 5}};
    *problem = "not a SentencePiece model";
    if (!file.size || file.size > UINT32_MAX) return -1;
    while (result == 0 && (more = next_field(&rest, &f)) > 0) {
        if (f.type != BYTES) continue;
        if (f.number == 1 && ++spec->count == INT32_MAX) return -1;
        if (f.number == 2) result = read_trainer(f.bytes, spec);
        if (f.number == 3) result = read_normalizer(f.bytes, spec);
        if (f.number == 5) result = read_normalizer(f.bytes, &denormalizer);
    }
    if (more || result || !spec->count) return -1;
    *problem = "a SentencePiece model of type word or char, but only bpe and unigram are supported";
    if (spec->model_type != UNIGRAM && spec->model_type != BPE) return -1;
    *problem = "a SentencePiece model with rules of denormalization, which are not known here";
    return denormalizer.charsmap.size ? -1 : 0;
}

int subwords_read_pieces(span file, piece *pieces) {
    span rest = file;
    field f;
    int more;
    while ((more = next_field(&rest, &f)) > 0) {
        if (f.type == BYTES && f.number == 1 && read_piece(f.bytes, file.bytes, pieces++)) return -1;
    }
    return more;
}
