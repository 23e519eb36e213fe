/* One step of a unit without matrices for a row of channels, included in place of the loops of nmt/ops/native/scan.h. */

INLINE void UNIT(channel)(const float *x, const float *before, const float *const v[4], float *after, i64 H, i64 j,
                          const int options) {
    float in[INPUTS], weight[VECTORS + 1], state[STATES];
#define ROW_INPUT(i) in[i] = x[(i) * H + j]
#define ROW_WEIGHT(i) weight[i] = v[i][j]
#define ROW_BEFORE(i) state[i] = before[(i) * H + j]
#define ROW_AFTER(i) after[(i) * H + j] = state[i]
    EACH(INPUTS, ROW_INPUT)
    EACH(VECTORS, ROW_WEIGHT)
    EACH(STATES, ROW_BEFORE)
    UNIT(step)(in, weight, state, options);
    EACH(STATES, ROW_AFTER)
}

static void UNIT(row)(const float *x, const float *before, const float *u, const float *const v[4], int p, float *after,
                      i64 H) {
    const float *const vectors[4] = {v[0], v[1], v[2], v[3]}; /* which no store can change */
    (void)u;
    if (OPTIONS && p)
#pragma omp simd
        for (i64 j = 0; j < H; j++) UNIT(channel)(x, before, vectors, after, H, j, 1);
    else
#pragma omp simd
        for (i64 j = 0; j < H; j++) UNIT(channel)(x, before, vectors, after, H, j, 0);
}

_Static_assert(OPTIONS <= 1 && VECTORS <= 4, "more than an instruction has");
