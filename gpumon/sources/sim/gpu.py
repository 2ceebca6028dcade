"""One simulated GPU: its load as a periodic curve, and the metrics that are computed from the load."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from random import Random
from types import MappingProxyType

from gpumon.common.numbers import NAN
from gpumon.common.text import clean
from gpumon.model.device import Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import FROM_DRIVERS, GPU_METRICS, IDLE, Availability
from gpumon.sources.sim.scenarios import GIB, Job

CELL = 0.1
"""Seconds during which a quantity is constant."""


class Curve:
    """A periodic quantity that is constant over intervals of 0.1 s. Times are non-negative seconds."""

    def __init__(self, cells: Sequence[float]) -> None:
        self.cells = tuple(cells)
        self._sums = [0.0]
        for cell in cells:
            self._sums.append(self._sums[-1] + cell * CELL)

    def value(self, time: float) -> float:
        """Return the quantity at `time`."""
        return self.cells[int(time / CELL) % len(self.cells)]

    def integral(self, time: float) -> float:
        """Return the integral from 0 to `time`."""
        periods, cells = divmod(time / CELL, len(self.cells))
        cell = min(int(cells), len(self.cells) - 1)
        return periods * self._sums[-1] + self._sums[cell] + (cells - cell) * CELL * self.cells[cell]


_DIPS_EVERY = 8.0
"""Seconds between two simulated reads of the driver's samples. A read covers the time since the previous read."""
_THROTTLE_AT = 87.0
"""Temperature in °C at which the clocks are lowered. The simulated card reports the margin to this threshold, but not
the threshold."""

_MAX_CLOCK = 1980e6
"""Highest SM clock in Hz."""

CONSTANT = {
    "gpu.clock_sm_max": _MAX_CLOCK,
    "gpu.pcie_generation_max": 5.0,
    "gpu.pcie_width_max": 16.0,
    "gpu.pcie_replays": 3.0,
    "gpu.nvlink_links": 18.0,
    "gpu.nvlink_active": 18.0,
    "gpu.nvlink_replays": 0.0,
    "gpu.nvlink_recoveries": 0.0,
    "gpu.nvlink_crc_errors": 0.0,
    "gpu.ecc_corrected": 0.0,
    "gpu.ecc_uncorrected": 0.0,
    "gpu.ecc_corrected_lifetime": 2.0,
    "gpu.ecc_uncorrected_lifetime": 0.0,
    "gpu.rows_remapped_corrected": 0.0,
    "gpu.rows_remapped_uncorrected": 0.0,
    "gpu.remapping_pending": 0.0,
    "gpu.remapping_failed": 0.0,
    "gpu.recovery_action": 0.0,
    "gpu.xid": 0.0,
    "gpu.mig_instances": 0.0,
    "gpu.fp64_activity": 0.0,
    "gpu.jpeg_utilization": 0.0,
    "gpu.optical_flow_utilization": 0.0,
}
"""Metrics that do not change on a healthy card."""


def activity(load: float, tensor: float) -> dict[str, float]:
    """Return the performance counters at a load (0 to 1). `tensor`: share of the load on tensor cores (0 to 1)."""
    return {
        "gpu.graphics_activity": round(load, 4),
        "gpu.sm_activity": round(0.93 * load, 4),
        "gpu.sm_occupancy": round(0.41 * load, 4),
        "gpu.tensor_activity": round(tensor * load, 4),
        "gpu.fp32_activity": round(0.14 * load, 4),
        "gpu.fp16_activity": round(0.06 * load, 4),
        "gpu.dram_activity": round(0.55 * load, 4),
    }


def margin(temperature: float) -> float:
    """Return how many °C `temperature` is below the temperature at which the clocks are lowered."""
    return _THROTTLE_AT - temperature


class Dips:
    """Computes the lowest utilization and the idle share of a load, for the last read of the driver's samples."""

    def __init__(self, load: Curve) -> None:
        self._load = load
        self._read_number = -1
        self._values = {"gpu.utilization_low": 0.0, "gpu.idle_share": 1.0}

    def values(self, time: float) -> dict[str, float]:
        """Return both metrics at `time` (s)."""
        read_number = int(time / _DIPS_EVERY)
        if read_number != self._read_number:
            count = round(_DIPS_EVERY / CELL)
            end = max(1, read_number) * count  # before the first read, the values of the first read are used
            cells = self._load.cells
            loads = [cells[cell % len(cells)] for cell in range(end - count, end)]
            idle = sum(load < IDLE for load in loads) / count
            self._read_number = read_number
            self._values = {"gpu.utilization_low": round(min(loads), 2), "gpu.idle_share": idle}
        return self._values


_TOTAL = 81559 * 2.0**20
_LIMIT = 700.0
_IDLE_WATTS = 71.0
_FULL_WATTS = 655.0
_DRIVER = 3 * 2.0**20
"""Bytes of memory in use while no process runs."""
FAULTS_FROM = 300.0
"""Faults start after this many seconds."""
_LAG = 18.0
"""After a change of the power, the temperature reaches two thirds of its change in this many seconds."""
_WAVE = (0.41, 3.0)
"""Frequency (radians per second) and amplitude (watts) of a slow wave in the power of every GPU."""
_ALWAYS_ZERO = (
    "gpu.throttled_sw_thermal", "gpu.throttled_hw_thermal", "gpu.throttled_hw_power_brake", "gpu.throttled_sync_boost",
    "gpu.encoder_utilization", "gpu.decoder_utilization",
)  # fmt: skip
"""Metrics that stay 0 in a simulation."""


