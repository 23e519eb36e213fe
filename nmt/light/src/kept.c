/* See kept.h. A text is split into units, which are words and marks; each stretch that is kept is one unit. */

#include "kept.h"

#include "case.h"
#include "split.h"
#include "system.h"

enum { FIRST_PRIVATE = 0xe000, PRIVATE = 0xf8ff - 0xe000 }; /* characters without a meaning */
#define NO_LETTER UINT32_MAX /* before and after a text */
static const size_t NONE = SIZE_MAX;
static const char SPACES[] = " ";
static const text SPACE = {SPACES, SPACES + 1};

static size_t size_of(text t) { return (size_t)(t.end - t.begin); }
static size_t least(size_t a, size_t b) { return a < b ? a : b; }
static size_t most(size_t a, size_t b) { return a > b ? a : b; }

bool has_letters(text t) {
    int bytes;
    for (; t.begin < t.end; t.begin += bytes)
        if (is_alphanumeric(character_at(t.begin, t.end, &bytes))) return true;
    return false;
}

/* --- what the model reads --- */

void kept_clear(kept_line *k) {
    free(k->bytes);
    free(k->origins);
    free(k->items);
}

static bool append(kept_line *k, const char *from, size_t size, const char *origin, bool moves) {
    if (!grown(&k->bytes, 1, &k->room, k->size + size + 1) ||
        !grown(&k->origins, sizeof *k->origins, &k->origin_room, k->size + size + 1))
        return false;
    for (size_t i = 0; i < size; i++) {
        k->bytes[k->size] = from[i];
        k->origins[k->size++] = (uint32_t)(origin - k->line.begin) + (moves ? (uint32_t)i : 0);
    }
    return true;
}

/* Finds a character of the private use area that the line does not have; false where it has all. */
static bool find_stand_in(kept_line *k) {
    uint8_t used[PRIVATE / 8 + 1] = {0};
    int bytes;
    for (const char *p = k->line.begin; p < k->line.end; p += bytes) {
        uint32_t c = character_at(p, k->line.end, &bytes) - FIRST_PRIVATE;
        if (c < PRIVATE) used[c / 8] |= (uint8_t)(1 << c % 8);
    }
    uint32_t c = 0;
    while (c < PRIVATE && used[c / 8] >> c % 8 & 1) c++;
    utf8_of(FIRST_PRIVATE + c, k->stand_in);
    return c < PRIVATE;
}

/* The white space before and after a stretch of the line. */
static void find_spaces(kept *item, text line) {
    item->before = (text){item->from.at.begin, item->from.at.begin};
    while (item->before.begin > line.begin) {
        const char *p = item->before.begin - 1;
        int bytes;
        while (p > line.begin && item->before.begin - p < 4 && (*p & 0xc0) == 0x80) p--;
        if (!is_space(character_at(p, line.end, &bytes)) || p + bytes != item->before.begin) break;
        item->before.begin = p;
    }
    item->after = (text){item->from.at.end, after_spaces((text){item->from.at.end, line.end})};
}

/* A name of tags, and how many of it are open. */
typedef struct {
    const placeholder *tag;
    size_t open;
} tag_count;

static tag_count *count_of(tag_count *slots, size_t room, const placeholder *tag) {
    uint64_t hash = tag->is_code;
    for (const char *p = tag->tag.begin; p < tag->tag.end; p++)
        hash = (hash ^ (uint8_t)(*p & (tag->is_code ? 0xff : 0xdf))) * 1099511628211u;
    for (size_t i = (size_t)(hash ^ hash >> 32);; i++) {
        tag_count *slot = &slots[i & (room - 1)];
        if (!slot->tag) slot->tag = tag;
        if (same_tag(slot->tag, tag)) return slot;
    }
}

/* Tells marks and their ends of each other. */
static bool find_partners(kept_line *k) {
    size_t room = 2, depth = 0;
    while (room < 2 * (k->count + 1)) room *= 2;
    tag_count *slots = calloc(room, sizeof *slots);
    size_t *open = malloc((k->count + 1) * sizeof *open);
    bool fine = slots && open;
    for (size_t i = 0; fine && i < k->count; i++) {
        const placeholder *found = &k->items[i].from;
        if (found->tag.begin == found->tag.end) continue;
        tag_count *own = count_of(slots, room, found);
        if (found->kind == KEPT_OPENING) open[depth++] = i, own->open++;
        while (found->kind == KEPT_CLOSING && own->open) {
            size_t opening = open[--depth];
            tag_count *other = count_of(slots, room, &k->items[opening].from);
            other->open--;
            if (other != own) continue;
            k->items[opening].partner = i, k->items[i].partner = opening;
            break;
        }
    }
    free(slots);
    free(open);
    return fine;
}

/* Whether the text before a mark must be separated from that after it. */
static bool needs_space(const kept *item, uint32_t before, uint32_t after) {
    return item->from.kind != KEPT_TERM && item->from.stands_alone && is_alphanumeric(before) && is_alphanumeric(after);
}

