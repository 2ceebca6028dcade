/* Starting and stopping NVML, versions, and finding a GPU. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "control.h"

#if DRIVER >= 615
#define DRIVER_VERSION "615.71.05"
#define NVML_VERSION "13.615.71.05"
#define CUDA_VERSION 13030
#elif DRIVER >= 580
#define DRIVER_VERSION "580.65.06"
#define NVML_VERSION "13.580.65.06"
#define CUDA_VERSION 13000
#elif DRIVER >= 470
#define DRIVER_VERSION "470.256.02"
#define NVML_VERSION "11.470.256.02"
#define CUDA_VERSION 11040
#else
#define DRIVER_VERSION "390.157"
#define NVML_VERSION "9.390.157"
#define CUDA_VERSION 9010
#endif

static nvmlReturn_t start(enum function function)
{
    struct call call = begin_system(function);
    NEED(control_status() == NVML_SUCCESS, control_status());
    NEED(call.status == NVML_SUCCESS, call.status);
    open_driver();
    return NVML_SUCCESS;
}

NVML nvmlInit(void) { return start(FN_nvmlInit); }
NVML nvmlInit_v2(void) { return start(FN_nvmlInit_v2); }

NVML nvmlInitWithFlags(unsigned flags)
{
    (void)flags; /* the flags loosen failures that the stub does not have */
    return start(FN_nvmlInitWithFlags);
}

NVML nvmlShutdown(void)
{
    begin_system(FN_nvmlShutdown); /* counted and slowed, but it works without a driver, too */
    return close_driver();
}

__attribute__((visibility("default"))) const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const texts[] = {
        "Success",
        "Uninitialized",
        "Invalid Argument",
        "Not Supported",
        "Insufficient Permissions",
        "Already Initialized",
        "Not Found",
        "Insufficient Size",
        "Insufficient External Power",
        "Driver Not Loaded",
        "Timeout",
        "Interrupt Request Issue",
        "NVML Shared Library Not Found",
        "Function Not Found",
        "Corrupted infoROM",
        "GPU is lost",
        "GPU requires reset",
        "The operating system has blocked the request.",
        "RM has detected an NVML/RM version mismatch.",
    };
    begin_system(FN_nvmlErrorString);
    return (size_t)result < sizeof texts / sizeof *texts ? texts[result] : "Unknown Error";
}

NVML nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    BEGIN_SYSTEM(nvmlSystemGetDriverVersion);
    return copy_text(DRIVER_VERSION, version, length);
}

NVML nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    BEGIN_SYSTEM(nvmlSystemGetNVMLVersion);
    return copy_text(NVML_VERSION, version, length);
}

#if DRIVER >= 470
NVML nvmlSystemGetCudaDriverVersion(int *version)
{
    BEGIN_SYSTEM(nvmlSystemGetCudaDriverVersion);
    *version = CUDA_VERSION;
    return NVML_SUCCESS;
}

NVML nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    BEGIN_SYSTEM(nvmlSystemGetCudaDriverVersion_v2);
    *version = CUDA_VERSION;
    return NVML_SUCCESS;
}
#endif

NVML nvmlDeviceGetCount(unsigned *count)
{
    BEGIN_SYSTEM(nvmlDeviceGetCount);
    *count = control()->gpu_count;
    return NVML_SUCCESS;
}

NVML nvmlDeviceGetCount_v2(unsigned *count)
{
    BEGIN_SYSTEM(nvmlDeviceGetCount_v2);
    *count = control()->gpu_count;
    return NVML_SUCCESS;
}

static nvmlReturn_t hand_out(unsigned gpu, nvmlDevice_t *device)
{
    NEED(!control()->gpus[gpu].lost, NVML_ERROR_GPU_IS_LOST);
    *device = device_handle(gpu);
    return NVML_SUCCESS;
}

static nvmlReturn_t by_index(enum function function, unsigned index, nvmlDevice_t *device)
{
    struct call call = begin_system(function);
    NEED(call.status == NVML_SUCCESS, call.status);
    NEED(index < control()->gpu_count, NVML_ERROR_INVALID_ARGUMENT);
    return hand_out(index, device);
}

NVML nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device)
{
    return by_index(FN_nvmlDeviceGetHandleByIndex, index, device);
}

NVML nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    return by_index(FN_nvmlDeviceGetHandleByIndex_v2, index, device);
}

static nvmlReturn_t by_text(enum function function, const char *wanted, nvmlDevice_t *device,
                            void (*text_of)(unsigned gpu, char *text, size_t size))
{
    struct call call = begin_system(function);
    NEED(call.status == NVML_SUCCESS, call.status);
    NEED(wanted != NULL, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned gpu = 0; gpu < control()->gpu_count; gpu++) {
        char text[64];
        text_of(gpu, text, sizeof text);
        if (strcasecmp(text, wanted) == 0)
            return hand_out(gpu, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

static void uuid_text(unsigned gpu, char *text, size_t size)
{
    snprintf(text, size, "%s", control()->gpus[gpu].uuid);
}

static void serial_text(unsigned gpu, char *text, size_t size)
{
    snprintf(text, size, SERIAL_FORMAT, gpu);
}

static void bus_text(unsigned gpu, char *text, size_t size)
{
    snprintf(text, size, BUS_FORMAT, PCI_BUS(gpu));
}

NVML nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    return by_text(FN_nvmlDeviceGetHandleByUUID, uuid, device, uuid_text);
}

NVML nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    return by_text(FN_nvmlDeviceGetHandleBySerial, serial, device, serial_text);
}

NVML nvmlDeviceGetHandleByPciBusId(const char *bus, nvmlDevice_t *device)
{
    return by_text(FN_nvmlDeviceGetHandleByPciBusId, bus, device, bus_text);
}

NVML nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device)
{
    return by_text(FN_nvmlDeviceGetHandleByPciBusId_v2, bus, device, bus_text);
}
