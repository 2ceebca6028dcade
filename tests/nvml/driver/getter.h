/* Most of NVML is one shape: a device in, one number out. Each such function is one line. */
#ifndef STUB_GETTER_H
#define STUB_GETTER_H

#include <stddef.h>

#include "control.h"

/* A number that is the same for every test. */
#define FIXED(function, type, value)                                                               \
    NVML function(nvmlDevice_t device, type *out)                                                  \
    {                                                                                              \
        BEGIN(function, device);                                                                   \
        NEED(out != NULL, NVML_ERROR_INVALID_ARGUMENT);                                            \
        *out = (type)(value);                                                                      \
        return NVML_SUCCESS;                                                                       \
    }

/* A reading with a known truth, which a test may declare not supported. */
#define READING(function, type, metric)                                                            \
    NVML function(nvmlDevice_t device, type *out)                                                  \
    {                                                                                              \
        BEGIN(function, device);                                                                   \
        NEED(supported(&call, metric), NVML_ERROR_NOT_SUPPORTED);                                  \
        NEED(out != NULL, NVML_ERROR_INVALID_ARGUMENT);                                            \
        *out = (type)reading(&call, metric);                                                       \
        return NVML_SUCCESS;                                                                       \
    }

/* Two numbers that never change. */
#define FIXED_PAIR(function, type, first_value, second_value)                                      \
    NVML function(nvmlDevice_t device, type *first, type *second)                                  \
    {                                                                                              \
        BEGIN(function, device);                                                                   \
        NEED(first != NULL && second != NULL, NVML_ERROR_INVALID_ARGUMENT);                        \
        *first = (type)(first_value);                                                              \
        *second = (type)(second_value);                                                            \
        return NVML_SUCCESS;                                                                       \
    }

#endif