static bool make_text(kept_line *k) {
    uint32_t *nexts = malloc((k->count + 1) * sizeof *nexts); /* the character after each item and the marks that touch it */
    const char *last = k->line.begin;
    int bytes;
    for (size_t i = k->count; nexts && i-- > 0;) {
        const kept *item = &k->items[i], *following = i + 1 < k->count ? item + 1 : NULL;
        if (following && following->from.at.begin == item->from.at.end && following->from.kind != KEPT_TERM)
            nexts[i] = following->from.kind == KEPT_WORD ? 'a' : nexts[i + 1];
        else
            nexts[i] = item->from.at.end < k->line.end ? character_at(item->from.at.end, k->line.end, &bytes) : NO_LETTER;
    }
    bool fine = nexts != NULL;
    for (size_t i = 0; fine && i < k->count; i++) {
        kept *item = &k->items[i];
        fine = append(k, last, (size_t)(item->from.at.begin - last), last, true);
        last = item->from.at.end;
        if (!fine) break;
        uint32_t before = k->size ? last_of((text){k->bytes, k->bytes + k->size}) : NO_LETTER;
        if (k->size >= 3 && !memcmp(k->bytes + k->size - 3, k->stand_in, 3)) before = 'a';
        if (needs_space(item, before, nexts[i])) fine = append(k, " ", 1, item->from.at.begin, false);
        item->read.begin = k->size;
        if (item->from.kind == KEPT_TERM) fine = fine && append(k, item->from.at.begin, size_of(item->from.at), item->from.at.begin, true);
        if (item->from.kind == KEPT_WORD) fine = fine && append(k, k->stand_in, 3, item->from.at.begin, false);
        item->read.end = k->size;
    }
    fine = fine && append(k, last, (size_t)(k->line.end - last), last, true);
    if (fine) k->origins[k->size] = (uint32_t)size_of(k->line);
    free(nexts);
    return fine;
}

static bool keep(kept_line *k, placeholder from, text own) {
    if (!grown(&k->items, sizeof *k->items, &k->item_room, k->count + 1)) return false;
    k->items[k->count] = (kept){.own = own, .from = from, .partner = NONE};
    find_spaces(&k->items[k->count++], k->line);
    return true;
}

keeping keep_line(kept_line *k, text line, bool placeholders, const nmt_glossary *glossary) {
    scanner s = {.whole = line};
    found_terms terms = {0};
    bool fine = true, more = true;
    k->line = line;
    for (const char *last = line.begin; fine && more;) {
        placeholder found = {.at = {line.end, line.end}};
        more = placeholders && scan_next(&s, &found);
        fine = !s.out_of_memory && (terms.count = 0, !glossary || glossary_find(glossary, (text){last, found.at.begin}, &terms));
        for (size_t i = 0; fine && i < terms.count; i++)
            fine = keep(k, (placeholder){.at = terms.all[i].at, .kind = KEPT_TERM}, terms.all[i].translation);
        if (more) fine = fine && keep(k, found, found.at);
        last = found.at.end;
    }
    scan_end(&s);
    free(terms.all);
    const bool has_letter = fine && k->count && find_stand_in(k);
    if (fine && has_letter) fine = find_partners(k) && make_text(k);
    return !fine ? NO_MEMORY : !k->count ? KEEPS_NOTHING : has_letter ? KEEPS : NO_STAND_IN;
}

/* --- units of the source --- */

static bool add_stretch(stretches *to, size_t begin, size_t end) {
    if (!grown(&to->all, sizeof *to->all, &to->room, to->count + 1)) return false;
    to->all[to->count++] = (stretch){begin, end};
    return true;
}

/* Whether a token begins at a place. */
static bool begins_at(const stretch *tokens, size_t count, size_t place) {
    size_t low = 0;
    while (low < count && tokens[low].begin == NONE) low++;
    while (low < count) {
        size_t middle = low + (count - low) / 2;
        if (tokens[middle].begin == place) return true;
        if (tokens[middle].begin < place) low = middle + 1;
        else count = middle;
    }
    return false;
}

static bool is_of_word(uint32_t c) { return c == '_' || is_alphanumeric(c) || is_mark(c); }
static bool joins(uint32_t c) { return c == '-' || c == '\'' || c == 0x2019; }

/* Adds the words and marks of a part of a text; in scripts without spaces a token that begins within a word begins a
   unit. */
static bool add_units(stretches *to, text all, size_t begin, size_t end, const stretch *tokens, size_t count) {
    const char *p = all.begin + begin, *last = all.begin + most(begin, end);
    int bytes, more;
    while (p < last) {
        const char *first = p;
        uint32_t c = character_at(p, last, &bytes);
        p += bytes;
        if (is_space(c)) continue;
        bool is_word = is_of_word(c);
        for (uint32_t before = c; is_word && p < last; before = c, p += bytes) {
            c = character_at(p, last, &bytes);
            if (joins(c) && p + bytes < last && is_of_word(character_at(p + bytes, last, &more))) {
                before = c, p += bytes;
                c = character_at(p, last, &bytes);
            } else if (!is_of_word(c)) {
                break;
            }
            for (int joined = before == '-' || before == '\'' || before == 0x2019; joined >= 0; joined--) {
                const char *at = joined ? p - (before == 0x2019 ? 3 : 1) : p;
                uint32_t one = joined ? last_of((text){first, at}) : before, two = joined ? before : c;
                if (!is_unspaced(one) && !is_unspaced(two)) continue;
                int own;
                character_at(at, last, &own);
                if (!is_boundary(one, (text){at, at + own})) continue;
                if (!begins_at(tokens, count, (size_t)(at - all.begin))) continue;
                if (!add_stretch(to, (size_t)(first - all.begin), (size_t)(at - all.begin))) return false;
                first = at;
            }
        }
        if (!add_stretch(to, (size_t)(first - all.begin), (size_t)(p - all.begin))) return false;
    }
    return true;
}

