/* See placeholders.h. Each function that is named for a kind of text says where such a text ends that begins at a place;
   null where none does. What is ahead of it is looked at once. */

#include "placeholders.h"

#include "nmt_engine.h"
#include "split.h"
#include "system.h"

/* --- characters --- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_latin(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
static bool is_upper_hex(char c) { return is_digit(c) || (c >= 'A' && c <= 'F'); }
static char lowered(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }
static bool is_among(char c, const char *all) { return c && strchr(all, c); }
static bool is_word(uint32_t c) { return c == '_' || is_alphanumeric(c); }

/* The byte at a place, 0 behind the text. */
static char byte_at(const char *p, const char *end) { return p < end ? *p : 0; }

static uint32_t letter_at(const char *p, const char *end, int *bytes) {
    *bytes = 0;
    return p < end ? character_at(p, end, bytes) : 0;
}

static bool begins_with(const char *p, const char *end, const char *start) {
    size_t size = strlen(start);
    return (size_t)(end - p) >= size && !memcmp(p, start, size);
}

/* Behind the run of characters that are those of a word, or among `more`. */
static const char *word_run(const char *p, const char *end, const char *more) {
    int bytes;
    for (uint32_t c; (c = letter_at(p, end, &bytes)) && (is_word(c) || (c < 128 && is_among((char)c, more)));) p += bytes;
    return p;
}

static const char *digits(const char *p, const char *end) {
    while (p < end && is_digit(*p)) p++;
    return p;
}

/* Behind white space that does not end the line. */
static const char *blanks(const char *p, const char *end) {
    int bytes;
    for (uint32_t c; (c = letter_at(p, end, &bytes)) && is_space(c) && c != '\r' && c != '\n';) p += bytes;
    return p;
}

/* --- fields, conversions, entities --- */

/* `{{name}}` from behind what opens to behind `closing`, with nothing but that in braces. */
static const char *closed(const char *p, const char *end, const char *closing, bool spaces) {
    int bytes;
    for (uint32_t c; (c = letter_at(p, end, &bytes)) || bytes; p += bytes) {
        if (c == '}') return begins_with(p, end, closing) ? p + strlen(closing) : NULL;
        if (c == '{' || (spaces ? c == '\r' || c == '\n' : is_space(c))) return NULL;
    }
    return NULL;
}

/* `{{{name}}}`, `{{ name }}` with `$` or `#` before it or without, `${name}`, `#{name}`, `%{name}`, `{name}`. */
static const char *field(const char *p, const char *end) {
    const char *found = NULL, *inner = p + is_among(byte_at(p, end), "$#%");
    if (byte_at(inner, end) != '{') return NULL;
    if (inner == p && begins_with(p, end, "{{{")) found = closed(p + 3, end, "}}}", true);
    if (!found && *p != '%' && begins_with(inner, end, "{{")) found = closed(inner + 2, end, "}}", true);
    if (!found && inner > p && *p != '%') found = closed(inner + 1, end, "}", true);
    if (!found && (inner == p || *p == '%')) found = closed(inner + 1, end, "}", false);
    return found;
}

/* Whether a `%` at `p` begins no conversion: the percentages 100%sure and 100%-ige, and %20 in what a browser has
   encoded. */
static bool is_percent(const char *p, const char *begin, const char *end) {
    char before = p > begin ? p[-1] : 0, one = byte_at(p + 1, end), two = one ? byte_at(p + 2, end) : 0;
    const char *word = p + 1 + is_among(one, "-+#0");
    if (is_digit(before) && is_latin(byte_at(word, end)) && is_latin(byte_at(word + 1, end))) return true;
    if (!is_digit(before) && !is_latin(before)) return false;
    return (one == '2' && is_upper_hex(two)) || (one >= '3' && one <= '7' && two >= 'A' && two <= 'F') ||
           (one >= 'C' && one <= 'F' && is_upper_hex(two));
}

