/* Many readings in one call: field values, and the driver's own sample buffers. */
#include <stddef.h>

#include "control.h"

/* Counters of throttled time. Drivers from 575 to 580.65 have three of them at 251-253, later ones at 269-271;
 * what each has at the other place is power smoothing. An id is therefore only good for its release. */
#if DRIVER >= 615
#define FIELD_SW_THERMAL 269
#else
#define FIELD_SW_THERMAL 251
#endif

struct field {
    unsigned id;
    unsigned since; /* the first driver level that knows it */
    nvmlValueType_t type;
    enum metric metric;
};

static const struct field fields[] = {
    {3, 390, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_ECC_CORRECTED},
    {4, 390, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_ECC_UNCORRECTED},
    {5, 390, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_ECC_CORRECTED_LIFETIME},
    {6, 390, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_ECC_UNCORRECTED_LIFETIME},
    {31, 390, NVML_VALUE_TYPE_UNSIGNED_INT, METRIC_RETIREMENT_PENDING},
    {38, 390, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_NVLINK_CRC_ERRORS}, /* of control; 45 of data: none */
    {52, 390, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_NVLINK_REPLAYS},
    {59, 390, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_NVLINK_RECOVERIES},
    {91, 470, NVML_VALUE_TYPE_UNSIGNED_INT, METRIC_NVLINK_LINKS},
    {94, 470, NVML_VALUE_TYPE_UNSIGNED_INT, METRIC_PCIE_REPLAYS},
    {142, 470, NVML_VALUE_TYPE_UNSIGNED_INT, METRIC_ROWS_REMAPPED_CORRECTED},
    {143, 470, NVML_VALUE_TYPE_UNSIGNED_INT, METRIC_ROWS_REMAPPED_UNCORRECTED},
    {144, 470, NVML_VALUE_TYPE_UNSIGNED_INT, METRIC_REMAPPING_PENDING},
    {145, 470, NVML_VALUE_TYPE_UNSIGNED_INT, METRIC_REMAPPING_FAILED},
    {230, 580, NVML_VALUE_TYPE_UNSIGNED_INT, METRIC_RECOVERY_ACTION},
    {74, 390, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_THROTTLED_SW_POWER},
    {76, 390, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_THROTTLED_SYNC_BOOST},
    {82, 470, NVML_VALUE_TYPE_UNSIGNED_INT, METRIC_TEMPERATURE_MEMORY},
    {83, 470, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_ENERGY},
    {185, 580, NVML_VALUE_TYPE_UNSIGNED_INT, METRIC_POWER}, /* average */
    {186, 580, NVML_VALUE_TYPE_UNSIGNED_INT, METRIC_POWER_INSTANT},
    {190, 580, NVML_VALUE_TYPE_UNSIGNED_INT, METRIC_POWER_LIMIT},
    {191, 580, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_ENERGY},
    {192, 580, NVML_VALUE_TYPE_UNSIGNED_INT, METRIC_POWER_LIMIT}, /* requested */
    {197, 580, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_PCIE_SENT},
    {198, 580, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_PCIE_RECEIVED},
    {FIELD_SW_THERMAL, 580, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_THROTTLED_SW_THERMAL},
    {FIELD_SW_THERMAL + 1, 580, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_THROTTLED_HW_THERMAL},
    {FIELD_SW_THERMAL + 2, 580, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_THROTTLED_HW_POWER_BRAKE},
};

/* Fields that never change, all unsigned int. */
static const struct {
    unsigned id, since, value;
} fixed_fields[] = {
    {1, 390, 1},        /* ECC on */
    {2, 390, 1},        /* and stays on */
    {45, 390, 0},       /* NVLink CRC errors of data */
    {187, 580, 200000}, /* lowest power limit, mW */
    {188, 580, 700000}, /* highest */
    {189, 580, 700000}, /* default */
};

/* Fields of one NVLink link, whose index is the scope; of the byte counters UINT_MAX is all links together. */
static const struct field link_fields[] = {
    {138, 470, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_NVLINK_SENT},
    {139, 470, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_NVLINK_RECEIVED},
    {161, 580, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_NVLINK_REPLAYS},
    {162, 580, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_NVLINK_RECOVERIES},
    {163, 580, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, METRIC_NVLINK_CRC_ERRORS},
    {165, 580, NVML_VALUE_TYPE_UNSIGNED_INT, METRIC_NVLINK_ACTIVE},
};

static void store(nvmlFieldValue_t *out, nvmlValueType_t type, uint64_t value)
{
    out->nvmlReturn = NVML_SUCCESS;
    out->valueType = type;
    out->value.ullVal = 0; /* the upper half of a short value is not garbage in the real driver either */
    if (type == NVML_VALUE_TYPE_UNSIGNED_INT)
        out->value.uiVal = (unsigned)value;
    else
        out->value.ullVal = value;
}

static void fill(const struct call *call, nvmlFieldValue_t *out)
{
    out->timestamp = unix_us(call->elapsed_ns);
    out->latencyUsec = 1;
    out->nvmlReturn = NVML_ERROR_NOT_SUPPORTED; /* of an unknown id: in its own entry, not of the call */
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const struct field *field = &fields[i];
        if (field->id != out->fieldId || DRIVER < field->since || !supported(call, field->metric))
            continue;
        bool pcie = field->metric == METRIC_PCIE_SENT || field->metric == METRIC_PCIE_RECEIVED;
        bool narrow = pcie && control()->pcie_bits == 32;
        store(out, narrow ? NVML_VALUE_TYPE_UNSIGNED_INT : field->type, reading(call, field->metric));
    }
    for (size_t i = 0; i < sizeof fixed_fields / sizeof *fixed_fields; i++)
        if (fixed_fields[i].id == out->fieldId && DRIVER >= fixed_fields[i].since)
            store(out, NVML_VALUE_TYPE_UNSIGNED_INT, fixed_fields[i].value);
}