/* The place among words of a stretch: of that where it begins, or of the next; text after all words belongs to the last
   one, and an empty stretch to the word that ends exactly there. */
static size_t place_of(stretch one, const stretch *words, size_t count) {
    size_t low = 0, high = count;
    if (one.begin == NONE || !count) return NONE;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (one.begin == one.end ? words[middle].end < one.end : words[middle].end <= one.begin) low = middle + 1;
        else high = middle;
    }
    return least(low, count - 1);
}

/* --- placing --- */

/* A mark, or a pair of tags, with the marks between them. */
typedef struct {
    const kept *item, *end;
    size_t first, last;    /* units of the source from the first to before the last are enclosed */
    size_t child, next;    /* its first mark within, and the next beside it; NONE: there is none */
    size_t low, high;      /* before which pieces it begins and ends; NONE: not known yet */
} mark;

typedef struct {
    const placing *set;
    stretches units; /* of the source */
    bool *words;     /* whether each is a word; else it is a mark */
    bool *are_kept;
    size_t *unit_of; /* of each item of the part, NONE for a mark */
    float *weights;  /* [rows][units] */
    pieces *to;
    mark *marks; /* the first one has all outermost as its children */
    size_t mark_count;
    size_t *firsts, *lasts; /* of each unit the first and the last piece */
    size_t *starts, *places; /* the pieces of each unit are those from places[starts[unit]] on */
} placer;

static float weight_of(const placer *p, const piece *one, size_t unit) {
    return one->weights == NONE ? (float)(one->source == unit) : p->weights[one->weights * p->units.count + unit];
}

static bool find_source_units(placer *p) {
    const placing *set = p->set;
    size_t begin = NONE, end = 0, items = set->last - set->first;
    for (size_t i = 0; i < set->source_count; i++)
        if (set->source_tokens[i].begin != NONE)
            begin = least(begin, set->source_tokens[i].begin), end = most(end, set->source_tokens[i].end);
    if (!(p->unit_of = malloc((items + 1) * sizeof *p->unit_of))) return false;
    size_t at = begin;
    for (size_t i = 0; i < items; i++) {
        const kept *item = &set->kept->items[set->first + i];
        p->unit_of[i] = NONE;
        if (item->from.kind != KEPT_WORD && item->from.kind != KEPT_TERM) continue;
        if (!add_units(&p->units, set->source, at, item->read.begin, set->source_tokens, set->source_count)) return false;
        p->unit_of[i] = p->units.count;
        if (!add_stretch(&p->units, item->read.begin, item->read.end)) return false;
        at = item->read.end;
    }
    if (!add_units(&p->units, set->source, at, end, set->source_tokens, set->source_count)) return false;
    if (!p->units.count && !add_stretch(&p->units, at, end)) return false; /* a part of a character */
    p->words = calloc(p->units.count, sizeof *p->words), p->are_kept = calloc(p->units.count, sizeof *p->are_kept);
    p->firsts = malloc(p->units.count * sizeof *p->firsts), p->lasts = malloc(p->units.count * sizeof *p->lasts);
    if (!p->words || !p->are_kept || !p->firsts || !p->lasts) return false;
    for (size_t i = 0; i < p->units.count; i++)
        p->words[i] = has_letters((text){set->source.begin + p->units.all[i].begin, set->source.begin + p->units.all[i].end});
    for (size_t i = 0; i < items; i++)
        if (p->unit_of[i] != NONE) p->are_kept[p->unit_of[i]] = true;
    return true;
}

/* Splits the translation into pieces, each with its weights of the units of the source. */
static bool find_pieces(placer *p) {
    const placing *set = p->set;
    stretches found = {0};
    size_t begin = 0, size = size_of(set->target), units = p->units.count;
    size_t *unknown = malloc((set->target_count + 1) * sizeof *unknown), *owners = NULL, unknowns = 0;
    bool fine = unknown != NULL;
    for (size_t i = 0; fine && i < set->target_count; i++) {
        if (set->ids[i] != set->unknown) continue;
        fine = add_units(&found, set->target, begin, set->target_tokens[i].begin, set->target_tokens, set->target_count);
        unknown[unknowns++] = i;
        fine = fine && add_stretch(&found, set->target_tokens[i].begin, set->target_tokens[i].end);
        begin = set->target_tokens[i].end;
    }
    fine = fine && add_units(&found, set->target, begin, size, set->target_tokens, set->target_count);
    p->weights = fine ? calloc(found.count * units + 1, sizeof *p->weights) : NULL;
    owners = malloc((set->source_count + 1) * sizeof *owners);
    float *row = malloc(units * sizeof *row);
    fine = fine && p->weights && owners && row && grown(&p->to->all, sizeof *p->to->all, &p->to->room, found.count + 1);
    for (size_t s = 0; fine && s < set->source_count; s++) owners[s] = place_of(set->source_tokens[s], p->units.all, units);
    for (size_t t = 0; fine && found.count && t < set->target_count; t++) {
        size_t owner = place_of(set->target_tokens[t], found.all, found.count);
        memset(row, 0, units * sizeof *row);
        for (size_t s = 0; s < set->source_count; s++)
            if (owners[s] != NONE) row[owners[s]] += set->attention[t * set->source_stride + s];
        for (size_t u = 0; u < units; u++) p->weights[owner * units + u] += row[u];
    }
    size_t next = 0, before = 0;
    for (size_t i = 0; fine && i < found.count; i++) {
        piece *one = &p->to->all[p->to->count++];
        stretch at = found.all[i];
        *one = (piece){.own = {set->target.begin + at.begin, set->target.begin + at.end}, .weights = i, .unknown = NONE};
        one->gap = (text){set->target.begin + before, set->target.begin + most(before, at.begin)};
        if (next < unknowns && set->target_tokens[unknown[next]].begin == at.begin && set->target_tokens[unknown[next]].end == at.end)
            one->unknown = unknown[next++];
        one->is_word = one->unknown != NONE || has_letters(one->own);
        for (size_t u = 1; u < units; u++)
            if (p->weights[i * units + u] > p->weights[i * units + one->source]) one->source = u;
        before = at.end;
    }
    free(found.all);
    free(unknown);
    free(owners);
    free(row);
    return fine;
}

