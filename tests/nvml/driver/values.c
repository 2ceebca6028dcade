/* The truth. truth.py states the same functions a second time, expression by expression, so that a
 * test can compare what came through the driver with what should have; change both or neither.
 * Doubles are computed in the same order on both sides, which makes them equal to the last bit. */
#include "values.h"

#include <math.h>

#define TAU 6.283185307179586
#define MIB 1048576ull
#define GIB 1073741824ull

/* Even GPUs: a triangle between 4 and 98 percent; odd GPUs: a square wave of 92 and 11 percent. */
static uint64_t utilization(unsigned gpu, double s)
{
    double period = 20.0 + 5.0 * (gpu % 9);
    double phase = fmod(s / period + 0.3 + 0.1 * gpu, 1.0);
    if (gpu % 2 == 1)
        return phase < 0.6 ? 92 : 11;
    double height = phase < 0.5 ? 2.0 * phase : 2.0 - 2.0 * phase;
    return (uint64_t)floor(4.0 + 94.0 * height);
}

/* A sine around a mean, so that the energy counter has a closed form: the exact integral of it. */
static double power_mean(unsigned gpu) { return 300.0 + 10.0 * (gpu % 8); }
static double power_omega(unsigned gpu) { return TAU / (30.0 + gpu); }
static double power_phase(unsigned gpu) { return 0.5 * gpu; }
#define POWER_SWING 120.0

static double power(unsigned gpu, double s)
{
    return power_mean(gpu) + POWER_SWING * sin(power_omega(gpu) * s + power_phase(gpu));
}

static double energy_since_start(unsigned gpu, double s, bool constant)
{
    if (constant)
        return power(gpu, 0.0) * s;
    double omega = power_omega(gpu), phase = power_phase(gpu);
    return power_mean(gpu) * s + POWER_SWING / omega * (cos(phase) - cos(omega * s + phase));
}

static uint64_t temperature(unsigned gpu, double s)
{
    return (uint64_t)floor(55.0 + 12.0 * sin(TAU * s / 120.0 + 0.5 * gpu));
}

/* A counter that a real driver began long before: an offset, then a known rate. */
static uint64_t counter(uint64_t offset, double rate, double s)
{
    return offset + (uint64_t)floor(rate * s);
}

static uint64_t throttled_ns(unsigned gpu, double seconds_per_second, unsigned offset_s, double s)
{
    double rate = seconds_per_second * (1.0 + gpu / 64.0) * 1e9;
    return counter((offset_s + gpu) * 1000000000ull, rate, s);
}

static uint64_t event_reasons(unsigned gpu, double s)
{
    enum { SW_POWER_CAP = 0x4, SW_THERMAL = 0x20 };
    if (gpu % 2 == 0)
        return gpu % 4 == 0 ? SW_POWER_CAP : 0;
    return fmod(s / (10.0 + gpu), 1.0) < 0.5 ? SW_POWER_CAP | SW_THERMAL : 0;
}

static uint64_t clock_sm(unsigned gpu, double s)
{
    static const uint64_t megahertz[] = {1980, 1755, 1410, 1095};
    return megahertz[((uint64_t)floor(s / 15.0) + gpu) % 4];
}

/* A ramp of 256 MiB every two seconds that starts over after four minutes. */
static uint64_t memory_used(unsigned gpu, double s)
{
    return (4 + gpu) * GIB + 256 * MIB * ((uint64_t)floor(s / 2.0) % 120);
}

static uint64_t pcie_rate(bool sent, unsigned gpu) /* bytes a second */
{
    return sent ? 150000000 + 10000000 * gpu : 320000000 + 20000000 * gpu;
}

/* A wave around a mean for each metric of GPM, and its exact integral from 0 to s. */
static double gpm_omega(enum gpm metric, unsigned gpu) { return TAU / (24.0 + metric + gpu); }
static double gpm_phase(enum gpm metric, unsigned gpu) { return 0.7 * metric + 0.5 * gpu; }

static double gpm_wave(enum gpm metric, unsigned gpu, double s, bool integral)
{
    static const double waves[][2] = {
#define G(id, name, number, mean, swing, numerator, denominator) {mean, swing},
#include "gpm.def"
#undef G
    };
    double mean = waves[metric][0], swing = waves[metric][1];
    double omega = gpm_omega(metric, gpu), phase = gpm_phase(metric, gpu);
    if (integral)
        return mean * s + swing / omega * (cos(phase) - cos(omega * s + phase));
    return mean + swing * sin(omega * s + phase);
}

double stub_gpm(enum gpm metric, unsigned gpu, int64_t begin_ns, int64_t end_ns, bool constant)
{
    if (metric == GPM_PCIE_SENT_RATE || metric == GPM_PCIE_RECEIVED_RATE)
        return (double)pcie_rate(metric == GPM_PCIE_SENT_RATE, gpu) / MIB;
    double begin = (double)begin_ns / 1e9, end = (double)end_ns / 1e9;
    if (constant || end <= begin) /* of no time at all it is the value of the moment */
        return gpm_wave(metric, gpu, constant ? 0.0 : end, false);
    return (gpm_wave(metric, gpu, end, true) - gpm_wave(metric, gpu, begin, true)) / (end - begin);
}

