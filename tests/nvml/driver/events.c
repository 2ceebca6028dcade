/* Events: what the driver reports by itself, to those who registered for it. A set gets no event from before. */
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "control.h"

struct nvmlEventSet_st {
    bool used;
    uint64_t next;             /* number of the event that comes next */
    uint64_t types[STUB_GPUS]; /* that are waited for */
    uint64_t since[STUB_GPUS]; /* number of the first event after the GPU was registered */
};

enum { SETS = 16 };
static struct nvmlEventSet_st sets[SETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_set(nvmlEventSet_t set) { return set >= sets && set < sets + SETS && set->used; }

NVML nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    BEGIN(nvmlDeviceGetSupportedEventTypes, device);
    NEED(types != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *types = control()->event_types;
    return NVML_SUCCESS;
}

NVML nvmlEventSetCreate(nvmlEventSet_t *set)
{
    BEGIN_SYSTEM(nvmlEventSetCreate);
    NEED(set != NULL, NVML_ERROR_INVALID_ARGUMENT);
    nvmlReturn_t status = NVML_ERROR_OPERATING_SYSTEM;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < SETS && status != NVML_SUCCESS; i++) {
        if (!sets[i].used) {
            sets[i] = (struct nvmlEventSet_st){.used = true, .next = control()->event_count};
            *set = &sets[i];
            status = NVML_SUCCESS;
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

NVML nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
    BEGIN(nvmlDeviceRegisterEvents, device);
    NEED(is_set(set), NVML_ERROR_INVALID_ARGUMENT);
    NEED(types != 0 && (types & ~control()->event_types) == 0, NVML_ERROR_NOT_SUPPORTED);
    if (set->types[call.gpu] == 0)
        set->since[call.gpu] = control()->event_count;
    set->types[call.gpu] |= types;
    return NVML_SUCCESS;
}

/* The oldest event that the set waits for and has not given, or NULL. */
static const struct stub_event *next_event(nvmlEventSet_t set)
{
    const struct stub_file *file = control();
    if (file->event_count - set->next > STUB_EVENTS)
        set->next = file->event_count - STUB_EVENTS;
    while (set->next < file->event_count) {
        uint64_t number = set->next++;
        const struct stub_event *event = &file->events[number % STUB_EVENTS];
        if (event->gpu < STUB_GPUS && (set->types[event->gpu] & event->type) && number >= set->since[event->gpu])
            return event;
    }
    return NULL;
}

/* As in NVML, one GPU that is lost ends the wait for all. */
static nvmlReturn_t trouble(enum function function, nvmlEventSet_t set)
{
    nvmlReturn_t status = status_now(function, STUB_ANY);
    for (unsigned gpu = 0; gpu < STUB_GPUS && status == NVML_SUCCESS; gpu++)
        if (set->types[gpu])
            status = status_now(function, gpu);
    return status;
}

static nvmlReturn_t wait_event(enum function function, nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms)
{
    struct call call = begin_system(function);
    NEED(call.status == NVML_SUCCESS, call.status);
    NEED(is_set(set) && data != NULL, NVML_ERROR_INVALID_ARGUMENT);
    for (uint64_t waited = 0;; waited += control()->event_look_us) {
        const struct stub_event *event = next_event(set);
        if (event != NULL) {
            *data = (nvmlEventData_t){device_handle(event->gpu), event->type, event->data, UINT32_MAX, UINT32_MAX};
            return NVML_SUCCESS;
        }
        nvmlReturn_t status = trouble(function, set);
        NEED(status == NVML_SUCCESS, status);
        NEED(waited < 1000ull * timeout_ms, NVML_ERROR_TIMEOUT);
        sleep_us(control()->event_look_us);
    }
}

NVML nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_v1_t *data, unsigned timeout_ms)
{
    nvmlEventData_t whole;
    nvmlReturn_t status = wait_event(FN_nvmlEventSetWait, set, &whole, timeout_ms);
    if (status == NVML_SUCCESS)
        memcpy(data, &whole, sizeof *data);
    return status;
}

#if DRIVER >= 470
NVML nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms)
{
    return wait_event(FN_nvmlEventSetWait_v2, set, data, timeout_ms);
}
#endif

NVML nvmlEventSetFree(nvmlEventSet_t set)
{
    BEGIN_SYSTEM(nvmlEventSetFree);
    NEED(is_set(set), NVML_ERROR_INVALID_ARGUMENT);
    set->used = false;
    return NVML_SUCCESS;
}