static piece new_piece(const kept *item, size_t unit, text gap) {
    return (piece){item->own, gap, NONE, unit, NONE, item, has_letters(item->own)};
}

/* Puts a new piece in place of those from `first` to before `last`. */
static bool put(pieces *to, size_t first, size_t last, piece new) {
    if (!grown(&to->all, sizeof *to->all, &to->room, to->count + 1)) return false;
    memmove(to->all + first + 1, to->all + last, (to->count - last) * sizeof *to->all);
    to->all[first] = new;
    to->count += 1 - (last - first);
    return true;
}

static double weight_of_run(const placer *p, stretch run, size_t unit) {
    double sum = 0;
    for (size_t i = run.begin; i < run.end; i++) sum += (double)weight_of(p, &p->to->all[i], unit);
    return sum;
}

enum { SHARED_TENTHS = 4 }; /* a word comes as well from another word if it has this share of the weight */

/* A run of words without end words that also align to a neighbour of the unit that has no other word: so an article, or
   the noun of a kept adjective, is not lost. */
static stretch without_neighbours(placer *p, size_t unit, stretch run) {
    size_t sides[2] = {unit ? unit - 1 : NONE, unit + 1};
    bool known[2] = {false, false};
    for (size_t i = 0; i < p->to->count; i++)
        for (int k = 0; k < 2; k++) known[k] = known[k] || p->to->all[i].source == sides[k];
    for (int k = 0; k < 2; k++) {
        size_t side = sides[k];
        if (side >= p->units.count || p->are_kept[side] || known[k] || !p->words[side]) continue;
        size_t ends[2] = {run.begin, run.end - 1};
        for (int e = 0; e < 2 && run.begin < run.end; e++) {
            piece *one = &p->to->all[ends[e]];
            if (10 * (double)weight_of(p, one, side) < SHARED_TENTHS * (double)weight_of(p, one, unit)) continue;
            one->source = side;
            if (ends[e] == run.begin) run.begin++;
            else run.end = ends[e];
            break;
        }
    }
    return run;
}

/* Lets a kept unit take the place of words that come from it, of several runs those of the largest weight; `*done`: whether
   there are any. */
static bool replace_by(placer *p, size_t number, bool *done) {
    const kept *item = &p->set->kept->items[p->set->first + number];
    size_t unit = p->unit_of[number];
    stretch best = {0, 0}, run = {0, 0};
    double largest = -1;
    for (size_t i = 0; i <= p->to->count; i++) {
        const piece *one = &p->to->all[i];
        if (i < p->to->count && one->source == unit && one->is_word && !one->item) {
            if (run.end != i || run.begin == run.end) run.begin = i;
            run.end = i + 1;
        } else if (run.begin < run.end) {
            double weight = weight_of_run(p, run, unit);
            if (weight > largest) best = run, largest = weight;
            run = (stretch){0, 0};
        }
    }
    if (best.begin < best.end) best = without_neighbours(p, unit, best);
    *done = best.begin < best.end;
    return !*done || put(p->to, best.begin, best.end, new_piece(item, unit, p->to->all[best.begin].gap));
}

static bool is_word_unit(const placer *p, size_t unit) { return p->are_kept[unit] || p->words[unit]; }

typedef struct {
    size_t slot;            /* the piece before which something belongs */
    bool is_after, is_next; /* behind its neighbour; with as much space between them as in the source */
} beside;

/* Where something belongs that stood between the units `begin` - 1 and `end` of the source: nearest neighbours first, of
   two equally near ones that before it, or with `forward` that after it. A mark, such as a full stop, is a neighbour only
   if it comes from a mark. */
static beside find_beside(placer *p, size_t begin, size_t end, bool forward) {
    for (size_t u = 0; u < p->units.count; u++) p->firsts[u] = p->lasts[u] = NONE;
    for (size_t i = 0; i < p->to->count; i++) {
        const piece *one = &p->to->all[i];
        if (!one->item && !one->is_word && is_word_unit(p, one->source)) continue;
        if (p->firsts[one->source] == NONE) p->firsts[one->source] = i;
        p->lasts[one->source] = i;
    }
    for (size_t distance = 0; distance < most(begin, p->units.count - least(end, p->units.count)); distance++) {
        size_t sides[2] = {begin > distance ? begin - 1 - distance : NONE, end + distance};
        for (int k = 0; k < 2; k++) {
            int own = forward ? 1 - k : k;
            size_t unit = sides[own];
            if (unit >= p->units.count || p->firsts[unit] == NONE) continue;
            size_t place = own ? p->firsts[unit] : p->lasts[unit];
            const piece *one = &p->to->all[place];
            bool are_alike = one->item || one->is_word == is_word_unit(p, unit);
            return (beside){place + !own, !own, !distance && are_alike};
        }
    }
    return (beside){p->to->count, true, false};
}