uint64_t stub_value(enum metric metric, unsigned gpu, int64_t elapsed_ns, bool constant)
{
    double now = elapsed_ns > 0 ? (double)elapsed_ns / 1e9 : 0.0; /* counters run in any mode */
    double s = constant ? 0.0 : now;                              /* the rest may stand still */
    switch (metric) {
    case METRIC_UTILIZATION:
        return utilization(gpu, s);
    case METRIC_MEMORY_UTILIZATION:
        return utilization(gpu, s) * 3 / 5;
    case METRIC_MEMORY_USED:
        return memory_used(gpu, s);
    case METRIC_MEMORY_RESERVED:
        return (600 + gpu) * MIB;
    case METRIC_MEMORY_TOTAL:
        return 80 * GIB;
    case METRIC_POWER:
        return (uint64_t)floor(1000.0 * power(gpu, s));
    case METRIC_POWER_LIMIT:
        return 700000 - 10000 * (gpu % 8);
    case METRIC_ENERGY: /* more than 32 bits of mJ from the start, as on a machine that is up for weeks */
        return 8000000000ull + gpu * 111111111ull +
               (uint64_t)floor(1000.0 * energy_since_start(gpu, now, constant));
    case METRIC_TEMPERATURE:
        return temperature(gpu, s);
    case METRIC_TEMPERATURE_MEMORY:
        return temperature(gpu, s) + 9 + gpu % 4;
    case METRIC_CLOCK_SM:
        return clock_sm(gpu, s);
    case METRIC_CLOCK_SM_MAX:
        return 1980;
    case METRIC_CLOCK_MEMORY:
        return gpu % 2 == 0 ? 2619 : 1593;
    case METRIC_EVENT_REASONS:
        return event_reasons(gpu, s);
    case METRIC_THROTTLED_SW_POWER:
        return throttled_ns(gpu, 0.25, 5000, now);
    case METRIC_THROTTLED_SYNC_BOOST:
        return throttled_ns(gpu, 0.01, 100, now);
    case METRIC_THROTTLED_SW_THERMAL:
        return throttled_ns(gpu, 0.125, 2000, now);
    case METRIC_THROTTLED_HW_THERMAL:
        return throttled_ns(gpu, 0.05, 300, now);
    case METRIC_THROTTLED_HW_POWER_BRAKE:
        return throttled_ns(gpu, 0.005, 10, now);
    case METRIC_FAN:
        return 30 + 2 * (gpu % 32);
    case METRIC_PERFORMANCE_STATE:
        return gpu % 2 == 0 ? 0 : 2;
    case METRIC_PCIE_GENERATION:
        return gpu % 2 == 0 ? 5 : 4;
    case METRIC_PCIE_WIDTH:
        return gpu % 4 == 3 ? 8 : 16;
    case METRIC_PCIE_SENT:
        return counter(123456789012ull + gpu, (double)pcie_rate(true, gpu), now);
    case METRIC_PCIE_RECEIVED:
        return counter(987654321098ull + gpu, (double)pcie_rate(false, gpu), now);
    case METRIC_ENCODER_UTILIZATION:
        return (7 * gpu + 3) % 60;
    case METRIC_DECODER_UTILIZATION:
        return (11 * gpu + 5) % 60;
    case METRIC_POWER_INSTANT:
        return (uint64_t)floor(1000.0 * (power(gpu, s) + 25.0 * sin(TAU * s / 3.0)));
    case METRIC_NVLINK_SENT: /* KiB */
        return counter(7000000000ull + gpu, 40e6 + 2e6 * gpu, now);
    case METRIC_NVLINK_RECEIVED:
        return counter(6000000000ull + gpu, 35e6 + 3e6 * gpu, now);
    case METRIC_ECC_CORRECTED:
        return 3 * gpu + 1;
    case METRIC_ECC_CORRECTED_LIFETIME:
        return 7 * gpu + 12;
    case METRIC_ECC_UNCORRECTED_LIFETIME:
        return gpu % 3;
    case METRIC_ROWS_REMAPPED_CORRECTED:
        return gpu % 2;
    case METRIC_ROWS_REMAPPED_UNCORRECTED:
        return gpu % 3;
    case METRIC_ECC_UNCORRECTED: /* what people must act on: only when a test says so */
    case METRIC_REMAPPING_PENDING:
    case METRIC_REMAPPING_FAILED:
    case METRIC_RETIREMENT_PENDING:
    case METRIC_RECOVERY_ACTION:
        return 0;
    case METRIC_PCIE_REPLAYS:
        return 2 * gpu;
    case METRIC_NVLINK_LINKS:
    case METRIC_NVLINK_ACTIVE:
        return 18;
    case METRIC_NVLINK_REPLAYS:
        return 20 + gpu;
    case METRIC_NVLINK_RECOVERIES:
        return gpu % 4;
    case METRIC_NVLINK_CRC_ERRORS:
        return 50 + 5 * gpu;
    case METRIC_PCIE_GENERATION_MAX: /* every link is as fast as it can be, until a test says otherwise */
        return gpu % 2 == 0 ? 5 : 4;
    case METRIC_PCIE_WIDTH_MAX:
        return gpu % 4 == 3 ? 8 : 16;
    case METRIC_TEMPERATURE_SLOWDOWN:
        return 89;
    case METRIC_TEMPERATURE_SHUTDOWN:
        return 92;
    case METRIC_TEMPERATURE_MARGIN:
        return 89 - temperature(gpu, s);
    case METRIC_JPEG_UTILIZATION:
        return (3 * gpu + 2) % 60;
    case METRIC_OPTICAL_FLOW_UTILIZATION:
        return (5 * gpu + 9) % 60;
    case METRIC_COUNT:
        break;
    }
    return 0;
}
