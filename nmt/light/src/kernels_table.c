/* The kernels of one instruction set, compiled once for each of them: VERSION is its name, and the compiler is told
   what the processor has. nmt/light/sources.py lists them. */

#include "kernels.h"

#include "attend.h"
#include "best.h"
#include "linear.h"
#include "row_functions.h"
#include "units.h"

#define TEXT(x) #x
#define TEXT_OF(x) TEXT(x)

extern const kernels JOIN(kernels, VERSION);
const kernels JOIN(kernels, VERSION) = {
    .name = TEXT_OF(VERSION),
    .linear = linear,
    .embed = embed_row,
    .norm = norm_row,
    .add = add_rows,
    .tanh = tanh_row,
    .swiglu = swiglu_row,
    .powers = powers_row,
    .unit = {NAME(lrn_row), NAME(olrn_row), NAME(sru_row), NAME(ssru_row), NAME(min_gru_row), NAME(min_lstm_row),
             atr_row, rnn_row, gru_reset_row, gru_row, lstm_row},
    .attend_additive = attend_additive,
    .attend_dot = attend_dot,
    .log_sum_parts = log_sum_parts,
    .first_maximum = first_maximum,
    .add_best = add_best,
};