/* `%s`, `%1$s`, `%(name)s`, `%.2f`, `%%`. */
static const char *conversion(const char *p, const char *begin, const char *end) {
    if (byte_at(p, end) != '%' || is_percent(p, begin, end)) return NULL;
    if (byte_at(++p, end) == '%') return p + 1;
    const char *rest = digits(p, end);
    if (rest > p && byte_at(rest, end) == '$') p = rest + 1;
    else if (byte_at(p, end) == '(' && (rest = word_run(p + 1, end, ".-")) > p + 1 && byte_at(rest, end) == ')') p = rest + 1;
    while (is_among(byte_at(p, end), "+#0")) p++;
    if (byte_at(p, end) == '-') { /* before a width alone */
        const char *width = NULL;
        do {
            p++;
            if (is_digit(byte_at(p, end)) || byte_at(p, end) == '*') width = p;
        } while (is_among(byte_at(p, end), "+#0"));
        if (!width) return NULL;
        p = width;
    }
    p = byte_at(p, end) == '*' ? p + 1 : digits(p, end);
    if (byte_at(p, end) == '.') {
        rest = byte_at(p + 1, end) == '*' ? p + 2 : digits(p + 1, end);
        if (rest == p + 1) return NULL;
        p = rest;
    }
    static const char CONVERSIONS[] = "bdiouxXeEfFgGaAcsSpnqv@";
    char size = byte_at(p, end);
    if (is_among(size, "hlLqjzt")) {
        rest = p + 1 + (is_among(size, "hl") && byte_at(p + 1, end) == size);
        if (is_among(byte_at(rest, end), CONVERSIONS)) return rest + 1;
    }
    return is_among(size, CONVERSIONS) ? p + 1 : NULL;
}

/* `&nbsp;`, `&#160;`, `&#xa0;` */
static const char *entity(const char *p, const char *end) {
    if (byte_at(p, end) != '&') return NULL;
    const char *first = ++p, *name;
    if (byte_at(p, end) != '#') {
        while (p < end && (is_latin(*p) || (p > first && is_digit(*p)))) p++;
        return p - first >= 2 && p - first <= 32 && byte_at(p, end) == ';' ? p + 1 : NULL;
    }
    bool hex = is_among(byte_at(++p, end), "xX");
    name = p += hex;
    while (p < end && (hex ? is_hex(*p) : is_digit(*p))) p++;
    return p > name && p - name <= (hex ? 6 : 7) && byte_at(p, end) == ';' ? p + 1 : NULL;
}

/* --- addresses --- */

/* What stands beside an address without a space, and is no part of it: CJK letters and marks, and the like. */
static bool is_beside(uint32_t c) {
    return is_unspaced(c) || (c >= 0x1100 && c <= 0x11ff) || (c >= 0x3000 && c <= 0x318f) || (c >= 0xac00 && c <= 0xd7ff) ||
           (c >= 0xfe30 && c <= 0xfe4f) || (c >= 0xff00 && c <= 0xffef);
}

static bool is_of_url(uint32_t c) { return !is_space(c) && !(c < 128 && is_among((char)c, "<>\"()")) && !is_beside(c); }

/* `https://` and what follows, up to what can end it. */
static const char *url(const char *p, const char *begin, const char *end) {
    static const char *const STARTS[] = {"http://", "https://", "ftp://", "www."};
    static const char NOT_LAST[] = ".,;:!?']";
    uint32_t before = last_of((text){begin, p});
    const char *start = NULL, *last = NULL;
    int bytes;
    if ((before < 128 && before && (is_latin((char)before) || is_digit((char)before) || before == '_')) ||
        (before >= 0xc0 && before <= 0x24f))
        return NULL;
    for (size_t i = 0; i < sizeof STARTS / sizeof *STARTS && !start; i++) {
        const char *q = p, *s = STARTS[i];
        while (*s && q < end && lowered(*q) == *s) q++, s++;
        if (!*s) start = q;
    }
    if (!start) return NULL;
    p = start;
    for (int i = 0; i < 9; i++) { /* a host in letters that stand beside others elsewhere */
        uint32_t c = letter_at(p, end, &bytes);
        if (!is_unspaced(c) && !(c >= 0xac00 && c <= 0xd7ff)) break;
        const char *q = p + bytes;
        for (int k = 0; k < 62 && ((c = letter_at(q, end, &bytes)) == '-' || is_word(c)); k++) q += bytes;
        if (byte_at(q, end) != '.') break;
        p = q + 1;
    }
    for (;;) {
        const char *own = is_among(byte_at(p, end), "{$#%") ? field(p, end) : NULL;
        uint32_t c = letter_at(p, end, &bytes);
        if (own) {
            last = p = own;
        } else if (!bytes || begins_with(p, end, "{%")) {
            break;
        } else if (c == '(') {
            for (p += bytes; (c = letter_at(p, end, &bytes), bytes) && is_of_url(c);) p += bytes;
            if (c != ')' || !bytes) break;
            last = ++p;
        } else if (is_of_url(c)) {
            p += bytes;
            bool is_last = c < 128 ? !is_among((char)c, NOT_LAST) : c != 0x2019 && c != 0x201d && c != 0xbb && c != 0x2026;
            if (is_last) last = p;
        } else {
            break;
        }
    }
    return last;
}

