/* A call of a kernel in the form that Python writes: three slots for the called function, then its arguments. */

#ifndef NMT_CALL_H
#define NMT_CALL_H

#include "simd.h"

typedef union slot slot;
typedef void (*kernel_function)(void); /* of any type; only its caller knows it */
typedef void (*caller_function)(kernel_function, const slot *arguments);

union slot {
    void *p;
    i64 i;
    float f;
    kernel_function kernel;
    caller_function caller;
};

#endif
