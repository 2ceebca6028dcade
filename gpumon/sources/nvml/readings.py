"""The table of what is read from a GPU: with which call, into which metrics, how often.

How often follows what a call costs the driver and how fast its value moves; the sum stays below 6
calls per GPU and second at 1 Hz. `nvmlDeviceGetPcieThroughput` blocks 20 ms a direction and is not
called: fields 197 and 198 count the same bytes.

To read one more metric: a row in `gpumon.metrics`, and a row here.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from ctypes import byref, c_uint, c_ulonglong
from typing import Any, NamedTuple

import pynvml

from gpumon.metrics import Availability
from gpumon.sources.base import from_units
from gpumon.sources.nvml.library import SUCCESS, Function, Library, availability

EVERY_TICK = 0.0
SOON = 3.0
BUSY = 8.0
SELDOM = 10.0
RARELY = 30.0
"""Seconds between two reads of the same value. BUSY, of the driver's sample buffer, is half of what a buffer holds."""
SLACK = 0.25
"""Seconds that a read may come early, so that the jitter of a tick does not put it off to the next."""

Values = dict[str, float]
Missing = dict[str, Availability]
Read = Callable[[Any, Values, Missing], int]
"""Asks one device (a handle), fills in what came or why it did not, and returns the driver's code."""


class Call(NamedTuple):
    """A row of the table."""

    metrics: tuple[str, ...]
    period: float
    make: Callable[[Library], Read | None]
    """Binds the call to a library, with buffers of its own; None where the driver lacks it."""


class Field(NamedTuple):
    """An entry of the batched nvmlDeviceGetFieldValues, which costs one driver call for all."""

    metric: str
    id: int
    scale: float


_U32 = 1 << 32


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


def _number(
    metric: str, scale: float, *names: str, arguments: tuple[int, ...] = ()
) -> Callable[[Library], Read | None]:
    """A call of the shape f(handle, [arguments,] unsigned int *value)."""

    def make(library: Library) -> Read | None:
        function = library.find(*names)
        if function is None:
            return None
        value = c_uint()
        pointer = byref(value)
        extra = tuple(c_uint(argument) for argument in arguments)

        def read(handle: Any, values: Values, _: Missing) -> int:
            code = function(handle, *extra, pointer)
            if code == SUCCESS:
                values[metric] = from_units(value.value, scale)
            return code

        return read

    return make


def _utilization(library: Library) -> Read | None:
    function = library.find("nvmlDeviceGetUtilizationRates")
    if function is None:
        return None
    pair = (c_uint * 2)()

    def read(handle: Any, values: Values, _: Missing) -> int:
        code = function(handle, pair)
        if code == SUCCESS:
            gpu, memory = pair
            values["gpu.utilization"], values["gpu.memory_utilization"] = gpu / 100, memory / 100
        return code

    return read


def _memory(library: Library) -> Read | None:
    """v2 tells what the driver reserves apart; v1, of old drivers, counts it as used from 510 on."""
    newer, older = library.find("nvmlDeviceGetMemoryInfo_v2"), library.find("nvmlDeviceGetMemoryInfo")
    if newer is None:
        return _memory_v1(older) if older else None
    record = pynvml.c_nvmlMemory_v2_t()
    pointer = byref(record)

    def read(handle: Any, values: Values, _: Missing) -> int:
        record.version = pynvml.nvmlMemory_v2
        code = newer(handle, pointer)
        if code == SUCCESS:
            __, total, reserved, __, used = _MEMORY_V2.unpack_from(record)
            values["gpu.memory_total"], values["gpu.memory_used"] = float(total), float(used)
            values["gpu.memory_reserved"] = float(reserved)
        return code

    return read


_MEMORY_V2 = struct.Struct("@IQQQQ")


def _memory_v1(function: Function) -> Read:
    record = (c_ulonglong * 3)()

    def read(handle: Any, values: Values, _: Missing) -> int:
        code = function(handle, record)
        if code == SUCCESS:
            total, __, used = record
            values["gpu.memory_total"], values["gpu.memory_used"] = float(total), float(used)
        return code

    return read


def _codec(metric: str, name: str) -> Callable[[Library], Read | None]:
    def make(library: Library) -> Read | None:
        function = library.find(name)
        if function is None:
            return None
        share, period = c_uint(), c_uint()
        pointers = byref(share), byref(period)

        def read(handle: Any, values: Values, _: Missing) -> int:
            code = function(handle, *pointers)
            if code == SUCCESS:
                values[metric] = share.value / 100
            return code

        return read

    return make


