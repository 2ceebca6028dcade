"""The batch of fields: what nvmlDeviceGetFieldValues gives with one driver call."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, NamedTuple

import pynvml

from gpumon.clock import SECOND, Clock
from gpumon.metrics import BY_NAME, Availability, Kind
from gpumon.sources.base import from_units
from gpumon.sources.nvml.answers import Answers
from gpumon.sources.nvml.library import SUCCESS, Function, Library, availability


class Field(NamedTuple):
    """An entry of the batch."""

    metric: str
    id: int
    scale: float


def fields_for(driver_version: str) -> tuple[Field, ...]:
    """The fields to ask of this driver.

    Ids and units: nvml.h. The three thermal and brake counters were 251 to 253 up to the 580 branch
    (its nvml.h; nvidia-ml-py of the time), and are 269 to 271 since.
    """
    major = int(driver_version.partition(".")[0]) if driver_version.partition(".")[0].isdigit() else 0
    heat = 269 if major > 580 else 251
    return (
        Field("gpu.power", pynvml.NVML_FI_DEV_POWER_AVERAGE, 1e-3),  # mW
        Field("gpu.power_limit", pynvml.NVML_FI_DEV_POWER_CURRENT_LIMIT, 1e-3),
        Field("gpu.energy", pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 1e-3),  # mJ
        Field("gpu.temperature_memory", pynvml.NVML_FI_DEV_MEMORY_TEMP, 1.0),
        Field("gpu.throttled_sw_power", pynvml.NVML_FI_DEV_PERF_POLICY_POWER, 1e-9),  # ns
        Field("gpu.throttled_sync_boost", pynvml.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST, 1e-9),
        Field("gpu.throttled_sw_thermal", heat, 1e-9),
        Field("gpu.throttled_hw_thermal", heat + 1, 1e-9),
        Field("gpu.throttled_hw_power_brake", heat + 2, 1e-9),
        Field("gpu.pcie_sent", pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 1.0),
        Field("gpu.pcie_received", pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 1.0),
    )


_ENTRY = struct.Struct("=IIqqii8s")
"""nvmlFieldValue_t: id, scope, timestamp µs, latency µs, value type, return code, value."""
VALUE_TYPES = {0: "=d", 1: "=I", 2: "=Q", 3: "=Q", 4: "=q", 5: "=i", 6: "=H"}
"""nvmlValueType_t to struct formats: double, unsigned int, unsigned long (8 bytes here), ..."""
_NO_NUMBER = {
    1: (0xFFFF_FFFF,), 2: (0xFFFF_FFFF_FFFF_FFFF,), 3: (0xFFFF_FFFF_FFFF_FFFF,), 4: (-1, 2**63 - 1),
    5: (-1, 2**31 - 1), 6: (0xFFFF,),
}  # fmt: skip
"""By value type: what stands for no value; nvml.h, NVML_VALUE_NOT_AVAILABLE, and the largest of the type."""
_UNSIGNED_INT = 1
_U32 = 1 << 32
_BYTE_COUNTERS = ("gpu.pcie_sent", "gpu.pcie_received")
_COUNTERS = frozenset(name for name, metric in BY_NAME.items() if metric.kind is Kind.COUNTER)
_UNSURE = SECOND // 10
"""ns that a call may take at most for its counters to be of a known time, where the driver does not tell which."""
_SWIFT = SECOND // 10_000
_NEAR = SECOND
"""ns: a stamp further than this from its call is of another clock, or never written."""


class FieldBatch:
    """The batch of one device, in a buffer that is kept."""

    def __init__(self, library: Library, function: Function) -> None:
        self._function = function
        self._fields = fields_for(library.driver.version)
        # One entry more than asked for: drivers were seen to write behind the last (nvitop's finding).
        self._batch = (pynvml.c_nvmlFieldValue_t * (len(self._fields) + 1))()
        for i, field in enumerate(self._fields):
            self._batch[i].fieldId = field.id
        self._view = memoryview(self._batch).cast("B")
        self._count = ctypes.c_int(len(self._fields))
        self._totals: dict[str, int] = {}

    @classmethod
    def make(cls, library: Library) -> FieldBatch | None:
        """A batch for one device of this driver; None where the driver has no batches."""
        function = library.find("nvmlDeviceGetFieldValues")
        return cls(library, function) if function else None

    def __call__(self, handle: Any, answers: Answers) -> int:
        """Ask, and fill in what came; a field fails alone."""
        began = answers.clock.monotonic()
        code = self._function(handle, self._count, self._batch)
        over = answers.clock.monotonic()
        answers.batched.clear()
        answers.counters_at = 0
        if code != SUCCESS:
            return code
        for i, field in enumerate(self._fields):
            _, _, stamp, _, kind, returned, raw = _ENTRY.unpack_from(self._view, i * _ENTRY.size)
            metric = field.metric
            if returned != SUCCESS:
                # It may come from a call of its own.
                if metric not in answers.single:
                    answers.lack(metric, availability(returned))
                continue
            number = struct.unpack_from(VALUE_TYPES.get(kind, "=Q"), raw)[0]
            if number in _NO_NUMBER.get(kind, ()) or number != number:
                answers.lack(metric, Availability.NOT_SUPPORTED)
                continue
            if not answers.counters_at and metric in _COUNTERS:
                answers.counters_at = moment(stamp, began, over, answers.clock)
            if kind == _UNSIGNED_INT and metric in _BYTE_COUNTERS:
                number = self._unwrapped(metric, number)
            answers.values[metric] = from_units(number, field.scale)
            answers.batched.add(metric)
        if not answers.counters_at:
            self._unstamped(answers, began, over)
        return code

    def _unstamped(self, answers: Answers, began: int, over: int) -> None:
        """Counters of which the driver did not say when they were read."""
        answers.counters_at = over
        if over - began > _UNSURE:
            for metric in answers.batched & _COUNTERS:
                answers.lack(metric, Availability.UNRELIABLE)

    def _unwrapped(self, metric: str, number: int) -> int:
        """A 32-bit counter that has wrapped goes on; it may do so once between two reads."""
        before = self._totals.get(metric, number)
        total = self._totals[metric] = before + (number - before) % _U32
        return total


def moment(stamp: int, began: int, over: int, clock: Clock) -> int:
    """When values were read, as their `stamp` (µs) says: ns, CLOCK_MONOTONIC, within the call that gave them.

    0 where the stamp tells nothing. nvml.h calls it the time since 1970; it may be the time since boot.
    """
    for offset in (_since_1970(clock), 0):
        when = stamp * 1000 + offset
        if began - _NEAR <= when <= over + _NEAR:
            return min(max(when, began), over)
    return 0


def _since_1970(clock: Clock) -> int:
    """The ns to add to a time since 1970 to get CLOCK_MONOTONIC: the two are read one after the other, so swiftly."""
    for _ in range(3):
        before, wall, after = clock.monotonic(), clock.time(), clock.monotonic()
        if after - before < _SWIFT:
            break
    return after - wall