/* Puts a kept unit to which no word is aligned next to the translation of its nearest neighbour. */
static bool insert(placer *p, size_t number) {
    const kept *item = &p->set->kept->items[p->set->first + number];
    size_t unit = p->unit_of[number];
    beside found = find_beside(p, unit, unit + 1, false);
    piece *following = found.slot < p->to->count ? &p->to->all[found.slot] : NULL;
    text gap;
    if (found.is_after) {
        gap = found.is_next ? item->before : SPACE;
        if (following && following->is_word && following->gap.begin == following->gap.end) following->gap = SPACE;
    } else {
        gap = following->gap;
        following->gap = found.is_next ? item->after : SPACE;
    }
    return put(p->to, found.slot, found.slot, new_piece(item, unit, gap));
}

/* --- marks --- */

/* The first unit that begins at a place or behind it. */
static size_t unit_from(const placer *p, size_t place) {
    size_t low = 0, high = p->units.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->units.all[middle].begin < place) low = middle + 1;
        else high = middle;
    }
    return low;
}

static bool is_before_word(const mark *m) {
    return m->low < m->high || (!m->end && m->item->from.kind == KEPT_OPENING);
}

/* The marks of this part of the source, those within others as their children. */
static bool find_marks(placer *p) {
    const placing *set = p->set;
    size_t items = set->last - set->first, depth = 0;
    p->marks = malloc((items + 1) * sizeof *p->marks);
    size_t *open = malloc((items + 1) * sizeof *open), *tails = malloc((items + 1) * sizeof *tails);
    if (p->marks && open && tails) {
        p->marks[0] = (mark){.child = NONE, .next = NONE, .high = p->to->count};
        open[0] = 0, tails[0] = NONE, p->mark_count = 1;
    }
    for (size_t i = 0; p->mark_count && i < items; i++) {
        const kept *item = &set->kept->items[set->first + i];
        if (item->from.kind != KEPT_OPENING && item->from.kind != KEPT_CLOSING) continue;
        size_t unit = unit_from(p, item->read.begin);
        bool is_paired = item->partner != NONE && item->partner >= set->first && item->partner < set->last;
        if (is_paired && item->from.kind == KEPT_CLOSING) {
            mark *m = &p->marks[open[depth--]];
            size_t begin = m->item->read.begin;
            m->end = item, m->last = unit;
            if (unit && m->first == unit && begin < least(item->read.begin, p->units.all[unit - 1].end))
                m->first--; /* it marks a part of a word */
            continue;
        }
        size_t new = p->mark_count++;
        p->marks[new] = (mark){item, NULL, unit, unit, NONE, NONE, NONE, NONE};
        if (tails[depth] == NONE) p->marks[open[depth]].child = new;
        else p->marks[tails[depth]].next = new;
        tails[depth] = new;
        if (is_paired) open[++depth] = new, tails[depth] = NONE;
    }
    free(open);
    free(tails);
    return p->mark_count > 0;
}

/* What chooses the slots of marks that are beside each other. */
typedef struct {
    stretch *taken; /* slots of marks, which do not overlap, in order */
    size_t count;
    size_t *sides, *lows, *highs, *order; /* of the pieces on each side of those: how many, the first, the last, and when seen */
} settling;

/* How many slots begin before a place, or with `equal` also at it. */
static size_t taken_before(const settling *s, size_t place, bool equal) {
    size_t low = 0, high = s->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->taken[middle].begin < place || (equal && s->taken[middle].begin == place)) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Gives a mark the pieces that come from what it enclosed, as far as they are on one side of those of others: the most. */
static void settle_filled(placer *p, settling *s, mark *m, size_t low, size_t high) {
    size_t seen = 0, best = NONE;
    for (size_t i = 0; i <= s->count; i++) s->sides[i] = 0;
    for (size_t i = p->starts[m->first]; i < p->starts[m->last]; i++) {
        size_t place = p->places[i], side = taken_before(s, place, true);
        if (place < low || place >= high || (side && s->taken[side - 1].end > place)) continue;
        if (!s->sides[side]++) s->lows[side] = s->highs[side] = place, s->order[side] = seen++;
        s->lows[side] = least(s->lows[side], place), s->highs[side] = most(s->highs[side], place);
    }
    for (size_t i = 0; i <= s->count; i++)
        if (s->sides[i] && (best == NONE || s->sides[i] > s->sides[best] ||
                            (s->sides[i] == s->sides[best] && s->order[i] < s->order[best])))
            best = i;
    if (best == NONE) return;
    m->low = s->lows[best], m->high = s->highs[best] + 1;
    size_t at = taken_before(s, m->low, true);
    memmove(s->taken + at + 1, s->taken + at, (s->count++ - at) * sizeof *s->taken);
    s->taken[at] = (stretch){m->low, m->high};
}

/* Of a mark: the pieces from the first to the last that come from what it encloses; NONE for none. */
static size_t width_of(const placer *p, const mark *m, size_t low, size_t high) {
    size_t first = NONE, last = 0;
    for (size_t i = p->starts[m->first]; i < p->starts[m->last]; i++)
        if (p->places[i] >= low && p->places[i] < high) first = least(first, p->places[i]), last = most(last, p->places[i]);
    return first == NONE ? NONE : last - first;
}

