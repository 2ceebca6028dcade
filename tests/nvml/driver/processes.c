/* Which processes hold a GPU, and how much of it each one uses. */
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "control.h"

/* A process list is longer than a word, so it is copied between two looks at its generation; one
 * that was written meanwhile (the generation is odd or has changed) is copied again. */
static unsigned copy_processes(const struct call *call, struct stub_process *copy)
{
    const struct stub_gpu *gpu = gpu_of(call);
    const _Atomic uint32_t *generation = (const _Atomic uint32_t *)&gpu->generation;
    unsigned count = 0;
    for (int attempt = 0; attempt < 10000; attempt++) {
        if (attempt > 0)
            sleep_us(10); /* the writer may have lost its processor in the middle */
        uint32_t before = atomic_load(generation);
        count = gpu->process_count < STUB_PROCESSES ? gpu->process_count : STUB_PROCESSES;
        memcpy(copy, gpu->processes, count * sizeof *copy);
        atomic_thread_fence(memory_order_seq_cst);
        if (before % 2 == 0 && atomic_load(generation) == before)
            break;
    }
    return count;
}

static unsigned list_processes(const struct call *call, enum process_kind kind, struct stub_process *list)
{
    struct stub_process all[STUB_PROCESSES];
    unsigned count = copy_processes(call, all), kept = 0;
    for (unsigned i = 0; i < count; i++)
        if ((all[i].kind & kind) && (call->instance == 0 || call->instance == all[i].instance))
            list[kept++] = all[i];
    return kept;
}

/* NVML's size protocol: too little room is an error that says how much is needed; a caller starts
 * with none at all, and no processes fit in no room. */
#define LIST(function, type, process_kind, write)                                                  \
    NVML function(nvmlDevice_t device, unsigned *count, type *infos)                               \
    {                                                                                              \
        struct stub_process list[STUB_PROCESSES];                                                  \
        BEGIN(function, device);                                                                   \
        unsigned room = *count;                                                                    \
        *count = list_processes(&call, process_kind, list);                                        \
        NEED(*count <= room, NVML_ERROR_INSUFFICIENT_SIZE);                                        \
        NEED(*count == 0 || infos != NULL, NVML_ERROR_INVALID_ARGUMENT);                           \
        for (unsigned i = 0; i < *count; i++)                                                      \
            infos[i] = write(&list[i]);                                                            \
        return NVML_SUCCESS;                                                                       \
    }

static nvmlProcessInfo_v1_t write_v1(const struct stub_process *process)
{
    return (nvmlProcessInfo_v1_t){process->pid, process->memory};
}

LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, KIND_COMPUTE, write_v1)
LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, KIND_GRAPHICS, write_v1)

#if DRIVER >= 470
static nvmlProcessInfo_v2_t write_v2(const struct stub_process *process)
{
    const unsigned no_instance = 0xffffffffu; /* MIG is off */
    unsigned gpu_instance = process->instance > 0 ? process->instance : no_instance;
    unsigned compute_instance = process->instance > 0 ? 0 : no_instance;
    return (nvmlProcessInfo_v2_t){process->pid, process->memory, gpu_instance, compute_instance};
}

LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, KIND_MPS, write_v1)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, KIND_COMPUTE, write_v2)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, KIND_GRAPHICS, write_v2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, KIND_MPS, write_v2)
#endif

#if DRIVER >= 580
LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, KIND_COMPUTE, write_v2)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_v2_t, KIND_GRAPHICS, write_v2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, KIND_MPS, write_v2)
#endif

/* A new sample of every process each quarter of a second. Who has seen the newest one gets
 * NOT_FOUND, which is not the same as processes that use nothing. */
#define SAMPLE_NS 250000000ll

NVML nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                     unsigned *count, unsigned long long last_seen_us)
{
    struct stub_process list[STUB_PROCESSES];
    BEGIN(nvmlDeviceGetProcessUtilization, device);
    NEED(!mig_is_on(call.gpu), NVML_ERROR_NOT_SUPPORTED);
    unsigned room = *count, available = copy_processes(&call, list), written = 0;
    int64_t stamp = unix_us(call.elapsed_ns / SAMPLE_NS * SAMPLE_NS);
    NEED(stamp > (int64_t)last_seen_us, NVML_ERROR_NOT_FOUND);
    for (unsigned i = 0; i < available; i++)
        if (list[i].sm != NOT_SAMPLED)
            list[written++] = list[i];
    NEED(written > 0, NVML_ERROR_NOT_FOUND);
    *count = written;
    NEED(samples != NULL && room >= written, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < written; i++)
        samples[i] = (nvmlProcessUtilizationSample_t){
            list[i].pid, (unsigned long long)stamp, list[i].sm, list[i].mem, list[i].enc, list[i].dec};
    return NVML_SUCCESS;
}