static bool is_of_mailbox(char c) { return is_latin(c) || is_digit(c) || is_among(c, "._%+-"); }
static bool is_of_host(char c) { return is_latin(c) || is_digit(c) || c == '-'; }

/* An e-mail address; `*behind`: where the letters end that one could begin with. */
static const char *mail(const char *p, const char *begin, const char *end) {
    const char *first = p, *found = NULL;
    if (p > begin && is_of_mailbox(p[-1])) return NULL;
    while (p < end && p - first <= 64 && is_of_mailbox(*p)) p++;
    if (p == first || p - first > 64 || byte_at(p, end) != '@') return NULL;
    do {
        const char *label = ++p;
        while (p < end && is_of_host(*p)) p++;
        if (p == label) break;
        if (label[-1] == '.') found = p;
    } while (byte_at(p, end) == '.');
    return found;
}

/* --- markup --- */

static const char *const OPENINGS[] = {"<!--", "<![CDATA[", "<?", "<%", "{%", "{# "};
static const char *const CLOSINGS[SCANNED_MARKS] = {"-->", "]]>", "?>", "%>", "%}", "#}", "\n", "\r"};

/* Where the next mark of CLOSINGS begins from a place on; behind the text where there is none. */
static const char *next_mark(scanner *s, int which, const char *from) {
    const char *mark = CLOSINGS[which], *end = s->whole.end, *p = from;
    size_t size = strlen(mark);
    if (s->next[which] && s->next[which] >= from) return s->next[which];
    for (; p < end && (p = memchr(p, *mark, (size_t)(end - p))); p++)
        if ((size_t)(end - p) >= size && !memcmp(p, mark, size)) return s->next[which] = p;
    return s->next[which] = end;
}

/* The name of a tag, from its `<` on, and where it ends; `*is_declared` of `<!DOCTYPE`, which has no name. */
static const char *tag_name(const char *p, const char *end, text *name, bool *is_declared) {
    int bytes;
    *name = (text){p, p}, *is_declared = begins_with(p, end, "<!");
    if (byte_at(p, end) != '<') return NULL;
    const char *first = p + 1 + *is_declared;
    if (!*is_declared && byte_at(first, end) == '/') first++;
    if (begins_with(first, end, "unk>") || !is_latin(byte_at(first, end))) return NULL;
    p = first;
    if (*is_declared) {
        while (p < end && is_latin(*p)) p++;
        uint32_t c = letter_at(p, end, &bytes);
        return bytes && (c == '>' || is_space(c)) ? p : NULL;
    }
    bool has_colon = false;
    for (const char *more = first;;) {
        p = word_run(more, end, "");
        char c = byte_at(p, end);
        if (c != '.' && c != '-' && (c != ':' || has_colon)) break;
        if (word_run(p + 1, end, "") == p + 1) break;
        has_colon = has_colon || c == ':', more = p + 1;
    }
    uint32_t c = letter_at(p, end, &bytes);
    if (!bytes || (c != '/' && c != '>' && !is_space(c))) return NULL;
    *name = (text){first, p};
    return p;
}

static const char *quoted(const char *p, const char *end) {
    const char quote = *p;
    for (p++; p < end && *p != quote && *p != '\r' && *p != '\n';) p++;
    return byte_at(p, end) == quote ? p + 1 : NULL;
}

/* Behind characters other than white space and those of `none`. */
static const char *run_without(const char *p, const char *end, const char *none) {
    int bytes;
    for (uint32_t c; (c = letter_at(p, end, &bytes), bytes) && !is_space(c) && !(c < 128 && is_among((char)c, none));) p += bytes;
    return p;
}

