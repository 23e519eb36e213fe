/* The placeholders of a text as numbers, six for each: begin, end, kind, whether it stands alone, begin and end of its tag. */

#include <stdlib.h>

#include "placeholders.h"

size_t scan(const char *begin, size_t size, int64_t *to) {
    scanner s = {.whole = {begin, begin + size}};
    placeholder p;
    size_t count = 0;
    for (; scan_next(&s, &p); count++) {
        const bool has_tag = p.tag.begin < p.tag.end;
        const int64_t own[] = {p.at.begin - begin, p.at.end - begin, (int64_t)p.kind, p.stands_alone,
                               has_tag ? p.tag.begin - begin : 0, has_tag ? p.tag.end - begin : 0};
        for (int i = 0; i < 6; i++) to[6 * count + (size_t)i] = own[i];
    }
    scan_end(&s);
    return count;
}

int64_t broken(const char *begin, size_t size, char *to, size_t room) {
    char *made = NULL;
    size_t own = 0;
    const int64_t found = without_placeholders((text){begin, begin + size}, &made, &own);
    for (int64_t i = 0; i < found && (size_t)i < room; i++) to[i] = made[i];
    free(made);
    return found;
}
