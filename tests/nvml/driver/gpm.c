/* GPM: two samples of counters, and the means of the time between them. Since driver 525. */
#include <stdlib.h>

#include "control.h"
#include "values.h"

#if DRIVER >= 580
struct nvmlGpmSample_st {
    unsigned gpu, instance;
    int64_t elapsed_ns; /* negative until there is a sample in it */
};

static const unsigned gpm_numbers[] = {
#define G(id, name, number, mean, swing, numerator, denominator) number,
#include "gpm.def"
#undef G
};

NVML nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support)
{
    BEGIN(nvmlGpmQueryDeviceSupport, device);
    NEED(support != NULL, NVML_ERROR_INVALID_ARGUMENT);
    NEED(support->version == 1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    support->isSupportedDevice = gpu_of(&call)->without_gpm != GPM_ALL;
    return NVML_SUCCESS;
}

NVML nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
    BEGIN_SYSTEM(nvmlGpmSampleAlloc);
    NEED(sample != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *sample = malloc(sizeof **sample);
    NEED(*sample != NULL, NVML_ERROR_MEMORY);
    (*sample)->elapsed_ns = -1;
    return NVML_SUCCESS;
}

NVML nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
    BEGIN_SYSTEM(nvmlGpmSampleFree);
    NEED(sample != NULL, NVML_ERROR_INVALID_ARGUMENT);
    free(sample);
    return NVML_SUCCESS;
}

NVML nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample)
{
    BEGIN(nvmlGpmSampleGet, device);
    NEED(sample != NULL, NVML_ERROR_INVALID_ARGUMENT);
    NEED(gpu_of(&call)->without_gpm != GPM_ALL, NVML_ERROR_NOT_SUPPORTED);
    sample->gpu = call.gpu;
    sample->instance = 0;
    sample->elapsed_ns = call.elapsed_ns;
    return NVML_SUCCESS;
}

/* Of the GPU and the number of its instance, not of the instance's handle. */
NVML nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned instance, nvmlGpmSample_t sample)
{
    BEGIN(nvmlGpmMigSampleGet, device);
    NEED(sample != NULL && call.instance == 0, NVML_ERROR_INVALID_ARGUMENT);
    NEED(gpu_of(&call)->without_gpm != GPM_ALL, NVML_ERROR_NOT_SUPPORTED);
    NEED(instance > 0 && instance <= instances_of(call.gpu), NVML_ERROR_NOT_FOUND);
    sample->gpu = call.gpu;
    sample->instance = instance;
    sample->elapsed_ns = call.elapsed_ns;
    return NVML_SUCCESS;
}

static void measure(const struct call *call, nvmlGpmMetric_t *metric, const nvmlGpmMetricsGet_t *pair)
{
    metric->value = 0.0;
    metric->nvmlReturn = NVML_ERROR_NOT_SUPPORTED; /* of an unknown number: in its own entry */
    for (unsigned id = 0; id < GPM_COUNT; id++)
        if (gpm_numbers[id] == metric->metricId && (gpu_of(call)->without_gpm >> id & 1) == 0) {
            metric->nvmlReturn = NVML_SUCCESS;
            metric->value = stub_gpm((enum gpm)id, call->gpu + pair->sample2->instance, pair->sample1->elapsed_ns,
                                     pair->sample2->elapsed_ns, control()->constant != 0);
        }
}

/* It takes no device: that of its samples is counted, and may fail or hang. */
NVML nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *pair)
{
    NEED(pair != NULL && pair->sample1 != NULL && pair->sample2 != NULL, NVML_ERROR_INVALID_ARGUMENT);
    BEGIN(nvmlGpmMetricsGet, device_handle(pair->sample2->gpu));
    NEED(pair->version == 1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    bool filled = pair->sample1->elapsed_ns >= 0 && pair->sample2->elapsed_ns >= 0;
    NEED(filled && pair->sample1->gpu == pair->sample2->gpu, NVML_ERROR_INVALID_ARGUMENT);
    NEED(pair->sample1->instance == pair->sample2->instance, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned i = 0; i < pair->numMetrics; i++)
        measure(&call, &pair->metrics[i], pair);
    return NVML_SUCCESS;
}
#endif