class SimulatedGpu:
    """A simulated GPU. Its values are functions of time."""

    def __init__(
        self, index: int, seed: int, model: str, job: Job | None, faults: Mapping[str, float] = MappingProxyType({})
    ) -> None:
        """`faults`: values of metrics that replace the values of a healthy card after `FAULTS_FROM` seconds."""
        self.job = job
        self._faults = faults
        # All ranks of a run have the same load, because they wait for each other.
        loads = job.loads(Random(f"{seed} {job.name} {job.process}")) if job else [0.0] * 600
        self._noise = Random(f"{seed} {index}")
        self._angle = self._noise.random() * math.tau
        full = _FULL_WATTS * (1 + 0.02 * (self._noise.random() - 0.5))
        context = 46.0 if job else 0.0  # watts: a context alone keeps the clocks high
        self.load = Curve(loads)
        self.power = Curve([_IDLE_WATTS + context + (full - _IDLE_WATTS - context) * load for load in loads])
        self.throttled = Curve([0.35 if load > 0.96 else 0.0 for load in loads])
        self.sent = Curve([1.1e9 * load + 2e3 for load in loads])
        self.received = Curve([2.3e9 * load + 2e3 for load in loads])
        link_rate = 8.4e10 if job and len(job.gpus) > 1 else 0.0  # traffic between ranks
        self.nvlink = Curve([link_rate * load for load in loads])
        self._dips = Dips(self.load)
        self._energy = 3.1e7 + 1e6 * self._noise.random()
        simulated = self.values(0.0)
        missing = {name: Availability.NOT_SUPPORTED for name in FROM_DRIVERS if name not in simulated}
        self.device = Device(f"GPU-51000000-0000-4000-8000-{index:012d}", index, clean(model), missing)

    @cached_property
    def temperature(self) -> Curve:
        """Temperature, which follows the power with a delay. It is periodic from the third period on."""
        cells = self.power.cells
        temperature = 27 + 0.058 * sum(cells) / len(cells)
        for _ in range(3):
            temperature = (period := list(self._follow_power(temperature)))[-1]
        return Curve(period)

    def _follow_power(self, temperature: float) -> Iterator[float]:
        for watts in self.power.cells:
            temperature += (27 + 0.058 * watts - temperature) * CELL / _LAG
            yield temperature

    def sample(self, time: float, run: str) -> Sample:
        """Return a sample with all metrics at `time` (seconds since the start of the simulation)."""
        values = self.values(time)
        return Sample(self.device, Availability.OK, [values.get(metric.name, NAN) for metric in GPU_METRICS], run)

    def values(self, time: float) -> dict[str, float]:
        """Return the simulated values at `time` by metric."""
        load = self.load.value(time)
        speed, watts = _WAVE
        power = self.power.value(time) + watts * math.sin(speed * time + self._angle)
        wave = watts / speed * (math.cos(self._angle) - math.cos(speed * time + self._angle))
        temperature = self.temperature.value(time)
        is_busy = self.job is not None
        clock = 1e6 * (1980 - 15 * round(14 * max(0.0, load - 0.7)) if is_busy else 345)
        activities = activity(load, self.job.tensor if self.job else 0.0)
        return {
            **dict.fromkeys(_ALWAYS_ZERO, 0.0),
            **CONSTANT,
            "gpu.utilization": round(min(1.0, load + 0.01 * math.sin(1.7 * time + self._angle)), 2) if load else 0.0,
            "gpu.memory_utilization": round(load * 0.58, 2),
            "gpu.memory_used": (self.job.memory * GIB if self.job else 0.0) + _DRIVER,
            "gpu.memory_reserved": 551 * 2.0**20,
            "gpu.memory_total": _TOTAL,
            "gpu.power": power,
            "gpu.power_limit": _LIMIT,
            "gpu.energy": self._energy + self.power.integral(time) + wave,
            "gpu.temperature": float(round(temperature)),
            "gpu.temperature_memory": float(round(temperature + 6 + 8 * load)),
            "gpu.clock_sm": clock,
            "gpu.clock_memory": 2619e6,
            "gpu.event_reasons": float(0x1 if load == 0 else 0x4 if self.throttled.value(time) else 0x0),
            "gpu.throttled_sw_power": self.throttled.integral(time),
            "gpu.performance_state": 0.0,
            "gpu.pcie_generation": 5.0,
            "gpu.pcie_width": 16.0,
            "gpu.pcie_sent": self.sent.integral(time),
            "gpu.pcie_received": self.received.integral(time),
            "gpu.pcie_sent_rate": self.sent.value(time),
            "gpu.pcie_received_rate": self.received.value(time),
            "gpu.nvlink_sent": self.nvlink.integral(time),
            "gpu.nvlink_received": self.nvlink.integral(time),
            "gpu.nvlink_sent_rate": self.nvlink.value(time),
            "gpu.nvlink_received_rate": self.nvlink.value(time),
            "gpu.power_instant": power + 4 * math.sin(9 * time + self._angle),
            "gpu.temperature_margin": margin(float(round(temperature))),
            "gpu.memory_unattributed": _DRIVER,
            **activities,
            "gpu.tensor_throughput": round(activities["gpu.tensor_activity"] * clock / _MAX_CLOCK, 4),
            **self._dips.values(time),
            **(self._faults if time >= FAULTS_FROM else {}),
        }


METRICS = frozenset(SimulatedGpu(0, 0, "", None).values(0.0))
"""Metrics of a simulated GPU. Other metrics, such as the fan speed, are missing (not 0)."""
