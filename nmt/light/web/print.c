/* snprintf for the engine's messages in WebAssembly: 18 kB smaller than libc's, and of its directives only those that the
   engine uses: %s, %.Ns and %.*s, %d, %u, %lld, %llu, %zu, and %.Ng, for which numbers have at most four decimals. */

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct {
    char *text;
    size_t room, size; /* `size` counts what had no room, too */
} printed;

static void put(printed *to, char c) {
    if (to->size + 1 < to->room) to->text[to->size] = c;
    to->size++;
}

static void put_number(printed *to, unsigned long long value, bool is_negative) {
    char digits[20];
    int n = 0;
    if (is_negative) put(to, '-');
    do digits[n++] = (char)('0' + value % 10);
    while (value /= 10);
    while (n) put(to, digits[--n]);
}

static void put_decimal(printed *to, double value) {
    const unsigned long long parts = (unsigned long long)((value < 0 ? -value : value) * 10000 + .5);
    put_number(to, parts / 10000, value < 0 && parts);
    if (parts % 10000) put(to, '.');
    for (unsigned long long left = parts % 10000; left; left = left * 10 % 10000) put(to, (char)('0' + left / 1000));
}

/* With -Dsnprintf=nmt_snprintf this is what <stdio.h> declares. */
int snprintf(char *restrict text, size_t room, const char *restrict format, ...) {
    printed to = {text, room, 0};
    va_list values;
    va_start(values, format);
    for (const char *f = format; *f; f++) {
        if (*f != '%') {
            put(&to, *f);
            continue;
        }
        size_t most = (size_t)-1, longs = 0;
        if (*++f == '.')
            for (most = 0; *++f >= '0' && *f <= '9';) most = most * 10 + (size_t)(*f - '0');
        if (*f == '*') most = (size_t)va_arg(values, int), f++;
        for (; *f == 'l' || *f == 'z'; f++) longs += *f == 'l';
        if (*f == 's') {
            for (const char *s = va_arg(values, const char *); most-- && *s; s++) put(&to, *s);
        } else if (*f == 'g') {
            put_decimal(&to, va_arg(values, double));
        } else if (*f == 'd') {
            const long long value = longs == 2 ? va_arg(values, long long) : va_arg(values, int);
            put_number(&to, value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value, value < 0);
        } else { /* u */
            put_number(&to, longs == 2 ? va_arg(values, unsigned long long) : va_arg(values, unsigned), false);
        }
    }
    va_end(values);
    if (room) text[to.size < room ? to.size : room - 1] = 0;
    return (int)to.size;
}