static void fill_of_link(const struct call *call, nvmlFieldValue_t *out)
{
    for (size_t i = 0; i < sizeof link_fields / sizeof *link_fields; i++) {
        const struct field *field = &link_fields[i];
        if (field->id != out->fieldId || DRIVER < field->since || !supported(call, field->metric))
            continue;
        uint64_t whole = reading(call, field->metric), links = reading(call, METRIC_NVLINK_LINKS);
        uint64_t active = reading(call, METRIC_NVLINK_ACTIVE), link = out->scopeId;
        bool bytes = field->id == 138 || field->id == 139;
        if (bytes && link == UINT32_MAX)
            store(out, field->type, whole);
        else if (link >= links)
            out->nvmlReturn = NVML_ERROR_INVALID_ARGUMENT;
        else if (field->id == 165)
            store(out, field->type, link < active);
        else if (link < active) /* each counts its part, the first ones what does not divide */
            store(out, field->type, whole / active + (link < whole % active));
    }
}

NVML nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *is_active)
{
    BEGIN(nvmlDeviceGetNvLinkState, device);
    bool both = supported(&call, METRIC_NVLINK_LINKS) && supported(&call, METRIC_NVLINK_ACTIVE);
    NEED(both, NVML_ERROR_NOT_SUPPORTED);
    NEED(link < reading(&call, METRIC_NVLINK_LINKS) && is_active != NULL, NVML_ERROR_INVALID_ARGUMENT);
    *is_active = link < reading(&call, METRIC_NVLINK_ACTIVE);
    return NVML_SUCCESS;
}

NVML nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    BEGIN(nvmlDeviceGetFieldValues, device);
    NEED(count > 0 && values != NULL, NVML_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < count; i++) {
        fill(&call, &values[i]);
        fill_of_link(&call, &values[i]);
    }
    return NVML_SUCCESS;
}

/* The driver keeps the last samples of some readings, from the start on; a caller passes the newest
 * time stamp it has seen and gets what came after, oldest first. truth.py has both numbers, too. */
#if DRIVER >= 470
#define SAMPLES_PER_SECOND 6
#define SAMPLES_KEPT 100
#define SAMPLE_ELAPSED_NS(number) ((number) * 1000000000ll / SAMPLES_PER_SECOND)

static bool sampled_metric(unsigned type, enum metric *metric)
{
    static const enum metric by_type[] = {
        METRIC_POWER,
        METRIC_UTILIZATION,
        METRIC_MEMORY_UTILIZATION,
        METRIC_ENCODER_UTILIZATION,
        METRIC_DECODER_UTILIZATION,
        METRIC_CLOCK_SM,
        METRIC_CLOCK_MEMORY,
    };
    if (type >= sizeof by_type / sizeof *by_type)
        return false;
    *metric = by_type[type];
    return true;
}

/* How much of the time that a sample is the mean of was a stall: of the time since the sample before. */
#define SAMPLE_NS (1000000000ll / SAMPLES_PER_SECOND)
static int64_t stalled_ns(const struct call *call, int64_t end)
{
    const struct stub_gpu *gpu = gpu_of(call);
    int64_t begin = end - SAMPLE_NS, over = gpu->stall_at_ns + gpu->stall_ns;
    int64_t first = gpu->stall_at_ns > begin ? gpu->stall_at_ns : begin, last = over < end ? over : end;
    return last > first ? last - first : 0;
}

NVML nvmlDeviceGetSamples(nvmlDevice_t device, unsigned type, unsigned long long last_seen_us,
                          nvmlValueType_t *value_type, unsigned *count, nvmlSample_t *samples)
{
    enum metric metric;
    BEGIN(nvmlDeviceGetSamples, device);
    NEED(sampled_metric(type, &metric) && supported(&call, metric), NVML_ERROR_NOT_SUPPORTED);
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    if (samples == NULL) {
        *count = SAMPLES_KEPT; /* asked for the size of the buffer, not for what is in it */
        return NVML_SUCCESS;
    }
    unsigned room = *count, written = 0;
    int64_t newest = call.elapsed_ns * SAMPLES_PER_SECOND / 1000000000ll;
    while (SAMPLE_ELAPSED_NS(newest + 1) <= call.elapsed_ns)
        newest++; /* the division above may be one short */
    int64_t oldest = newest < SAMPLES_KEPT ? 0 : newest - SAMPLES_KEPT + 1;
    for (int64_t number = oldest; number <= newest && written < room; number++) {
        int64_t stamp = unix_us(SAMPLE_ELAPSED_NS(number));
        if (stamp <= (int64_t)last_seen_us)
            continue;
        samples[written].timeStamp = (unsigned long long)stamp;
        samples[written].sampleValue.ullVal = 0;
        uint64_t value = reading_at(&call, metric, SAMPLE_ELAPSED_NS(number));
        if (metric == METRIC_UTILIZATION)
            value = value * (uint64_t)(SAMPLE_NS - stalled_ns(&call, SAMPLE_ELAPSED_NS(number))) / SAMPLE_NS;
        samples[written].sampleValue.uiVal = (unsigned)value;
        written++;
    }
    *count = written;
    return written > 0 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
#endif
