#define _GNU_SOURCE
#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "values.h"

struct nvmlDevice_st {
    unsigned gpu;
    unsigned instance; /* of MIG, from 1; 0: the whole GPU */
};

static struct nvmlDevice_st handles[STUB_GPUS][STUB_INSTANCES + 1];
static struct stub_file defaults; /* used without GPUMON_STUB_FILE: 2 GPUs, no processes */
static struct stub_file *shared = &defaults;
static nvmlReturn_t shared_status = NVML_SUCCESS;
static atomic_int users; /* nvmlInit minus nvmlShutdown of this process */

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* --- the control file -------------------------------------------------------------------------- */

static void set_defaults(void)
{
    defaults.t0_ns = clock_ns(CLOCK_MONOTONIC);
    defaults.t0_unix_ns = clock_ns(CLOCK_REALTIME);
    defaults.elapsed_ns = -1;
    defaults.gpu_count = 2;
    defaults.pcie_bits = 64;
    defaults.event_types = UINT64_MAX;
    for (unsigned gpu = 0; gpu < STUB_GPUS; gpu++) {
        snprintf(defaults.gpus[gpu].name, sizeof defaults.gpus[gpu].name, "NVIDIA H100 80GB HBM3");
        snprintf(defaults.gpus[gpu].uuid, sizeof defaults.gpus[gpu].uuid,
                 "GPU-6770756d-6f6e-4000-8000-%012x", gpu + 1);
        defaults.gpus[gpu].without_gpm = GPM_ALL;
    }
}

static nvmlReturn_t refuse(const char *path, const char *why, nvmlReturn_t status)
{
    fprintf(stderr, "stub NVML driver: GPUMON_STUB_FILE=%s: %s\n", path, why);
    return status;
}

/* A file of another layout would be misread silently, so nothing works with it, and stderr says why. */
static nvmlReturn_t map_file(const char *path)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return refuse(path, strerror(errno), NVML_ERROR_OPERATING_SYSTEM);
    struct stat info;
    bool whole = fstat(file, &info) == 0 && info.st_size >= (off_t)sizeof(struct stub_file);
    void *memory = whole ? mmap(NULL, sizeof(struct stub_file), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                         : MAP_FAILED;
    close(file);
    if (!whole)
        return refuse(path, "too short for this driver's layout", NVML_ERROR_LIB_RM_VERSION_MISMATCH);
    if (memory == MAP_FAILED)
        return refuse(path, strerror(errno), NVML_ERROR_OPERATING_SYSTEM);
    struct stub_file *found = memory;
    if (found->magic != STUB_MAGIC || found->version != STUB_VERSION ||
        found->size != sizeof(struct stub_file)) {
        munmap(memory, sizeof(struct stub_file));
        return refuse(path, "layout version or size differs from this driver's",
                      NVML_ERROR_LIB_RM_VERSION_MISMATCH);
    }
    shared = found;
    return NVML_SUCCESS;
}

__attribute__((constructor)) static void load(void)
{
    for (unsigned gpu = 0; gpu < STUB_GPUS; gpu++)
        for (unsigned instance = 0; instance <= STUB_INSTANCES; instance++)
            handles[gpu][instance] = (struct nvmlDevice_st){gpu, instance};
    set_defaults();
    const char *path = getenv("GPUMON_STUB_FILE");
    if (path != NULL && path[0] != '\0')
        shared_status = map_file(path);
}

struct stub_file *control(void) { return shared; }
nvmlReturn_t control_status(void) { return shared_status; }

/* --- initialized or not ------------------------------------------------------------------------ */

void open_driver(void) { atomic_fetch_add(&users, 1); }

nvmlReturn_t close_driver(void)
{
    int before = atomic_load(&users);
    while (before > 0)
        if (atomic_compare_exchange_weak(&users, &before, before - 1))
            return NVML_SUCCESS;
    return NVML_ERROR_UNINITIALIZED;
}

/* --- a call ------------------------------------------------------------------------------------ */

void sleep_us(uint64_t microseconds)
{
    struct timespec rest = {(time_t)(microseconds / 1000000), (long)(microseconds % 1000000) * 1000};
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR)
        ;
}

