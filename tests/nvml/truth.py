"""What the stub driver reports, stated a second time.

driver/values.c holds the same functions, expression by expression, in the same order of operations,
so that doubles agree to the last bit; change both or neither.
"""

import math
from collections.abc import Callable

from tests.nvml.layout import GPM, SCALES

TAU = 6.283185307179586
SAMPLES_PER_SECOND = 6
SAMPLES_KEPT = 100
SECOND = 1_000_000_000
MIB = 2**20
GIB = 2**30
POWER_SWING = 120.0
SW_POWER_CAP, SW_THERMAL = 0x4, 0x20


def utilization(gpu: int, s: float) -> int:
    """Even GPUs: a triangle between 4 and 98 percent; odd GPUs: a square wave of 92 and 11."""
    period = 20.0 + 5.0 * (gpu % 9)
    phase = math.fmod(s / period + 0.3 + 0.1 * gpu, 1.0)
    if gpu % 2 == 1:
        return 92 if phase < 0.6 else 11
    height = 2.0 * phase if phase < 0.5 else 2.0 - 2.0 * phase
    return math.floor(4.0 + 94.0 * height)


def memory_used(gpu: int, s: float) -> int:
    """A ramp of 256 MiB every two seconds that starts over after four minutes."""
    return (4 + gpu) * GIB + 256 * MIB * (math.floor(s / 2.0) % 120)


def _power_wave(gpu: int) -> tuple[float, float, float]:
    """Mean, angular frequency and phase."""
    return 300.0 + 10.0 * (gpu % 8), TAU / (30.0 + gpu), 0.5 * gpu


def power(gpu: int, s: float) -> float:
    mean, omega, phase = _power_wave(gpu)
    return mean + POWER_SWING * math.sin(omega * s + phase)


def energy_since_start(gpu: int, s: float, constant: bool) -> float:
    """The exact integral of `power` from 0 to s."""
    if constant:
        return power(gpu, 0.0) * s
    mean, omega, phase = _power_wave(gpu)
    return mean * s + POWER_SWING / omega * (math.cos(phase) - math.cos(omega * s + phase))


def temperature(gpu: int, s: float) -> int:
    return math.floor(55.0 + 12.0 * math.sin(TAU * s / 120.0 + 0.5 * gpu))


def event_reasons(gpu: int, s: float) -> int:
    """Even GPUs: always the same; odd GPUs: a square wave of two reasons and none."""
    if gpu % 2 == 0:
        return SW_POWER_CAP if gpu % 4 == 0 else 0
    return SW_POWER_CAP | SW_THERMAL if math.fmod(s / (10.0 + gpu), 1.0) < 0.5 else 0


def clock_sm(gpu: int, s: float) -> int:
    return (1980, 1755, 1410, 1095)[(math.floor(s / 15.0) + gpu) % 4]


def _throttled(seconds_per_second: float, offset_s: int) -> Callable[[int, float], int]:
    def nanoseconds(gpu: int, s: float) -> int:
        rate = seconds_per_second * (1.0 + gpu / 64.0) * 1e9
        return (offset_s + gpu) * 1_000_000_000 + math.floor(rate * s)

    return nanoseconds


# Bytes a second:
PCIE_RATES: dict[str, Callable[[int], int]] = {
    "gpu.pcie_sent_rate": lambda gpu: 150_000_000 + 10_000_000 * gpu,
    "gpu.pcie_received_rate": lambda gpu: 320_000_000 + 20_000_000 * gpu,
}

# In the driver's unit, from the GPU and the seconds since the start. These may be told to stand still:
MOVING: dict[str, Callable[[int, float], int]] = {
    "gpu.utilization": utilization,
    "gpu.memory_utilization": lambda gpu, s: utilization(gpu, s) * 3 // 5,
    "gpu.memory_used": memory_used,
    "gpu.power": lambda gpu, s: math.floor(1000.0 * power(gpu, s)),
    "gpu.temperature": temperature,
    "gpu.temperature_memory": lambda gpu, s: temperature(gpu, s) + 9 + gpu % 4,
    "gpu.temperature_margin": lambda gpu, s: 89 - temperature(gpu, s),
    "gpu.clock_sm": clock_sm,
    "gpu.event_reasons": event_reasons,
    "gpu.power_instant": lambda gpu, s: math.floor(1000.0 * (power(gpu, s) + 25.0 * math.sin(TAU * s / 3.0))),
}