/* Chooses the slots of the marks within another. */
static void settle(placer *p, settling *s, keyed *order, const mark *parent) {
    size_t low = parent->low, high = parent->high, count = 0, last = low;
    s->count = 0;
    for (size_t i = parent->child; i != NONE; i = p->marks[i].next) {
        order[count] = (keyed){width_of(p, &p->marks[i], low, high), i};
        count += order[count].key != NONE;
    }
    sort_keyed(order, count); /* the narrowest first: of others, the pieces on one side of it remain */
    for (size_t i = 0; i < count; i++) settle_filled(p, s, &p->marks[order[i].place], low, high);
    for (size_t i = parent->child; i != NONE; i = p->marks[i].next) {
        mark *m = &p->marks[i];
        if (m->low != NONE) continue;
        bool forward = !m->end && m->item->from.kind == KEPT_OPENING;
        size_t slot = least(most(find_beside(p, m->first, m->last, forward).slot, low), high), side = taken_before(s, slot, false);
        if (side && slot < s->taken[side - 1].end) slot = forward ? s->taken[side - 1].begin : s->taken[side - 1].end;
        if (!m->end && !m->item->from.stands_alone) slot = last = most(slot, last); /* its other half may be in another part */
        m->low = m->high = slot;
    }
}

/* Puts marks where the words that they mark are, a pair of tags around all that comes from what it enclosed. What was
   well-formed stays so: pairs that were beside each other enclose different pieces, and what was within a pair stays
   within it. */
static bool insert_marks(placer *p) {
    size_t units = p->units.count;
    p->starts = calloc(units + 2, sizeof *p->starts), p->places = malloc((p->to->count + 1) * sizeof *p->places);
    if (!p->starts || !p->places || !find_marks(p)) return false;
    for (size_t i = 0; i < p->to->count; i++) p->starts[p->to->all[i].source + 2]++;
    for (size_t u = 2; u < units + 2; u++) p->starts[u] += p->starts[u - 1];
    for (size_t i = 0; i < p->to->count; i++) p->places[p->starts[p->to->all[i].source + 1]++] = i;
    size_t count = p->mark_count, depth = 0, done = 0;
    settling s = {malloc(count * sizeof *s.taken), 0, malloc((count + 1) * sizeof(size_t)), malloc((count + 1) * sizeof(size_t)),
                  malloc((count + 1) * sizeof(size_t)), malloc((count + 1) * sizeof(size_t))};
    keyed *order = malloc(count * sizeof *order), *todo = malloc((2 * count + 1) * sizeof *todo);
    pieces new = {0};
    bool fine = s.taken && s.sides && s.lows && s.highs && s.order && order && todo &&
                grown(&new.all, sizeof *new.all, &new.room, p->to->count + 2 * count + 1);
    for (size_t i = 0; fine && i < count; i++)
        if (p->marks[i].child != NONE) settle(p, &s, order, &p->marks[i]);
    if (fine) todo[depth++] = (keyed){0, 0};
    while (depth) {
        keyed one = todo[--depth]; /* key 1: the end of the mark */
        const mark *m = &p->marks[one.place];
        if (one.place) {
            const kept *item = one.key ? m->end : m->item;
            size_t slot = one.key ? m->high : m->low;
            bool is_opening = !one.key && is_before_word(m);
            for (; done < slot; done++) new.all[new.count++] = p->to->all[done];
            piece *following = slot < p->to->count ? &p->to->all[slot] : NULL;
            new.all[new.count++] = new_piece(item, NONE, is_opening && following ? following->gap : item->before);
            if (following && (is_opening || item->from.stands_alone)) following->gap = item->after;
        }
        if (one.key) continue;
        if (m->end) todo[depth++] = (keyed){1, one.place};
        size_t children = 0; /* where two begin, what belongs to the word before comes first */
        for (size_t i = m->child; i != NONE; i = p->marks[i].next)
            order[children++] = (keyed){4 * p->marks[i].low + 2u * (p->marks[i].low < p->marks[i].high) + is_before_word(&p->marks[i]), i};
        sort_keyed(order, children);
        while (children) todo[depth++] = (keyed){0, order[--children].place};
    }
    for (; fine && done < p->to->count; done++) new.all[new.count++] = p->to->all[done];
    free(s.taken), free(s.sides), free(s.lows), free(s.highs), free(s.order);
    free(order);
    free(todo);
    free(p->to->all);
    *p->to = new;
    return fine;
}

bool place_kept(const placing *set, pieces *to) {
    placer p = {.set = set, .to = to};
    size_t items = set->last - set->first;
    bool fine = find_source_units(&p) && find_pieces(&p);
    bool *done = calloc(items + 1, sizeof *done);
    fine = fine && done;
    for (size_t i = 0; fine && i < items; i++)
        if (p.unit_of[i] != NONE) fine = replace_by(&p, i, &done[i]);
    for (size_t i = 0; fine && i < items; i++)
        if (p.unit_of[i] != NONE && !done[i]) fine = insert(&p, i);
    fine = fine && (!items || insert_marks(&p));
    free(done);
    to->units = p.units.all, to->unit_count = p.units.count, to->weights = p.weights;
    free(p.words), free(p.are_kept), free(p.unit_of), free(p.marks);
    free(p.firsts), free(p.lasts), free(p.starts), free(p.places);
    return fine;
}