/* Slept in slices that look at the setting again, so that a test can end a hang that it began. */
static void wait_latency(enum function function, unsigned gpu, unsigned instance)
{
    enum { SLICE_US = 20000 };
    const volatile uint32_t *latency = shared->functions[function].latency_us;
    const volatile struct stub_instance *own = instance > 0 ? &shared->instances[gpu][instance - 1] : NULL;
    for (uint64_t waited = 0;;) {
        uint64_t wanted = latency[STUB_ANY] + (gpu == STUB_ANY ? 0ull : latency[gpu]);
        wanted += own == NULL ? 0ull : own->latency_us;
        if (waited >= wanted)
            return;
        uint64_t slice = wanted - waited < SLICE_US ? wanted - waited : SLICE_US;
        sleep_us(slice);
        waited += slice;
    }
}

/* As of drivers that hold one lock for all GPUs while they wait for one of them. */
static void wait_in_turn(enum function function, unsigned gpu, unsigned instance)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    bool in_turn = shared->one_at_a_time != 0;
    if (in_turn)
        pthread_mutex_lock(&lock);
    wait_latency(function, gpu, instance);
    if (in_turn)
        pthread_mutex_unlock(&lock);
}

static nvmlReturn_t wanted_error(enum function function, unsigned gpu)
{
    const struct stub_function *settings = &shared->functions[function];
    if (shared->driver_error != 0)
        return (nvmlReturn_t)shared->driver_error;
    if (shared->kernel_module != 0 && shared->kernel_module != DRIVER)
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    if (gpu != STUB_ANY && (gpu >= shared->gpu_count || shared->gpus[gpu].lost))
        return NVML_ERROR_GPU_IS_LOST; /* a handle outlives its GPU: it fell off the bus */
    if (gpu != STUB_ANY && settings->error[gpu] != 0)
        return (nvmlReturn_t)settings->error[gpu];
    return (nvmlReturn_t)settings->error[STUB_ANY];
}

static struct call begin(enum function function, unsigned gpu, unsigned instance)
{
    _Atomic uint64_t *calls = (_Atomic uint64_t *)shared->functions[function].calls;
    atomic_fetch_add_explicit(&calls[gpu], 1, memory_order_relaxed);
    wait_in_turn(function, gpu, instance);
    int64_t elapsed = shared->elapsed_ns;
    if (elapsed < 0)
        elapsed = clock_ns(CLOCK_MONOTONIC) - shared->t0_ns;
    nvmlReturn_t status = wanted_error(function, gpu);
    if (status == NVML_SUCCESS && instance > 0)
        status = (nvmlReturn_t)shared->instances[gpu][instance - 1].error;
    return (struct call){status, gpu, instance, elapsed};
}

struct call begin_system(enum function function)
{
    struct call call = begin(function, STUB_ANY, 0);
    bool needs_init = function > FN_nvmlErrorString; /* all but init, shutdown and the error's text */
    if (needs_init && atomic_load(&users) == 0)
        call.status = NVML_ERROR_UNINITIALIZED;
    return call;
}

/* Of an instance NVML tells little; what it does not is not supported with its handle. */
static bool is_of_instances(enum function function)
{
    static const enum function of_instances[] = {
        FN_nvmlDeviceGetName, FN_nvmlDeviceGetUUID, FN_nvmlDeviceGetMemoryInfo, FN_nvmlDeviceGetMemoryInfo_v2,
        FN_nvmlDeviceGetComputeRunningProcesses, FN_nvmlDeviceGetComputeRunningProcesses_v2,
        FN_nvmlDeviceGetComputeRunningProcesses_v3, FN_nvmlDeviceGetGraphicsRunningProcesses,
        FN_nvmlDeviceGetGraphicsRunningProcesses_v2, FN_nvmlDeviceGetGraphicsRunningProcesses_v3,
        FN_nvmlDeviceIsMigDeviceHandle, FN_nvmlDeviceGetGpuInstanceId, FN_nvmlDeviceGetComputeInstanceId,
        FN_nvmlDeviceGetAttributes_v2, FN_nvmlDeviceGetDeviceHandleFromMigDeviceHandle,
    };
    for (unsigned i = 0; i < sizeof of_instances / sizeof *of_instances; i++)
        if (of_instances[i] == function)
            return true;
    return false;
}

struct call begin_device(enum function function, nvmlDevice_t device)
{
    if (device < &handles[0][0] || device > &handles[STUB_GPUS - 1][STUB_INSTANCES])
        return (struct call){NVML_ERROR_INVALID_ARGUMENT, STUB_ANY, 0, 0};
    struct call call = begin(function, device->gpu, device->instance);
    if (atomic_load(&users) == 0)
        call.status = NVML_ERROR_UNINITIALIZED;
    else if (call.status == NVML_SUCCESS && call.instance > instances_of(call.gpu))
        call.status = NVML_ERROR_NOT_FOUND; /* a handle outlives its instance, too */
    else if (call.status == NVML_SUCCESS && call.instance > 0 && !is_of_instances(function))
        call.status = NVML_ERROR_NOT_SUPPORTED;
    return call;
}