# These count on whatever happens (the energy counter is apart, it depends on the power):
COUNTING: dict[str, Callable[[int, float], int]] = {
    "gpu.throttled_sw_power": _throttled(0.25, 5000),
    "gpu.throttled_sync_boost": _throttled(0.01, 100),
    "gpu.throttled_sw_thermal": _throttled(0.125, 2000),
    "gpu.throttled_hw_thermal": _throttled(0.05, 300),
    "gpu.throttled_hw_power_brake": _throttled(0.005, 10),
    "gpu.pcie_sent": lambda gpu, s: 123456789012 + gpu + math.floor(float(PCIE_RATES["gpu.pcie_sent_rate"](gpu)) * s),
    "gpu.pcie_received": lambda gpu, s: (
        987654321098 + gpu + math.floor(float(PCIE_RATES["gpu.pcie_received_rate"](gpu)) * s)
    ),
    "gpu.nvlink_sent": lambda gpu, s: 7000000000 + gpu + math.floor((40e6 + 2e6 * gpu) * s),
    "gpu.nvlink_received": lambda gpu, s: 6000000000 + gpu + math.floor((35e6 + 3e6 * gpu) * s),
}
COUNTERS = frozenset({"gpu.energy", *COUNTING})

# And these never change:
FIXED: dict[str, Callable[[int], int]] = {
    "gpu.memory_reserved": lambda gpu: (600 + gpu) * MIB,
    "gpu.memory_total": lambda gpu: 80 * GIB,
    "gpu.power_limit": lambda gpu: 700000 - 10000 * (gpu % 8),
    "gpu.clock_memory": lambda gpu: 2619 if gpu % 2 == 0 else 1593,
    "gpu.fan": lambda gpu: 30 + 2 * (gpu % 32),
    "gpu.performance_state": lambda gpu: 0 if gpu % 2 == 0 else 2,
    "gpu.pcie_generation": lambda gpu: 5 if gpu % 2 == 0 else 4,
    "gpu.pcie_width": lambda gpu: 8 if gpu % 4 == 3 else 16,
    "gpu.encoder_utilization": lambda gpu: (7 * gpu + 3) % 60,
    "gpu.decoder_utilization": lambda gpu: (11 * gpu + 5) % 60,
    "gpu.ecc_corrected": lambda gpu: 3 * gpu + 1,
    "gpu.ecc_uncorrected": lambda gpu: 0,
    "gpu.ecc_corrected_lifetime": lambda gpu: 7 * gpu + 12,
    "gpu.ecc_uncorrected_lifetime": lambda gpu: gpu % 3,
    "gpu.rows_remapped_corrected": lambda gpu: gpu % 2,
    "gpu.rows_remapped_uncorrected": lambda gpu: gpu % 3,
    "gpu.remapping_pending": lambda gpu: 0,
    "gpu.remapping_failed": lambda gpu: 0,
    "gpu.retirement_pending": lambda gpu: 0,
    "gpu.recovery_action": lambda gpu: 0,
    "gpu.pcie_replays": lambda gpu: 2 * gpu,
    "gpu.nvlink_links": lambda gpu: 18,
    "gpu.nvlink_active": lambda gpu: 18,
    "gpu.nvlink_replays": lambda gpu: 20 + gpu,
    "gpu.nvlink_recoveries": lambda gpu: gpu % 4,
    "gpu.nvlink_crc_errors": lambda gpu: 50 + 5 * gpu,
    "gpu.pcie_generation_max": lambda gpu: 5 if gpu % 2 == 0 else 4,
    "gpu.pcie_width_max": lambda gpu: 8 if gpu % 4 == 3 else 16,
    "gpu.temperature_slowdown": lambda gpu: 89,
    "gpu.temperature_shutdown": lambda gpu: 92,
    "gpu.jpeg_utilization": lambda gpu: (3 * gpu + 2) % 60,
    "gpu.optical_flow_utilization": lambda gpu: (5 * gpu + 9) % 60,
    "gpu.clock_sm_max": lambda gpu: 1980,
}