_ENTRY = struct.Struct("=IIqqii8s")
"""nvmlFieldValue_t: id, scope, timestamp µs, latency µs, value type, return code, value."""
VALUE_TYPES = {0: "=d", 1: "=I", 2: "=Q", 3: "=Q", 4: "=q", 5: "=i", 6: "=H"}
"""nvmlValueType_t to struct formats: double, unsigned int, unsigned long (8 bytes here), ..."""


def _fields(library: Library) -> Read | None:
    function = library.find("nvmlDeviceGetFieldValues")
    if function is None:
        return None
    fields = fields_for(library.driver.version)
    # One entry more than asked for: drivers were seen to write behind the last (nvitop's finding).
    batch = (pynvml.c_nvmlFieldValue_t * (len(fields) + 1))()
    for i, field in enumerate(fields):
        batch[i].fieldId = field.id
    view = memoryview(batch).cast("B")
    size = ctypes.sizeof(pynvml.c_nvmlFieldValue_t)
    count = ctypes.c_int(len(fields))
    counted: dict[tuple[Any, str], int] = {}
    given: set[str] = set()

    def read(handle: Any, values: Values, missing: Missing) -> int:
        code = function(handle, count, batch)
        if code != SUCCESS:
            return code
        for i, field in enumerate(fields):
            _, _, _, _, kind, returned, raw = _ENTRY.unpack_from(view, i * size)
            if returned != SUCCESS:
                # What this batch never gave may come from a call of its own.
                if field.metric in given or field.metric not in values:
                    missing[field.metric] = availability(returned)
                    values.pop(field.metric, None)
                continue
            given.add(field.metric)
            number = struct.unpack_from(VALUE_TYPES.get(kind, "=Q"), raw)[0]
            if kind == 1 and field.metric in _BYTE_COUNTERS:
                number = _unwrap(counted, (handle.value, field.metric), number)
            values[field.metric] = from_units(number, field.scale)
        return code

    return read


_BYTE_COUNTERS = ("gpu.pcie_sent", "gpu.pcie_received")


def _unwrap(last: dict[tuple[Any, str], int], key: tuple[Any, str], number: int) -> int:
    """A 32-bit counter that has wrapped goes on; it may do so once between two reads."""
    before = last.get(key, number)
    total = before + (number - before) % _U32
    last[key] = total
    return total


CALLS: tuple[Call, ...] = (
    Call(("gpu.utilization", "gpu.memory_utilization"), EVERY_TICK, _utilization),
    Call(("gpu.memory_used", "gpu.memory_reserved", "gpu.memory_total"), EVERY_TICK, _memory),
    Call(tuple(field.metric for field in fields_for("")), EVERY_TICK, _fields),
    Call(("gpu.clock_sm",), EVERY_TICK, _number("gpu.clock_sm", 1e6, "nvmlDeviceGetClockInfo", arguments=(1,))),
    Call(("gpu.temperature",), SOON, _number("gpu.temperature", 1.0, "nvmlDeviceGetTemperature", arguments=(0,))),
    Call(
        ("gpu.event_reasons",),
        SOON,
        _number(
            "gpu.event_reasons",
            1.0,
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
        ),
    ),
    Call(("gpu.clock_memory",), SELDOM, _number("gpu.clock_memory", 1e6, "nvmlDeviceGetClockInfo", arguments=(2,))),
    Call(("gpu.fan",), SELDOM, _number("gpu.fan", 1e-2, "nvmlDeviceGetFanSpeed")),
    Call(("gpu.performance_state",), SELDOM, _number("gpu.performance_state", 1.0, "nvmlDeviceGetPerformanceState")),
    Call(("gpu.encoder_utilization",), RARELY, _codec("gpu.encoder_utilization", "nvmlDeviceGetEncoderUtilization")),
    Call(("gpu.decoder_utilization",), RARELY, _codec("gpu.decoder_utilization", "nvmlDeviceGetDecoderUtilization")),
    Call(("gpu.pcie_generation",), RARELY, _number("gpu.pcie_generation", 1.0, "nvmlDeviceGetCurrPcieLinkGeneration")),
    Call(("gpu.pcie_width",), RARELY, _number("gpu.pcie_width", 1.0, "nvmlDeviceGetCurrPcieLinkWidth")),
)

# What a batch of fields cannot give on an older driver has a call of its own.
FALLBACKS: tuple[Call, ...] = (
    Call(("gpu.power",), EVERY_TICK, _number("gpu.power", 1e-3, "nvmlDeviceGetPowerUsage")),
    Call(("gpu.power_limit",), SELDOM, _number("gpu.power_limit", 1e-3, "nvmlDeviceGetEnforcedPowerLimit")),
)
