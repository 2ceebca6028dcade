#ifndef STUB_VALUES_H
#define STUB_VALUES_H

#include <stdbool.h>

#include "layout.h"

/* What the driver reports for a metric, in the driver's unit, `elapsed_ns` after the start. */
uint64_t stub_value(enum metric metric, unsigned gpu, int64_t elapsed_ns, bool constant);

/* Mean of what GPM measures, in the driver's unit, from one moment after the start to another. */
double stub_gpm(enum gpm metric, unsigned gpu, int64_t begin_ns, int64_t end_ns, bool constant);

#endif