/* --- writing --- */

void pieces_clear(pieces *p) {
    for (size_t i = 0; i < p->owned_count; i++) free(p->owned[i]);
    free(p->owned);
    free(p->all);
    free(p->units), free(p->weights), free(p->spans);
}

static bool own(pieces *p, char *made) {
    if (!grown(&p->owned, sizeof *p->owned, &p->owned_room, p->owned_count + 1)) return free(made), false;
    p->owned[p->owned_count++] = made;
    return true;
}

/* The word around a stretch, which may begin with spaces; without punctuation at its ends if it has letters. */
static text word_around(text all, text at) {
    int bytes;
    uint32_t c;
    while (at.begin < at.end && (c = character_at(at.begin, at.end, &bytes), at.begin + bytes < at.end) && is_space(c)) at.begin += bytes;
    while (at.begin > all.begin && !is_space(last_of((text){all.begin, at.begin}))) at.begin--;
    while (at.end < all.end && !is_space(character_at(at.end, all.end, &bytes))) at.end += bytes;
    at = stripped(at);
    text inner = {at.end, at.begin};
    for (const char *p = at.begin; p < at.end; p += bytes)
        if (is_alphanumeric(character_at(p, at.end, &bytes))) inner.begin = inner.begin < p ? inner.begin : p, inner.end = p + bytes;
    return inner.begin < inner.end ? inner : at;
}

bool replace_unknown(const placing *set, pieces *to, const int32_t *source_ids, size_t led, size_t fixed) {
    for (size_t i = 0; i < to->count; i++) {
        piece *one = &to->all[i];
        if (one->unknown == NONE || one->unknown < fixed) continue;
        const float *row = set->attention + one->unknown * set->source_stride;
        size_t token = led;
        for (size_t s = led; s < set->source_count; s++)
            if (row[s] > row[token]) token = s;
        stretch place = set->source_tokens[token];
        text at = {set->source.begin + place.begin, set->source.begin + place.end};
        at = source_ids[token] == set->unknown ? stripped(at) : word_around(set->source, at);
        char *made = malloc(size_of(at) + 1);
        size_t size = 0;
        if (!made || !own(to, made)) return false;
        for (const char *p = at.begin; p < at.end;) { /* without what represents a placeholder */
            bool is_none = set->kept && at.end - p >= 3 && !memcmp(p, set->kept->stand_in, 3);
            if (is_none) p += 3;
            else made[size++] = *p++;
        }
        if (size) one->own = (text){made, made + size}, one->unknown = NONE;
    }
    return true;
}

bool put_in_capitals(pieces *p) {
    for (size_t i = 0; i < p->count; i++) {
        char *made = NULL;
        size_t room = 0;
        if (p->all[i].item || p->all[i].own.begin == p->all[i].own.end) continue;
        const int64_t size = case_upper(p->all[i].own.begin, size_of(p->all[i].own), &made, &room);
        if (size < 0 || !own(p, made)) return false;
        p->all[i].own = (text){made, made + size};
    }
    return true;
}

/* Writes the text of pieces; `spaced` puts spaces around what was kept. */
static bool write_pieces(pieces *from, bool spaced, written_text *to) {
    to->size = 0;
    if (!grown(&from->spans, sizeof *from->spans, &from->span_room, from->count + 1)) return false;
    for (size_t i = 0; i < from->count; i++) {
        const piece *one = &from->all[i];
        text gap = one->gap;
        if (spaced && i && gap.begin == gap.end && (one->item || one[-1].item)) gap = SPACE;
        size_t spaces = to->size ? size_of(gap) : 0, size = size_of(one->own);
        if (!grown(&to->bytes, 1, &to->room, to->size + spaces + size + 1)) return false;
        if (spaces) memcpy(to->bytes + to->size, gap.begin, spaces);
        if (size) memcpy(to->bytes + to->size + spaces, one->own.begin, size);
        from->spans[i] = (stretch){to->size + spaces, to->size + spaces + size};
        to->size += spaces + size;
    }
    while (to->size && is_space(last_of((text){to->bytes, to->bytes + to->size}))) {
        do to->size--;
        while (to->size && (to->bytes[to->size] & 0xc0) == 0x80);
    }
    return true;
}

/* Leaves out, or sets apart, what is like a placeholder in pieces that were not kept. */
static bool break_placeholders(pieces *p) {
    size_t count = 0, room = 0, tail_size = 0, tail_room = 0;
    char *tail = NULL, *broken = NULL; /* tail: what was written since the last space */
    text gap = {NULL, NULL};
    bool fine = true;
    for (size_t i = 0; fine && i < p->count; i++) {
        piece one = p->all[i];
        if (one.gap.begin < one.gap.end) gap = one.gap;
        if (one.item) {
            one.gap = gap, p->all[count++] = one;
            tail_size = 0, gap = (text){NULL, NULL};
            continue;
        }
        if (one.unknown == NONE) {
            int64_t size = without_placeholders(one.own, &broken, &room);
            char *made = size < 0 ? NULL : malloc((size_t)size + 1);
            if (!(fine = made && own(p, made))) break;
            if (size) memcpy(made, broken, (size_t)size);
            one.own = (text){made, made + size};
        }
        size_t size = size_of(one.own);
        if (!size) continue;
        if (!(fine = grown(&tail, 1, &tail_room, tail_size + size + 1))) break;
        memcpy(tail + tail_size, one.own.begin, size);
        if (gap.begin == gap.end) {
            int64_t same = without_placeholders((text){tail, tail + tail_size + size}, &broken, &room);
            fine = same >= 0;
            if ((size_t)same != tail_size + size || memcmp(tail, broken, (size_t)same)) gap = SPACE;
        }
        one.gap = gap, p->all[count++] = one;
        if (gap.begin < gap.end) memmove(tail, tail + tail_size, size), tail_size = 0;
        tail_size += size, gap = (text){NULL, NULL};
    }
    p->count = count;
    free(tail);
    free(broken);
    return fine;
}