/* An attribute with the white space before it; `*bare`: without a value. */
static const char *attribute(const char *p, const char *end, bool *bare) {
    int bytes;
    p = blanks(p, end);
    const char *rest = word_run(p, end, "@:#*.-"), *found;
    uint32_t c = letter_at(rest, end, &bytes);
    *bare = rest > p && bytes && (is_space(c) || is_among((char)(c < 128 ? c : 0), "/>{"));
    if (*bare) return rest;
    const char *sign = (rest = run_without(p, end, "\"'<>=")) > p ? blanks(rest, end) : rest;
    if (rest > p && byte_at(sign, end) == '=') {
        const char *value = blanks(sign + 1, end);
        char first = byte_at(value, end);
        if ((found = first == '"' || first == '\'' ? quoted(value, end) : field(value, end))) return found;
        if (first != '"' && first != '\'' && run_without(value, end, "\"'<>=`") > value) return run_without(value, end, "\"'<>`");
    }
    if ((found = field(p, end))) return found;
    if (!begins_with(p, end, "{%")) return NULL;
    for (p += 2; p < end && *p != '%' && *p != '\r' && *p != '\n';) p++;
    return begins_with(p, end, "%}") ? p + 2 : NULL;
}

/* A word or a quotation in a declaration, with the white space before it. */
static const char *declared(const char *p, const char *end) {
    const char *first = blanks(p, end), *rest = run_without(first, end, "\"'<>");
    if (first == p) return NULL;
    if (rest > first) return rest;
    return is_among(byte_at(first, end), "\"'") ? quoted(first, end) : NULL;
}

static bool same_name(text a, text b, bool any_case) {
    if (a.end - a.begin != b.end - b.begin) return false;
    for (; a.begin < a.end; a.begin++, b.begin++)
        if (any_case ? lowered(*a.begin) != lowered(*b.begin) : *a.begin != *b.begin) return false;
    return true;
}

bool same_tag(const placeholder *a, const placeholder *b) {
    return a->is_code == b->is_code && same_name(a->tag, b->tag, !a->is_code);
}

