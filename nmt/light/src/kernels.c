/* Which kernels this processor can run. */

#include "kernels.h"

#include <string.h>

#if defined(ONLY) /* the table for the processor of the machine that compiles this */
#elif defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

/* Best first; what can run any can run those after it. */
#if defined(__x86_64__) && !defined(ONLY)
extern const kernels kernels_avx512_bf16, kernels_avx512_vnni, kernels_avx2, kernels_plain;

static const kernels *const tables[] = {&kernels_avx512_bf16, &kernels_avx512_vnni, &kernels_avx2, &kernels_plain, 0};

/* Asked of the processor itself, as the builtins for it answer from a library that zig has only the names of. The
   system has to save the registers, too: XCR0 says which. */
static int first_that_runs(void) {
    enum { FMA_XSAVE_AVX = 1 << 12 | 1 << 27 | 1 << 28, AVX2 = 1 << 5, BF16 = 1 << 5, VNNI = 1 << 11 };
    const uint32_t avx512_f_dq_bw_vl = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
    uint32_t a, b, c, d, saved, above;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & FMA_XSAVE_AVX) != FMA_XSAVE_AVX) return 3;
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(above) : "c"(0));
    if ((saved & 0x06) != 0x06 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & AVX2)) return 3;
    if ((saved & 0xe6) != 0xe6 || (b & avx512_f_dq_bw_vl) != avx512_f_dq_bw_vl || !(c & VNNI)) return 2;
    return a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & BF16) ? 0 : 1;
}

#elif defined(__aarch64__) && !defined(ONLY)
extern const kernels kernels_neon, kernels_plain;

static const kernels *const tables[] = {&kernels_neon, &kernels_plain, 0};

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
#define ONLY kernels_simd128
#elif !defined(ONLY)
#define ONLY kernels_plain
#endif
extern const kernels ONLY;

static const kernels *const tables[] = {&ONLY, 0};

static int first_that_runs(void) { return 0; }
#endif

const kernels *const *kernel_tables(void) { return tables + first_that_runs(); }

size_t linear_scratch(const tensor *w, i64 rows) {
    const size_t groups = (size_t)group_count(w), n = (size_t)rows;
    if (n > SIZE_MAX / 8 / ((size_t)w->columns + 4)) return SIZE_MAX; /* where addresses have 32 bits */
    if (w->type == MATRIX_INT8) return n * (groups * 3 * GROUP + sizeof(float)) + 32; /* scales, int8 values, what AVX2 makes of them */
    return w->type == MATRIX_BF16 ? n * groups * 2 * sizeof(float) : 0;
}