bool write_parts(const kept_line *k, pieces *parts, size_t count, written_text *texts) {
    written_text all = {0};
    size_t items = k ? k->count : 0;
    text *kept = malloc((items + 1) * sizeof *kept);
    bool fine = kept != NULL;
    for (size_t i = 0; fine && i < items; i++) kept[i] = k->items[i].own;
    for (int way = 0; fine && way < 3; way++) {
        /* The model has written something like a placeholder, or what stands beside one has become a part of it. */
        for (size_t p = 0; fine && way == 1 && p < count; p++) fine = break_placeholders(&parts[p]);
        for (size_t p = all.size = 0; fine && p < count; p++) {
            fine = write_pieces(&parts[p], way == 2, &texts[p]) && grown(&all.bytes, 1, &all.room, all.size + texts[p].size + 2);
            if (!fine) break;
            if (p) all.bytes[all.size++] = ' ';
            if (texts[p].size) memcpy(all.bytes + all.size, texts[p].bytes, texts[p].size);
            all.size += texts[p].size;
        }
        int same = fine && items ? same_placeholders(&(text){all.bytes, all.bytes + all.size}, 1, kept, items) : fine ? 1 : -1;
        fine = same >= 0;
        if (same) break;
    }
    free(all.bytes);
    free(kept);
    return fine;
}

/* --- alignment --- */

bool find_words(text t, stretches *to) {
    const char *first = NULL;
    int bytes = 0;
    for (const char *p = t.begin; p <= t.end; p += bytes) {
        bool is_end = p == t.end || is_space(character_at(p, t.end, &bytes));
        if (is_end && first && !add_stretch(to, (size_t)(first - t.begin), (size_t)(p - t.begin))) return false;
        if (p == t.end) break;
        first = is_end ? NULL : first ? first : p;
    }
    return true;
}

/* The pieces that a word consists of are those from the first to the last that touch it. */
bool align_part(const kept_line *k, text line, const stretches *words, const pieces *p, text written, size_t before,
                word_pairs *to) {
    stretches own = {0};
    size_t *places = malloc((p->unit_count + p->count + 1) * sizeof *places), first = NONE, last = 0;
    bool fine = places && find_words(written, &own);
    for (size_t i = 0; fine && i < p->unit_count + p->count; i++) { /* of units, and of what was kept, in the line */
        const kept *item = i < p->unit_count ? NULL : p->all[i - p->unit_count].item;
        stretch at = NOWHERE;
        if (item) at = (stretch){(size_t)(item->from.at.begin - line.begin), (size_t)(item->from.at.end - line.begin)};
        else if (i < p->unit_count) at = p->units[i];
        if (i < p->unit_count && k) at = (stretch){k->origins[at.begin], k->origins[at.begin] + (at.end > at.begin)};
        places[i] = place_of(at, words->all, words->count);
        if (places[i] != NONE) first = least(first, places[i]), last = most(last, places[i]);
    }
    size_t width = first == NONE ? 0 : last + 1 - first, covered = 0;
    float *row = malloc((width + 1) * sizeof *row), *sums = calloc(width * own.count + 1, sizeof *sums);
    bool *known = calloc(own.count + 1, sizeof *known);
    fine = fine && row && sums && known;
    for (size_t i = 0; fine && width && own.count && i < p->count; i++) {
        const piece *one = &p->all[i];
        stretch at = p->spans[i];
        memset(row, 0, width * sizeof *row);
        for (size_t u = 0; !one->item && u < p->unit_count; u++)
            if (places[u] != NONE) row[places[u] - first] += p->weights[one->weights * p->unit_count + u];
        if (one->item) row[places[p->unit_count + i] - first] = 1;
        stretch end = {at.end > at.begin ? at.end - 1 : at.end, at.end};
        covered = place_of(end, own.all, own.count);
        for (size_t w = place_of(at, own.all, own.count); w <= covered; w++) {
            known[w] = true;
            for (size_t s = 0; s < width; s++) sums[w * width + s] += row[s];
        }
    }
    for (size_t w = 0; fine && w < own.count; w++) {
        size_t best = 0;
        if (!known[w]) continue;
        for (size_t s = 1; s < width; s++)
            if (sums[w * width + s] > sums[w * width + best]) best = s;
        /* The first word may continue the last one of the part before. */
        if (!w && to->count && to->all[2 * to->count - 1] == (int32_t)before) continue;
        fine = grown(&to->all, 2 * sizeof *to->all, &to->room, to->count + 1);
        if (!fine) break;
        to->all[2 * to->count] = (int32_t)(best + first), to->all[2 * to->count++ + 1] = (int32_t)(before + w);
    }
    free(own.all), free(places), free(row), free(sums), free(known);
    return fine;
}