def driver_value(metric: str, gpu: int, elapsed_ns: int, *, constant: bool = False, pcie_bits: int = 64) -> int:
    """What the driver answers, in its own unit, `elapsed_ns` after the start."""
    s = elapsed_ns / 1e9 if elapsed_ns > 0 else 0.0
    if metric == "gpu.energy":  # more than 32 bits of mJ from the start, as after weeks of work
        return 8_000_000_000 + gpu * 111_111_111 + math.floor(1000.0 * energy_since_start(gpu, s, constant))
    if metric in COUNTING:
        value = COUNTING[metric](gpu, s)
        return value % 2**pcie_bits if metric.startswith("gpu.pcie") else value
    if metric in FIXED:
        return FIXED[metric](gpu)
    return MOVING[metric](gpu, 0.0 if constant else s)


def truth(metric: str, gpu: int, elapsed_ns: int, *, constant: bool = False, pcie_bits: int = 64) -> float:
    """The same in the base unit: ratio, bytes, watts, joules, degrees Celsius, hertz, seconds."""
    numerator, denominator = SCALES[metric]
    return driver_value(metric, gpu, elapsed_ns, constant=constant, pcie_bits=pcie_bits) * numerator / denominator


def utilization_samples(gpu: int, begin_ns: int, end_ns: int, *, constant: bool = False) -> list[tuple[int, float]]:
    """All samples of utilization that the driver takes from `begin_ns` to `end_ns` after the start: (ns, ratio).

    It keeps the last SAMPLES_KEPT of them.
    """
    first = max(0, -(-begin_ns * SAMPLES_PER_SECOND // SECOND))
    last = (end_ns * SAMPLES_PER_SECOND + SAMPLES_PER_SECOND - 1) // SECOND
    moments = [number * SECOND // SAMPLES_PER_SECOND for number in range(first, last + 1)]
    return [
        (moment, truth("gpu.utilization", gpu, moment, constant=constant))
        for moment in moments
        if begin_ns <= moment <= end_ns
    ]


def mean_utilization(gpu: int, begin_ns: int, end_ns: int, *, constant: bool = False) -> float:
    """Mean of the utilization from `begin_ns` to `end_ns` after the start, right within a thousandth of it."""
    parts = 2000
    moments = [begin_ns + (2 * part + 1) * (end_ns - begin_ns) // (2 * parts) for part in range(parts)]
    return math.fsum(truth("gpu.utilization", gpu, moment, constant=constant) for moment in moments) / parts


def _gpm_wave(metric: str, gpu: int, s: float, *, integral: bool) -> float:
    row = GPM[metric]
    omega, phase = TAU / (24.0 + row.bit + gpu), 0.7 * row.bit + 0.5 * gpu
    if integral:
        return row.mean * s + row.swing / omega * (math.cos(phase) - math.cos(omega * s + phase))
    return row.mean + row.swing * math.sin(omega * s + phase)


def gpm(metric: str, gpu: int, begin_ns: int, end_ns: int, *, constant: bool = False) -> float:
    """Mean of what GPM measures from `begin_ns` to `end_ns` after the start: ratio, or bytes a second."""
    row, begin, end = GPM[metric], begin_ns / 1e9, end_ns / 1e9
    if metric in PCIE_RATES:
        return float(PCIE_RATES[metric](gpu))
    if constant or end <= begin:
        value = _gpm_wave(metric, gpu, 0.0 if constant else end, integral=False)
    else:
        grown = _gpm_wave(metric, gpu, end, integral=True) - _gpm_wave(metric, gpu, begin, integral=True)
        value = grown / (end - begin)
    return value * row.numerator / row.denominator
