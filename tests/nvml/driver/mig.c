/* MIG: a GPU divided into instances, each with a handle of its own. Instance i has the GPU instance i + 1, with one
 * compute instance. They are those that a test set; nothing here makes or destroys one. */
#include "getter.h"

#if DRIVER >= 470
FIXED(nvmlDeviceGetMaxMigDeviceCount, unsigned, STUB_INSTANCES)
FIXED(nvmlDeviceIsMigDeviceHandle, unsigned, call.instance > 0)
FIXED_PAIR(nvmlDeviceGetMigMode, unsigned, mig_is_on(call.gpu), mig_is_on(call.gpu))

NVML nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *instance)
{
    BEGIN(nvmlDeviceGetMigDeviceHandleByIndex, device);
    NEED(instance != NULL && index < STUB_INSTANCES, NVML_ERROR_INVALID_ARGUMENT);
    NEED(index < instances_of(call.gpu), NVML_ERROR_NOT_FOUND);
    *instance = instance_handle(call.gpu, index + 1);
    return NVML_SUCCESS;
}

NVML nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t instance, nvmlDevice_t *device)
{
    BEGIN(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, instance);
    NEED(device != NULL && call.instance > 0, NVML_ERROR_INVALID_ARGUMENT);
    *device = device_handle(call.gpu);
    return NVML_SUCCESS;
}

/* A function that only the handle of an instance has. */
#define OF_INSTANCE(function, value)                                                               \
    NVML function(nvmlDevice_t device, unsigned *out)                                              \
    {                                                                                              \
        BEGIN(function, device);                                                                   \
        NEED(call.instance > 0, NVML_ERROR_NOT_SUPPORTED);                                         \
        NEED(out != NULL, NVML_ERROR_INVALID_ARGUMENT);                                            \
        *out = (value);                                                                            \
        return NVML_SUCCESS;                                                                       \
    }

OF_INSTANCE(nvmlDeviceGetGpuInstanceId, call.instance)
OF_INSTANCE(nvmlDeviceGetComputeInstanceId, 0)

NVML nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    BEGIN(nvmlDeviceGetAttributes_v2, device);
    NEED(call.instance > 0, NVML_ERROR_NOT_SUPPORTED);
    NEED(attributes != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = 16, .sharedCopyEngineCount = 1, .sharedDecoderCount = 1, .sharedJpegCount = 1,
        .gpuInstanceSliceCount = slices_of(&call), .computeInstanceSliceCount = slices_of(&call),
        .memorySizeMB = 10240 * slices_of(&call),
    };
    return NVML_SUCCESS;
}
#endif
