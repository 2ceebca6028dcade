/* The readings of a GPU, one function for each: load, memory, power, heat, PCIe. */
#include "getter.h"

enum { POWER_MINIMUM_MW = 200000, POWER_DEFAULT_MW = 700000 };
#define SAMPLE_PERIOD_US 166667u /* what drivers give for encoder and decoder */

/* --- load -------------------------------------------------------------------------------------- */

NVML nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    BEGIN(nvmlDeviceGetUtilizationRates, device);
    bool both = supported(&call, METRIC_UTILIZATION) && supported(&call, METRIC_MEMORY_UTILIZATION);
    NEED(both, NVML_ERROR_NOT_SUPPORTED); /* one call, so neither without the other */
    rates->gpu = (unsigned)reading(&call, METRIC_UTILIZATION);
    rates->memory = (unsigned)reading(&call, METRIC_MEMORY_UTILIZATION);
    return NVML_SUCCESS;
}

#define CODEC(function, metric)                                                                    \
    NVML function(nvmlDevice_t device, unsigned *percent, unsigned *period_us)                     \
    {                                                                                              \
        BEGIN(function, device);                                                                   \
        NEED(supported(&call, metric), NVML_ERROR_NOT_SUPPORTED);                                  \
        *percent = (unsigned)reading(&call, metric);                                               \
        *period_us = SAMPLE_PERIOD_US;                                                             \
        return NVML_SUCCESS;                                                                       \
    }
CODEC(nvmlDeviceGetEncoderUtilization, METRIC_ENCODER_UTILIZATION)
CODEC(nvmlDeviceGetDecoderUtilization, METRIC_DECODER_UTILIZATION)
#if DRIVER >= 580
CODEC(nvmlDeviceGetJpgUtilization, METRIC_JPEG_UTILIZATION)
CODEC(nvmlDeviceGetOfaUtilization, METRIC_OPTICAL_FLOW_UTILIZATION)
#endif

READING(nvmlDeviceGetPerformanceState, unsigned, METRIC_PERFORMANCE_STATE)
READING(nvmlDeviceGetPowerState, unsigned, METRIC_PERFORMANCE_STATE)

/* --- memory ------------------------------------------------------------------------------------ */

NVML nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    BEGIN(nvmlDeviceGetMemoryInfo, device);
    bool both = supported(&call, METRIC_MEMORY_USED) && supported(&call, METRIC_MEMORY_TOTAL);
    NEED(both, NVML_ERROR_NOT_SUPPORTED);
    memory->total = reading(&call, METRIC_MEMORY_TOTAL);
    /* This version knows no reserved memory and counts it as used. */
    memory->used = reading(&call, METRIC_MEMORY_USED) + reading(&call, METRIC_MEMORY_RESERVED);
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

#if DRIVER >= 580
NVML nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    BEGIN(nvmlDeviceGetMemoryInfo_v2, device);
    NEED(memory->version == (sizeof *memory | 2u << 24), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    bool all = supported(&call, METRIC_MEMORY_USED) && supported(&call, METRIC_MEMORY_TOTAL) &&
               supported(&call, METRIC_MEMORY_RESERVED);
    NEED(all, NVML_ERROR_NOT_SUPPORTED);
    memory->total = reading(&call, METRIC_MEMORY_TOTAL);
    memory->reserved = reading(&call, METRIC_MEMORY_RESERVED);
    memory->used = reading(&call, METRIC_MEMORY_USED);
    memory->free = memory->total - memory->used - memory->reserved;
    return NVML_SUCCESS;
}
#endif

NVML nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    BEGIN(nvmlDeviceGetBAR1MemoryInfo, device);
    memory->bar1Total = 128ull << 30;
    memory->bar1Used = 2ull << 20;
    memory->bar1Free = memory->bar1Total - memory->bar1Used;
    return NVML_SUCCESS;
}

/* --- power and heat ---------------------------------------------------------------------------- */

READING(nvmlDeviceGetPowerUsage, unsigned, METRIC_POWER)
READING(nvmlDeviceGetPowerManagementLimit, unsigned, METRIC_POWER_LIMIT)
READING(nvmlDeviceGetEnforcedPowerLimit, unsigned, METRIC_POWER_LIMIT)
FIXED(nvmlDeviceGetPowerManagementMode, unsigned, 1)
FIXED(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, POWER_DEFAULT_MW)
FIXED_PAIR(nvmlDeviceGetPowerManagementLimitConstraints, unsigned, POWER_MINIMUM_MW, POWER_DEFAULT_MW)
#if DRIVER >= 470
READING(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, METRIC_ENERGY)
#endif