nvmlReturn_t status_now(enum function function, unsigned gpu)
{
    return atomic_load(&users) == 0 ? NVML_ERROR_UNINITIALIZED : wanted_error(function, gpu);
}

nvmlDevice_t device_handle(unsigned gpu) { return &handles[gpu][0]; }
nvmlDevice_t instance_handle(unsigned gpu, unsigned instance) { return &handles[gpu][instance]; }
bool mig_is_on(unsigned gpu) { return shared->mig[gpu] > 0; }

unsigned instances_of(unsigned gpu)
{
    unsigned count = mig_is_on(gpu) ? shared->mig[gpu] - 1 : 0;
    return count < STUB_INSTANCES ? count : STUB_INSTANCES;
}

unsigned slices_of(const struct call *call)
{
    unsigned slices = call->instance > 0 ? shared->instances[call->gpu][call->instance - 1].slices : 0;
    return slices > 0 ? slices : 1;
}

const struct stub_gpu *gpu_of(const struct call *call) { return &shared->gpus[call->gpu]; }

nvmlReturn_t copy_text(const char *text, char *buffer, unsigned length)
{
    NEED(buffer != NULL, NVML_ERROR_INVALID_ARGUMENT);
    NEED(strlen(text) < length, NVML_ERROR_INSUFFICIENT_SIZE);
    memcpy(buffer, text, strlen(text) + 1);
    return NVML_SUCCESS;
}

/* --- values ------------------------------------------------------------------------------------ */

/* Where MIG is on, the driver says of no device how busy it is. */
static bool is_of_whole_gpus(enum metric metric)
{
    return metric == METRIC_UTILIZATION || metric == METRIC_MEMORY_UTILIZATION ||
           metric == METRIC_ENCODER_UTILIZATION || metric == METRIC_DECODER_UTILIZATION ||
           metric == METRIC_JPEG_UTILIZATION || metric == METRIC_OPTICAL_FLOW_UTILIZATION;
}

/* Memory of instances: constant, and different for each; that of the GPU is the sum. */
static bool divided_memory(const struct call *call, enum metric metric, uint64_t *bytes)
{
    enum { MIB = 1 << 20 };
    if (!mig_is_on(call->gpu))
        return false;
    if (metric == METRIC_MEMORY_TOTAL && call->instance > 0) {
        *bytes = 10240ull * MIB * slices_of(call);
        return true;
    }
    if (metric != METRIC_MEMORY_USED && metric != METRIC_MEMORY_RESERVED)
        return false;
    *bytes = 0;
    for (unsigned instance = 1; instance <= instances_of(call->gpu); instance++)
        if ((call->instance == 0 || call->instance == instance) && !shared->instances[call->gpu][instance - 1].is_empty)
            *bytes += (metric == METRIC_MEMORY_USED ? 1024ull * instance : 64ull) * MIB;
    return true;
}

bool supported(const struct call *call, enum metric metric)
{
    if (mig_is_on(call->gpu) && is_of_whole_gpus(metric))
        return false;
    return (gpu_of(call)->unsupported[metric / 64] >> metric % 64 & 1) == 0;
}

uint64_t reading_at(const struct call *call, enum metric metric, int64_t elapsed_ns)
{
    const struct stub_gpu *gpu = gpu_of(call);
    if (gpu->is_set[metric / 64] >> metric % 64 & 1)
        return gpu->set[metric];
    uint64_t divided;
    if (divided_memory(call, metric, &divided))
        return divided;
    uint64_t value = stub_value(metric, call->gpu, elapsed_ns, shared->constant != 0);
    bool narrow = shared->pcie_bits == 32 && (metric == METRIC_PCIE_SENT || metric == METRIC_PCIE_RECEIVED);
    return narrow ? (uint32_t)value : value;
}

uint64_t reading(const struct call *call, enum metric metric)
{
    return reading_at(call, metric, call->elapsed_ns);
}

int64_t unix_us(int64_t elapsed_ns) { return (shared->t0_unix_ns + elapsed_ns) / 1000; }
int64_t elapsed_of_unix_us(int64_t unix_us) { return unix_us * 1000 - shared->t0_unix_ns; }
