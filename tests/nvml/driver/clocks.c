/* Clocks, and the reasons why they are lower than they could be. */
#include "getter.h"

enum { GRAPHICS = 0, SM = 1, MEMORY = 2, VIDEO = 3, CLOCK_TYPES = 4 };
static const unsigned maximum_mhz[CLOCK_TYPES] = {1980, 1980, 2619, 1545};
#define ALL_REASONS 0x1ffull

static nvmlReturn_t current_clock(const struct call *call, unsigned type, unsigned *megahertz)
{
    NEED(type < CLOCK_TYPES, NVML_ERROR_INVALID_ARGUMENT);
    enum metric metric = type == MEMORY ? METRIC_CLOCK_MEMORY : METRIC_CLOCK_SM;
    NEED(supported(call, metric), NVML_ERROR_NOT_SUPPORTED);
    *megahertz = type == VIDEO ? 1500 : (unsigned)reading(call, metric);
    return NVML_SUCCESS;
}

NVML nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned type, unsigned *megahertz)
{
    BEGIN(nvmlDeviceGetClockInfo, device);
    return current_clock(&call, type, megahertz);
}

NVML nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned type, unsigned *megahertz)
{
    BEGIN(nvmlDeviceGetMaxClockInfo, device);
    NEED(type < CLOCK_TYPES, NVML_ERROR_INVALID_ARGUMENT);
    NEED(type != SM || supported(&call, METRIC_CLOCK_SM_MAX), NVML_ERROR_NOT_SUPPORTED);
    *megahertz = type == SM ? (unsigned)reading(&call, METRIC_CLOCK_SM_MAX) : maximum_mhz[type];
    return NVML_SUCCESS;
}

NVML nvmlDeviceGetApplicationsClock(nvmlDevice_t device, unsigned type, unsigned *megahertz)
{
    BEGIN(nvmlDeviceGetApplicationsClock, device);
    NEED(type < CLOCK_TYPES, NVML_ERROR_INVALID_ARGUMENT);
    *megahertz = maximum_mhz[type];
    return NVML_SUCCESS;
}

NVML nvmlDeviceGetClock(nvmlDevice_t device, unsigned type, unsigned id, unsigned *megahertz)
{
    enum { CURRENT = 0, ID_COUNT = 4 };
    BEGIN(nvmlDeviceGetClock, device);
    NEED(type < CLOCK_TYPES && id < ID_COUNT, NVML_ERROR_INVALID_ARGUMENT);
    if (id == CURRENT)
        return current_clock(&call, type, megahertz);
    *megahertz = maximum_mhz[type];
    return NVML_SUCCESS;
}

static nvmlReturn_t list_clocks(const unsigned *clocks, unsigned available, unsigned *count, unsigned *out)
{
    unsigned room = *count;
    *count = available;
    NEED(room >= available, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < available; i++)
        out[i] = clocks[i];
    return NVML_SUCCESS;
}

NVML nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned *count, unsigned *megahertz)
{
    static const unsigned clocks[] = {2619, 1593};
    BEGIN(nvmlDeviceGetSupportedMemoryClocks, device);
    return list_clocks(clocks, 2, count, megahertz);
}

NVML nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned memory_mhz, unsigned *count,
                                          unsigned *megahertz)
{
    static const unsigned clocks[] = {1980, 1755, 1410, 1095};
    BEGIN(nvmlDeviceGetSupportedGraphicsClocks, device);
    NEED(memory_mhz == 2619 || memory_mhz == 1593, NVML_ERROR_NOT_FOUND);
    return list_clocks(clocks, 4, count, megahertz);
}

READING(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, METRIC_EVENT_REASONS)
FIXED(nvmlDeviceGetSupportedClocksThrottleReasons, unsigned long long, ALL_REASONS)
#if DRIVER >= 580 /* "throttle" became "event" with branch 535 */
READING(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, METRIC_EVENT_REASONS)
FIXED(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, ALL_REASONS)
#endif