NVML nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *celsius)
{
    BEGIN(nvmlDeviceGetTemperature, device);
    NEED(sensor == 0, NVML_ERROR_INVALID_ARGUMENT); /* 0 is the GPU, the one sensor of this call */
    NEED(supported(&call, METRIC_TEMPERATURE), NVML_ERROR_NOT_SUPPORTED);
    *celsius = (unsigned)reading(&call, METRIC_TEMPERATURE);
    return NVML_SUCCESS;
}

#if DRIVER >= 580
NVML nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature)
{
    BEGIN(nvmlDeviceGetTemperatureV, device);
    NEED(temperature->version == (sizeof *temperature | 1u << 24), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    NEED(temperature->sensorType == 0, NVML_ERROR_INVALID_ARGUMENT);
    NEED(supported(&call, METRIC_TEMPERATURE), NVML_ERROR_NOT_SUPPORTED);
    temperature->temperature = (int)reading(&call, METRIC_TEMPERATURE);
    return NVML_SUCCESS;
}
#endif

NVML nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned threshold, unsigned *celsius)
{
    enum { SHUTDOWN = 0, SLOWDOWN = 1, MEMORY_MAX = 2, GPU_MAX = 3 };
    BEGIN(nvmlDeviceGetTemperatureThreshold, device);
    NEED(threshold <= GPU_MAX, NVML_ERROR_NOT_SUPPORTED);
    if (threshold == MEMORY_MAX || threshold == GPU_MAX) {
        *celsius = threshold == MEMORY_MAX ? 95 : 87;
        return NVML_SUCCESS;
    }
    enum metric metric = threshold == SLOWDOWN ? METRIC_TEMPERATURE_SLOWDOWN : METRIC_TEMPERATURE_SHUTDOWN;
    NEED(supported(&call, metric), NVML_ERROR_NOT_SUPPORTED);
    *celsius = (unsigned)reading(&call, metric);
    return NVML_SUCCESS;
}

#if DRIVER >= 580
NVML nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t *margin)
{
    BEGIN(nvmlDeviceGetMarginTemperature, device);
    NEED(margin->version == (sizeof *margin | 1u << 24), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    NEED(supported(&call, METRIC_TEMPERATURE_MARGIN), NVML_ERROR_NOT_SUPPORTED);
    margin->marginTemperature = (int)reading(&call, METRIC_TEMPERATURE_MARGIN);
    return NVML_SUCCESS;
}
#endif

READING(nvmlDeviceGetFanSpeed, unsigned, METRIC_FAN)
#if DRIVER >= 470
NVML nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned fan, unsigned *percent)
{
    BEGIN(nvmlDeviceGetFanSpeed_v2, device);
    NEED(fan == 0, NVML_ERROR_INVALID_ARGUMENT);
    NEED(supported(&call, METRIC_FAN), NVML_ERROR_NOT_SUPPORTED);
    *percent = (unsigned)reading(&call, METRIC_FAN);
    return NVML_SUCCESS;
}
#endif
#if DRIVER >= 580
FIXED(nvmlDeviceGetNumFans, unsigned, supported(&call, METRIC_FAN) ? 1 : 0)
#endif

/* --- PCIe -------------------------------------------------------------------------------------- */

READING(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, METRIC_PCIE_GENERATION)
READING(nvmlDeviceGetCurrPcieLinkWidth, unsigned, METRIC_PCIE_WIDTH)
READING(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, METRIC_PCIE_GENERATION_MAX)
READING(nvmlDeviceGetMaxPcieLinkWidth, unsigned, METRIC_PCIE_WIDTH_MAX)
FIXED(nvmlDeviceGetPcieReplayCounter, unsigned, 0)
#if DRIVER >= 580
FIXED(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, 5)
#endif

/* The real call counts for 20 ms before it answers, and so blocks its caller as long. */
NVML nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned direction, unsigned *kilobytes_per_second)
{
    enum { SENT = 0, RECEIVED = 1, WINDOW_US = 20000 };
    BEGIN(nvmlDeviceGetPcieThroughput, device);
    NEED(direction <= RECEIVED, NVML_ERROR_INVALID_ARGUMENT);
    enum metric metric = direction == SENT ? METRIC_PCIE_SENT : METRIC_PCIE_RECEIVED;
    NEED(supported(&call, metric), NVML_ERROR_NOT_SUPPORTED);
    sleep_us(WINDOW_US);
    int64_t end = call.elapsed_ns + 1000ll * WINDOW_US;
    uint64_t bytes = reading_at(&call, metric, end) - reading(&call, metric);
    bytes = (uint32_t)bytes; /* narrow counters may have wrapped in between */
    *kilobytes_per_second = (unsigned)(bytes * (1000000 / WINDOW_US) / 1000);
    return NVML_SUCCESS;
}
