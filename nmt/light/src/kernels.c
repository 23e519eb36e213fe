/* Which kernels this processor can run. */

#include "kernels.h"

#include <string.h>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

/* Best first, by their names and whether the processor can run them; what can run any can run those after it. What the
   builtins ask for includes that the system saves the registers. */
#if defined(__x86_64__)
extern const kernels kernels_avx512_bf16, kernels_avx512_vnni, kernels_avx2, kernels_plain;

static const kernels *const tables[] = {&kernels_avx512_bf16, &kernels_avx512_vnni, &kernels_avx2, &kernels_plain};
static const char *const names[] = {"avx512_bf16", "avx512_vnni", "avx2", "plain", 0};

static int first_that_runs(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 3;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vnni"))
        return 2;
    return __builtin_cpu_supports("avx512bf16") ? 0 : 1;
}

#elif defined(__aarch64__)
extern const kernels kernels_neon, kernels_plain;

static const kernels *const tables[] = {&kernels_neon, &kernels_plain};
static const char *const names[] = {"neon", "plain", 0};

static int first_that_runs(void) {
#if defined(__linux__)
    return (getauxval(AT_HWCAP) >> 20 & 1) ? 0 : 1; /* HWCAP_ASIMDDP: the dot product */
#elif defined(__APPLE__) || defined(__ARM_FEATURE_DOTPROD)
    return 0;
#else
    return 1;
#endif
}

#else
#if defined(__wasm_simd128__)
extern const kernels kernels_simd128;

static const kernels *const tables[] = {&kernels_simd128};
static const char *const names[] = {"simd128", 0};
#else
extern const kernels kernels_plain;

static const kernels *const tables[] = {&kernels_plain};
static const char *const names[] = {"plain", 0};
#endif

static int first_that_runs(void) { return 0; }
#endif

const char *const *kernel_names(void) { return names + first_that_runs(); }

const kernels *choose_kernels(const char *name) {
    for (int i = first_that_runs(); names[i]; i++)
        if (!name || !strcmp(name, names[i])) return tables[i];
    return 0;
}

size_t linear_scratch(const tensor *w, i64 rows) {
    const size_t K = (size_t)w->columns, n = (size_t)rows;
    if (w->type == MATRIX_INT8) return n * ((K + 3) / 4 * 4 + sizeof(float)); /* int8 values and their scales */
    if (w->type == MATRIX_BF16) return n * (K + 1) / 2 * 2 * sizeof(float);
    return 0;
}
