/* Translates a line by a model file: ./translate model.nmt "A dog runs." (light.md) */
#include <stdio.h>
#include <string.h>

#include "nmt_engine.h"

int main(int count, char **arguments) {
    char problem[400];
    if (count != 3) return fputs("give a model and a line\n", stderr), 2;
    const char *file = arguments[1], *line = arguments[2];
    nmt_model *model = nmt_open(&file, 1, NULL, problem, sizeof problem);
    if (!model) return fprintf(stderr, "%s\n", problem), 1;
    nmt_options options = nmt_defaults(model);
    size_t size = strlen(line);
    nmt_results *results = nmt_translate(model, &line, &size, 1, &options, problem, sizeof problem);
    if (!results) return fprintf(stderr, "%s\n", problem), nmt_close(model), 1;
    const char *text = nmt_lines(results, &size);
    fwrite(text, 1, size, stdout);
    nmt_free(results);
    nmt_close(model);
    return 0;
}
