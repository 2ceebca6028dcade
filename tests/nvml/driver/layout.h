/* The control file: what a test tells the stub driver, and the calls it counted.
 *
 * Python creates it (layout.py mirrors these structs field by field), every process that loads the
 * stub maps it shared. There are no locks: each setting is one aligned word, each counter is an
 * atomic add, and a process list, the one thing that is longer, carries a generation that is odd
 * while it is being written. */
#ifndef STUB_LAYOUT_H
#define STUB_LAYOUT_H

#include <stdint.h>

#define STUB_MAGIC 0x6e6f6d7570676c00ull
#define STUB_VERSION 8u /* raise it with any change below; layout.py has the same number */

#define STUB_GPUS 32
#define STUB_PROCESSES 64
#define STUB_METRIC_ROOM 128 /* metrics that can be set apart; a multiple of 64 */
#define STUB_ANY STUB_GPUS /* the slot for "every GPU", and for calls that name no GPU */

enum function {
#define F(name) FN_##name,
#include "functions.def"
#undef F
    FUNCTION_COUNT
};

enum metric {
#define M(id, name, numerator, denominator) METRIC_##id,
#include "metrics.def"
#undef M
    METRIC_COUNT
};
_Static_assert(METRIC_COUNT <= STUB_METRIC_ROOM, "raise STUB_METRIC_ROOM, here and in layout.py");

enum gpm {
#define G(id, name, number, mean, swing, numerator, denominator) GPM_##id,
#include "gpm.def"
#undef G
    GPM_COUNT
};
#define GPM_ALL ((1u << GPM_COUNT) - 1)

enum process_kind { KIND_COMPUTE = 1, KIND_GRAPHICS = 2, KIND_MPS = 4 }; /* bits: one may be several */

#define NOT_SAMPLED UINT32_MAX /* sm of a process of which the driver has no utilization sample */

#define STUB_INSTANCES 7 /* of MIG, on a GPU */

struct stub_process {
    uint64_t memory; /* bytes, or UINT64_MAX where the driver does not know */
    uint32_t pid;
    uint32_t kind;
    uint32_t sm; /* percent, or NOT_SAMPLED */
    uint32_t mem;
    uint32_t enc;
    uint32_t dec;
    uint32_t instance; /* of MIG, from 1; 0: on the whole GPU */
    uint32_t padding;
};

struct stub_gpu {
    char name[96];
    char uuid[48];
    uint64_t unsupported[STUB_METRIC_ROOM / 64]; /* one bit per metric */
    uint64_t is_set[STUB_METRIC_ROOM / 64];      /* one bit per metric: it has the value below */
    uint64_t set[STUB_METRIC_ROOM];              /* in the driver's unit, in place of its function of time */
    uint32_t lost;
    uint32_t generation; /* odd while the process list is being written */
    uint32_t process_count;
    uint32_t without_gpm; /* one bit per metric of gpm.def; all of them: the GPU has no GPM */
    int64_t stall_at_ns; /* a stall: from so long after the start on, for so long, no kernel runs */
    int64_t stall_ns;
    struct stub_process processes[STUB_PROCESSES];
};

struct stub_function {
    uint64_t calls[STUB_GPUS + 1];
    uint32_t latency_us[STUB_GPUS + 1]; /* the slot of the GPU and STUB_ANY add up */
    uint32_t error[STUB_GPUS + 1];      /* the slot of the GPU, if set, before STUB_ANY */
};

/* What happened, as nvmlEventSetWait reports it; kept in turn, the newest over the oldest. */
#define STUB_EVENTS 64
struct stub_event {
    uint64_t type; /* one bit of nvml.h's nvmlEventType */
    uint64_t data; /* of an XID its code */
    uint32_t gpu;
    uint32_t padding;
};

/* How one instance of MIG differs from the others. */
struct stub_instance {
    uint32_t error;      /* every call with its handle fails so */
    uint32_t latency_us; /* of every call with its handle */
    uint32_t slices;     /* 0: one */
    uint32_t is_empty;   /* whether none of its memory is used */
};

struct stub_file {
    uint64_t magic;
    uint32_t version;
    uint32_t size;
    int64_t t0_ns;      /* CLOCK_MONOTONIC at the start: every value is a function of the time since */
    int64_t t0_unix_ns; /* CLOCK_REALTIME at the same moment, for the time stamps of samples */
    int64_t elapsed_ns; /* a clock that stands still, set by a test; negative: the real one runs */
    uint32_t gpu_count;
    uint32_t constant;     /* moving values keep their value of t0; counters grow linearly */
    uint32_t driver_error; /* every call answers this, as with a driver that is not loaded */
    uint32_t pcie_bits;    /* width of the PCIe byte counters: 32 (they wrap) or 64 */
    struct stub_gpu gpus[STUB_GPUS];
    struct stub_function functions[FUNCTION_COUNT];
    uint64_t event_types; /* that GPUs support; 0: events are not supported */
    uint64_t event_count; /* events since the start; the next one lies at this number modulo STUB_EVENTS */
    struct stub_event events[STUB_EVENTS];
    uint32_t kernel_module; /* branch of the kernel's part: one that differs from DRIVER refuses; 0: any will do */
    uint32_t one_at_a_time; /* a call that waits holds a lock, for which all others of its process wait */
    uint32_t mig[STUB_GPUS]; /* 0: MIG is off; else one more than the instances that there are */
    uint32_t event_look_us;  /* time between two looks for events: a real driver sleeps, and looking costs CPU */
    struct stub_instance instances[STUB_GPUS][STUB_INSTANCES];
};

#endif
