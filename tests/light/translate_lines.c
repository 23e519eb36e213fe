/* Translates the lines of a file: translate_lines MODEL FILE KERNELS THREADS. Prints the name of the kernels, then the
   translations; or what is wrong, with exit code 1. `-` is the model with the name below: arguments of programs on
   Windows are in other encodings. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nmt_engine.h"

int main(int count, char **arguments) {
    static char text[1 << 20];
    static const char *lines[1 << 14];
    static size_t sizes[1 << 14];
    char problem[400];
    if (count != 5) return 2;
    FILE *file = fopen(arguments[2], "rb");
    if (!file) return 2;
    size_t size = fread(text, 1, sizeof text, file), found = 0;
    fclose(file);
    for (char *at = text, *end; (end = memchr(at, '\n', (size_t)(text + size - at))); at = end + 1)
        lines[found] = at, sizes[found++] = (size_t)(end - at);
    const char *model_file = strcmp(arguments[1], "-") ? arguments[1] : "mod\xc3\xa8le.nmt", *kernels = arguments[3];
    nmt_model *model = nmt_open(&model_file, 1, strcmp(kernels, "best") ? kernels : NULL, problem, sizeof problem);
    if (!model) return puts(problem), 1;
    puts(nmt_kernels(model));
    nmt_options options = nmt_defaults(model);
    if (!nmt_set_option(&options, "threads", atof(arguments[4]), problem, sizeof problem)) return puts(problem), 1;
    nmt_results *results = nmt_translate(model, lines, sizes, found, &options, problem, sizeof problem);
    if (!results) return puts(problem), 1;
    const char *translations = nmt_lines(results, &size);
    fwrite(translations, 1, size, stdout);
    nmt_free(results);
    nmt_close(model);
    return 0;
}
