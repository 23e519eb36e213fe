/* The functions of subwords.h: a model opened, checked and closed, and the way of a text to its ids. How text is split
   is in the other files subwords_*.c; all of it gives the results of SentencePiece (Kudo and Richardson, 2018). */

#include "subwords_internal.h"

#include <float.h>
#include <math.h>

/* The byte that a piece like <0x0A> stands for, -1 if it is none. */
static int byte_of(const char *text, size_t size) {
    static const char digits[] = "0123456789ABCDEF";
    if (size != 6 || memcmp(text, "<0x", 3) || text[5] != '>' || !text[3] || !text[4]) return -1;
    const char *high = strchr(digits, text[3]), *low = strchr(digits, text[4]);
    return high && low ? (int)((high - digits) * 16 + (low - digits)) : -1;
}

/* Checks one piece and notes its type and bytes: null, or what is wrong with it. */
static const char *check_piece(subwords *model, int32_t id) {
    piece *p = &model->pieces[id];
    const char *text = model->bytes + p->offset;
    if (!p->size) return "a SentencePiece model with an empty piece";
    if (p->size > LONGEST_PIECE) return "a SentencePiece model with a piece of more than 1000 bytes";
    if (p->size == 1 && !*text && (model->spec.byte_fallback || p->type == UNUSED)) {
        p->type = UNUSED; /* as SentencePiece does for models of others */
    } else if (memchr(text, 0, p->size)) {
        return "a SentencePiece model with a piece that has a byte 0";
    }
    if (p->type == UNKNOWN) {
        if (model->unknown >= 0) return "a SentencePiece model with two unknown pieces";
        model->unknown = id;
    }
    if (p->type == BYTE) {
        int byte = byte_of(text, p->size);
        if (byte < 0 || !model->spec.byte_fallback) return "a SentencePiece model with byte pieces that it cannot have";
        p->byte = (uint8_t)byte;
        model->byte_ids[byte] = id;
    }
    return NULL;
}

static const char *check_pieces(subwords *model) {
    model->unknown = -1;
    for (int byte = 0; byte < 256; byte++) model->byte_ids[byte] = -1;
    for (int32_t id = 0; id < model->spec.count; id++) {
        const char *problem = check_piece(model, id);
        if (problem) return problem;
    }
    if (model->unknown < 0 && !model->spec.byte_fallback) return "a SentencePiece model without an unknown piece";
    for (int byte = 0; byte < 256 && model->spec.byte_fallback; byte++) {
        if (model->byte_ids[byte] < 0) return "a SentencePiece model in which byte pieces are missing";
    }
    return NULL;
}

/* The bits of a score as an integer of the same order; NaN has a place, too. */
static int32_t ordered(int32_t bits) { return bits >= 0 ? bits : ~(bits & 0x7FFFFFFF); }

static void prepare_bpe(subwords *model) {
    for (int32_t id = 0; id < model->spec.count; id++) {
        piece *p = &model->pieces[id];
        const char *text = model->bytes + p->offset;
        p->order = ordered(p->order);
        if (p->type == UNUSED) model->has_unused = true;
        if (p->type == CONTROL || p->type == UNKNOWN || p->type == BYTE) continue;
        for (size_t i = 1; i < p->size; i++) {
            if (begins_word(text + i, p->size - i)) model->whole_lines = true;
        }
    }
    if (model->has_unused) model->whole_lines = true;
}

static const char *prepare_unigram(subwords *model) {
    float least = FLT_MAX;
    for (int32_t id = 0; id < model->spec.count; id++) {
        piece *p = &model->pieces[id];
        if (!isfinite(p->score)) return "a SentencePiece model with a score that is not a number";
        if (p->type == NORMAL && p->score < least) least = p->score;
        /* Of user defined symbols long ones are better than several short ones, and any than what has a probability. */
        if (p->type == USER_DEFINED) p->score = (float)(0.1 * (p->size - 1));
    }
    model->unknown_score = least - 10.0f;
    return NULL;
}

static int open_model(subwords *model, span file, const char **problem) {
    bool is_bpe;
    if (subwords_read_spec(file, &model->spec, problem)) return -1;
    is_bpe = model->spec.model_type == BPE;
    model->pieces = malloc((size_t)model->spec.count * sizeof *model->pieces);
    *problem = "memory ends";
    if (!model->pieces) return -1;
    *problem = "not a SentencePiece model";
    if (subwords_read_pieces(file, model->pieces)) return -1;
    *problem = check_pieces(model);
    if (*problem) return -1;
    if (is_bpe) prepare_bpe(model);
    else *problem = prepare_unigram(model);
    if (*problem || subwords_open_charsmap(model, problem)) return -1;
    unsigned used = 1u << NORMAL | 1u << USER_DEFINED | (is_bpe ? 1u << UNUSED : 0);
    if (subwords_build_trie(&model->known, model, used, problem)) return -1;
    if (subwords_build_trie(&model->symbols, model, 1u << USER_DEFINED, problem)) return -1;
    *problem = "a SentencePiece model without pieces to split text into";
    return model->known.entries ? 0 : -1;
}

subwords *subwords_open(const void *bytes, size_t size, const char **problem) {
    subwords *model = calloc(1, sizeof *model);
    *problem = "memory ends";
    if (!model) return NULL;
    model->bytes = bytes;
    if (open_model(model, (span){bytes, size}, problem)) {
        subwords_close(model);
        return NULL;
    }
    *problem = NULL;
    return model;
}

void subwords_close(subwords *model) {
    if (!model) return;
    free(model->pieces), free(model->known.entries), free(model->symbols.entries);
    free(model);
}

int32_t subwords_size(const subwords *model) { return model->spec.count; }

const char *subwords_piece(const subwords *model, int32_t id, size_t *size) {
    if (id < 0 || id >= model->spec.count) return NULL;
    *size = model->pieces[id].size;
    return model->bytes + model->pieces[id].offset;
}

/* An unknown part becomes its bytes, where the model has them; else several unknown parts in a row are one. */
void subwords_add_id(id_sink *sink, const char *text, uint32_t size, int32_t id) {
    bool is_unknown = id == sink->model->unknown;
    if (is_unknown && sink->model->spec.byte_fallback) {
        for (uint32_t i = 0; i < size; i++) sink->ids[sink->count++] = sink->model->byte_ids[(uint8_t)text[i]];
    } else if (!is_unknown || !sink->after_unknown) {
        sink->ids[sink->count++] = id;
    }
    sink->after_unknown = is_unknown;
}

int64_t subwords_encode(const subwords *model, const char *text, size_t size, int32_t **ids, size_t *room) {
    char *normal = NULL;
    size_t normal_room = 0;
    int64_t count = subwords_normalize(model, text, size, &normal, &normal_room);
    if (count > 0) {
        id_sink sink = {.model = model};
        int result = make_room((void **)ids, room, (size_t)count, sizeof **ids);
        sink.ids = *ids;
        if (!result) {
            result = model->spec.model_type == BPE ? subwords_split_bpe(normal, (uint32_t)count, &sink)
                                                   : subwords_split_unigram(normal, (uint32_t)count, &sink);
        }
        count = result ? -1 : sink.count;
    }
    free(normal);
    return count;
}