/* Tags of HTML that have no end tag. */
static bool stands_alone(text name) {
    static const char *const NAMES[] = {"area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (same_name(name, (text){NAMES[i], NAMES[i] + strlen(NAMES[i])}, true)) return true;
    return false;
}

/* The slot of a name among the end tags. */
static text *end_of_name(scanner *s, text name) {
    uint64_t hash = 14695981039346656037u;
    for (const char *p = name.begin; p < name.end; p++) hash = (hash ^ (uint8_t)lowered(*p)) * 1099511628211u;
    for (size_t i = (size_t)(hash ^ hash >> 32);; i++) {
        text *slot = &s->ends[i & (s->end_slots - 1)];
        if (!slot->begin || same_name(*slot, name, true)) return slot;
    }
}

/* Whether an end tag of this name is behind a place. */
static bool is_ended(scanner *s, text name, const char *from) {
    const char *end = s->whole.end;
    if (!s->ends) {
        size_t count = 1;
        for (const char *p = s->whole.begin; p < end; p++) count += *p == '<' && byte_at(p + 1, end) == '/';
        for (s->end_slots = 2; s->end_slots < 2 * count;) s->end_slots *= 2;
        if (!(s->ends = calloc(s->end_slots, sizeof *s->ends))) return s->out_of_memory = true, false;
        for (const char *p = s->whole.begin; p < end; p++) {
            if (!begins_with(p, end, "</") || !is_latin(byte_at(p + 2, end))) continue;
            text own = {p + 2, word_run(p + 2, end, ":.-")};
            *end_of_name(s, own) = own;
        }
    }
    return end_of_name(s, name)->begin > from;
}

/* A tag or declaration, attribute by attribute; from where another tag has found no end, neither does this one. */
static const char *tag(scanner *s, const char *begin) {
    const char *end = s->whole.end;
    text name;
    bool is_declared, has_bare = false, is_sure = false, bare = false;
    const char *p = tag_name(begin, end, &name, &is_declared);
    for (s->read_count = 0; p;) {
        const char *last = blanks(p, end);
        last = byte_at(last, end) == '/' ? blanks(last + 1, end) : last;
        if (byte_at(last, end) == '>') {
            bool is_glued = begin > s->whole.begin && is_alphanumeric(last_of((text){s->whole.begin, begin}));
            if (!has_bare || !is_glued || is_sure || stands_alone(name) || is_ended(s, name, begin)) return last + 1;
            return NULL; /* a<b and c>d */
        }
        size_t place = (size_t)(p - s->whole.begin);
        if (!s->failed) s->failed = calloc((size_t)(end - s->whole.begin) / 8 + 1, 1);
        if (!s->failed || !grown(&s->read, sizeof *s->read, &s->read_room, s->read_count + 1))
            return s->out_of_memory = true, NULL;
        s->read[s->read_count++] = p;
        bool has_failed = s->failed[place / 8] >> place % 8 & 1;
        bare = false;
        p = has_failed ? NULL : is_declared ? declared(p, end) : attribute(p, end, &bare);
        has_bare = has_bare || (p && bare);
        is_sure = is_sure || (p && (p[-1] == '"' || p[-1] == '\''));
    }
    for (size_t i = 0; i < s->read_count; i++) {
        size_t place = (size_t)(s->read[i] - s->whole.begin);
        s->failed[place / 8] |= (uint8_t)(1 << place % 8);
    }
    return NULL;
}

/* --- what they are in a sentence --- */

/* Names of entities by what they are: white space and dashes, what opens, what closes, quotation marks that do both. */
static const char *const ENTITIES[] = {
    " dash emsp13 emsp14 emsp ensp hairsp horbar hyphen mdash MediumSpace nbsp ndash NewLine NonBreakingSpace numsp puncsp"
    " Tab ThickSpace thinsp ThinSpace VeryThinSpace ",
    " bdquo gtlPar Lang lang langd langle laquo lbbrk lbrace lbrack lbrke lbrksld lbrkslu lceil lcub ldquo ldquor"
    " LeftAngleBracket LeftCeiling LeftDoubleBracket LeftFloor lfloor loang lobrk lopar lpar lparlt lsaquo lsqb lsquo lsquor"
    " OpenCurlyDoubleQuote OpenCurlyQuote sbquo ",
    " af ApplyFunction CloseCurlyDoubleQuote CloseCurlyQuote hellip ic InvisibleComma InvisibleTimes it lrm ltrPar mldr"
    " NegativeMediumSpace NegativeThickSpace NegativeThinSpace NegativeVeryThinSpace NoBreak Rang rang rangd rangle raquo"
    " rbbrk rbrace rbrack rbrke rbrksld rbrkslu rceil rcub rdquo rdquor rfloor RightAngleBracket RightCeiling"
    " RightDoubleBracket RightFloor rlm roang robrk ropar rpar rpargt rsaquo rsqb rsquo rsquor shy ZeroWidthSpace zwj zwnj ",
    " apos QUOT quot "};
enum { SPACES, OPENS, CLOSES, QUOTES, OTHERS };

/* The same of a number of a character, as browsers read it. */
static int kind_of_number(uint32_t c) {
    static const uint16_t WINDOWS[32] = {[2] = 0x201a, [4] = 0x201e, [5] = 0x2026, [11] = 0x2039, [17] = 0x2018, [18] = 0x2019,
                                         [19] = 0x201c, [20] = 0x201d, [22] = 0x2013, [23] = 0x2014, [27] = 0x203a};
    if (c >= 0x80 && c < 0xa0) c = WINDOWS[c - 0x80] ? WINDOWS[c - 0x80] : 'a';
    if (!c || (c >= 0xd800 && c <= 0xdfff) || c > 0x10ffff) return OTHERS;
    bool is_none = (c < 32 && !is_space(c)) || (c >= 28 && c < 32) || c == 11 || c == 127 || (c >= 0xfdd0 && c <= 0xfdef) ||
                   (c & 0xfffe) == 0xfffe;
    if (is_none || is_space(c) || is_dash(c)) return SPACES;
    if (c == '"' || c == '\'') return QUOTES;
    return is_opening(c) ? OPENS : is_closing(c) || c == 0x2026 ? CLOSES : OTHERS;
}

/* What an entity stands for: a space, a bracket, a quotation mark, or a word. */
static placeholder entity_found(const scanner *s, text at) {
    placeholder found = {.at = at};
    const char *name = at.begin + 1;
    size_t size = (size_t)(at.end - name) - 1;
    int kind = 0, bytes;
    if (*name == '#') {
        uint32_t number = 0;
        bool hex = lowered(name[1]) == 'x';
        for (const char *p = name + 1 + hex; p < at.end - 1; p++)
            number = number * (hex ? 16 : 10) + (uint32_t)(is_digit(*p) ? *p - '0' : lowered(*p) - 'a' + 10);
        kind = kind_of_number(number);
    } else {
        for (bool is_there = false; kind < OTHERS; kind++) {
            for (const char *p = ENTITIES[kind]; *++p && !is_there; p += strcspn(p, " "))
                is_there = strcspn(p, " ") == size && !memcmp(p, name, size);
            if (is_there) break;
        }
    }
    if (kind == QUOTES) {
        bool is_after = is_alphanumeric(last_of((text){s->whole.begin, at.begin}));
        kind = !is_after && is_alphanumeric(letter_at(at.end, s->whole.end, &bytes)) ? OPENS : CLOSES;
    }
    found.kind = kind == OTHERS ? KEPT_WORD : kind == OPENS ? KEPT_OPENING : KEPT_CLOSING;
    found.stands_alone = kind == SPACES;
    return found;
}

/* The name of what begins or ends a part of a template, `{% if %}` or `{{#each}}`; empty for anything else. */
static text code_name(text at, bool *is_end) {
    const char *p = at.begin + 2, *end = at.end;
    *is_end = false;
    if (begins_with(at.begin, end, "{%")) {
        p = after_spaces((text){p + is_among(byte_at(p, end), "-+~"), end});
        *is_end = begins_with(p, end, "end") && word_run(p + 3, end, "") > p + 3;
        p += 3 * *is_end;
    } else if (begins_with(at.begin, end, "{{") && is_among(byte_at(p, end), "#^/")) {
        *is_end = *p == '/';
        p = after_spaces((text){p + 1, end});
    } else {
        return (text){p, p};
    }
    return (text){p, word_run(p, end, "")};
}

/* What a placeholder is in its sentence: a word, or a mark before or after one. */
static placeholder found_at(const scanner *s, text at) {
    placeholder found = {.at = at};
    bool is_end, is_declared;
    if (*at.begin == '&') return entity_found(s, at);
    found.tag = code_name(at, &is_end);
    if (found.tag.begin < found.tag.end) {
        found.kind = is_end ? KEPT_CLOSING : KEPT_OPENING, found.is_code = true;
        return found;
    }
    bool is_markup = *at.begin == '<' && !begins_with(at.begin, at.end, "<![CDATA[");
    if (!is_markup && !begins_with(at.begin, at.end, "{# ")) return found;
    tag_name(at.begin, at.end, &found.tag, &is_declared);
    bool has_name = found.tag.begin < found.tag.end;
    found.kind = KEPT_CLOSING;
    if (!has_name || at.end[-2] == '/' || stands_alone(found.tag)) {
        found.stands_alone = has_name;
        found.tag.end = found.tag.begin;
    } else if (at.begin[1] != '/') {
        found.kind = KEPT_OPENING;
    }
    return found;
}

/* Where the placeholder ends that begins at a place; null if none does. */
static const char *end_of(scanner *s, const char *p) {
    const char *end = s->whole.end, *found;
    char c = *p;
    if (is_among(lowered(c), "hfw") && (found = url(p, s->whole.begin, end))) return found;
    if (is_of_mailbox(c) && (found = mail(p, s->whole.begin, end))) return found;
    for (int i = 0; (c == '<' || c == '{') && i < (int)(sizeof OPENINGS / sizeof *OPENINGS); i++) {
        if (!begins_with(p, end, OPENINGS[i])) continue;
        found = next_mark(s, i, p + strlen(OPENINGS[i]));
        if (found < end && found < next_mark(s, 6, p) && found < next_mark(s, 7, p)) return found + strlen(CLOSINGS[i]);
    }
    if (c == '<') return tag(s, p);
    if (c == '&') return entity(p, end);
    if (!is_among(c, "{$#%")) return NULL;
    return (found = field(p, end)) ? found : conversion(p, s->whole.begin, end);
}

/* The next placeholder, which may touch others. */
static bool scan_one(scanner *s, placeholder *to) {
    if (!s->at) s->at = s->whole.begin;
    while (s->at < s->whole.end && !s->out_of_memory) {
        const char *begin = s->at, *found = end_of(s, begin);
        s->at = found ? found : begin + 1;
        if (!found) continue;
        *to = found_at(s, (text){begin, found});
        return true;
    }
    return false;
}

bool scan_next(scanner *s, placeholder *to) {
    if (!s->has_ahead && !scan_one(s, &s->ahead)) return false;
    *to = s->ahead;
    while ((s->has_ahead = scan_one(s, &s->ahead)) && to->kind == KEPT_WORD && s->ahead.kind == KEPT_WORD &&
           to->at.end == s->ahead.at.begin)
        to->at.end = s->ahead.at.end;
    return !s->out_of_memory;
}

/* How often a placeholder is in some texts more than in others. */
typedef struct {
    text at;
    int64_t excess;
} tally;

static bool add_tallies(tally *slots, size_t room, text from, int change) {
    scanner s = {.whole = from};
    placeholder found;
    while (scan_one(&s, &found)) {
        uint64_t hash = 14695981039346656037u;
        for (const char *p = found.at.begin; p < found.at.end; p++) hash = (hash ^ (uint8_t)*p) * 1099511628211u;
        size_t i = (size_t)(hash ^ hash >> 32);
        while (slots[i & (room - 1)].at.begin && !same_name(slots[i & (room - 1)].at, found.at, false)) i++;
        slots[i & (room - 1)].at = found.at, slots[i & (room - 1)].excess += change;
    }
    scan_end(&s);
    return !s.out_of_memory;
}

int same_placeholders(const text *some, size_t count, const text *others, size_t other_count) {
    size_t bytes = 1, room = 2;
    for (size_t i = 0; i < count + other_count; i++) {
        text one = i < count ? some[i] : others[i - count];
        bytes += (size_t)(one.end - one.begin);
    }
    while (room < bytes) room *= 2; /* a placeholder has two bytes or more */
    tally *slots = calloc(room, sizeof *slots);
    bool fine = slots != NULL, same = true;
    for (size_t i = 0; fine && i < count; i++) fine = add_tallies(slots, room, some[i], 1);
    for (size_t i = 0; fine && i < other_count; i++) fine = add_tallies(slots, room, others[i], -1);
    for (size_t i = 0; fine && i < room; i++) same = same && !slots[i].excess;
    free(slots);
    return fine ? same : -1;
}

int64_t without_placeholders(text from, char **to, size_t *room) {
    size_t size = 0, room_between = 0, between_size = 0;
    char *between = NULL;
    if (!grown(&between, 1, &room_between, 2 * (size_t)(from.end - from.begin) + 1)) return -1;
    for (const char *p = from.begin; p < from.end; p++) /* each mark that is left out is one byte */
        if (!is_among(*p, "{}<>@")) between[between_size++] = *p;
    memmove(between + room_between - between_size, between, between_size);
    const char *p = between + room_between - between_size, *end = p + between_size;
    for (between_size = 0; p < end; p++) { /* what is written stays behind what is read: it grows by a half at most */
        bool is_www = end - p >= 4 && lowered(p[0]) == 'w' && lowered(p[1]) == 'w' && lowered(p[2]) == 'w' && p[3] == '.';
        bool is_scheme = begins_with(p, end, "://");
        if (is_www) {
            memmove(between + between_size, p, 3);
            between_size += 3, p += 3;
            between[between_size++] = ' ';
            between[between_size++] = '.';
        } else {
            between[between_size++] = *p;
            if (is_scheme) between[between_size++] = ' ';
        }
    }
    bool fine = grown(to, 1, room, 2 * between_size + 1);
    end = between + between_size;
    for (p = between; fine && p < end; p++) {
        (*to)[size++] = *p;
        if ((*p == '%' && conversion(p, between, end)) || (*p == '&' && entity(p, end))) (*to)[size++] = ' ';
    }
    free(between);
    return fine ? (int64_t)size : -1;
}

void scan_end(scanner *s) {
    free(s->failed);
    free(s->read);
    free(s->ends);
}
