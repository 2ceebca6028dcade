"""The table of what is read from a GPU: with which call, into which metrics, how often.

How often follows what a call costs the driver and how fast its value moves; the sum stays below 6
calls per GPU and second at 1 Hz, and GPM takes two more. `nvmlDeviceGetPcieThroughput` blocks 20 ms
a direction and is not called: fields 197 and 198 count the same bytes.

To read one more metric: a row in `gpumon.model.metrics`, and a row here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from ctypes import byref, c_int, c_uint, c_ulonglong
from typing import Any, NamedTuple

import pynvml

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.metrics import BY_NAME, Availability
from gpumon.sources.base import parts_of
from gpumon.sources.nvml.fields import FieldBatch, fields_for
from gpumon.sources.nvml.gpm import GPM_EVERY, GPM_METRICS, GpmReading
from gpumon.sources.nvml.library import NOT_SUPPORTED, SUCCESS, Function, Library, unspoken
from gpumon.sources.nvml.slow_fields import METRICS as SLOW_METRICS
from gpumon.sources.nvml.slow_fields import SlowFields
from gpumon.sources.nvml.values import EVERY_TICK, MOST_BYTES, U32, U64, UNSUPPORTED, DeviceAnswers, Read, most_of

_MOST = BY_NAME["gpu.temperature_margin"].most
_HOTTEST = BY_NAME["gpu.temperature_slowdown"].most
_MARGIN = 0x0100_0008
"""Version 1 of nvmlMarginTemperature_t: the version itself, then the degrees, 4 bytes each."""


_TEMPERATURE, _MARGIN_LEFT = "gpu.temperature", "gpu.temperature_margin"
_HOTTEST_CORE = most_of(_TEMPERATURE, 1.0)
_NEAR, _MOVED_NEAR, _MOVED = 20, 5, 15
"""°C: a margin below the first is asked for again once the temperature has moved by the second since the driver gave
it, and a larger one, which nobody acts on, by the third: a call each time."""


def read_temperature(library: Library) -> Read | None:
    """Bind the temperature, which the margin follows: at once where it is what is left, and else it is asked again."""
    function = library.find("nvmlDeviceGetTemperature")
    if function is None:
        return None
    degrees, sensor = c_uint(), c_uint(pynvml.NVML_TEMPERATURE_GPU)
    pointer = byref(degrees)

    def read(handle: Any, answers: DeviceAnswers) -> int:
        code = function(handle, sensor, pointer)
        if code == SUCCESS:
            number, values = degrees.value, answers.values
            if number <= _HOTTEST_CORE:
                values[_TEMPERATURE] = float(number)
                if _MARGIN_LEFT not in values:
                    return code
                if answers.slowdown:
                    values[_MARGIN_LEFT] = float(answers.slowdown - number)
                elif abs(moved := number - answers.margin_at) >= _MOVED_NEAR:
                    margin = values[_MARGIN_LEFT]
                    if min(margin, margin - moved) < _NEAR or abs(moved) >= _MOVED:
                        answers.overdue = _MARGIN_LEFT
            else:
                answers.refuse(_TEMPERATURE, number)
        return code

    return read


def read_margin(library: Library) -> Read | None:
    """Bind the driver's own margin, which came with branch 570 and Ada; elsewhere the degrees up to the slowdown."""
    newer, threshold = library.find("nvmlDeviceGetMarginTemperature"), library.find("nvmlDeviceGetTemperatureThreshold")
    record, slowdown = (c_int * 2)(), c_uint()
    pointer, kind = byref(slowdown), c_uint(pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
    older_until = 0

    def read(handle: Any, answers: DeviceAnswers) -> int:
        nonlocal older_until
        code, answers.slowdown = NOT_SUPPORTED, 0
        if newer is not None and answers.clock.monotonic() >= older_until:
            record[0] = _MARGIN
            code = newer(handle, record)
            if code == SUCCESS and abs(record[1]) <= _MOST:
                answers.values[_MARGIN_LEFT] = float(record[1])
                answers.margin_at = answers.values.get(_TEMPERATURE, NAN)
                return code
            if code != SUCCESS and not unspoken(code):
                return code
            older_until = answers.clock.monotonic() + round(UNSUPPORTED * SECOND)
        if threshold is not None and (code := threshold(handle, kind, pointer)) == SUCCESS:
            now = answers.values.get(_TEMPERATURE)
            if now is not None and 0 < slowdown.value <= _HOTTEST:
                answers.values[_MARGIN_LEFT], answers.slowdown = slowdown.value - now, slowdown.value
            else:
                answers.lack(_MARGIN_LEFT, Availability.NOT_SUPPORTED)
        return code

    return read


class Call(NamedTuple):
    """A row of the table."""

    metrics: tuple[str, ...]
    period: float
    """Seconds between two reads of the same value."""
    make: Callable[[Library], Read | None]
    """Binds the call to a library, with buffers of its own; None where the driver lacks it."""
    function: str
    """Name of the driver's function, the newest of its names: what it costs is told by it."""


def _number(
    metric: str, period: float, *names: str, scale: float = 1.0, arguments: tuple[int, ...] = (), wide: bool = False,
) -> Call:  # fmt: skip
    """A row whose call has the shape f(handle, [arguments,] unsigned int *value), or unsigned long long if `wide`.

    `names` are those of the function, the newest first; more than the metric's `most` is no value.
    """
    most = most_of(metric, scale, U64 if wide else U32)

    def make(library: Library) -> Read | None:
        function = library.find(*names)
        if function is None:
            return None
        value = c_ulonglong() if wide else c_uint()
        pointer = byref(value)
        extra = tuple(c_uint(argument) for argument in arguments)
        factor, divisor = parts_of(scale)

        def read(handle: Any, answers: DeviceAnswers) -> int:
            code = function(handle, *extra, pointer)
            if code == SUCCESS:
                number = value.value
                if number <= most:
                    answers.values[metric] = number * factor / divisor
                else:
                    answers.refuse(metric, number)
            return code

        return read

    return Call((metric,), period, make, names[0])


_WHOLE = 100
_SHARES = _UTILIZATION, _MEMORY_UTILIZATION = ("gpu.utilization", "gpu.memory_utilization")


def _utilization(library: Library) -> Read | None:
    function = library.find("nvmlDeviceGetUtilizationRates")
    if function is None:
        return None
    pair = (c_uint * 2)()
    unpack = struct.Struct("@II").unpack_from

    def read(handle: Any, answers: DeviceAnswers) -> int:
        code = function(handle, pair)
        if code == SUCCESS:
            own, memory = unpack(pair)
            if own <= _WHOLE and memory <= _WHOLE:
                values = answers.values
                values[_UTILIZATION], values[_MEMORY_UTILIZATION] = own / 100, memory / 100
                return code
            for metric, percent in zip(_SHARES, (own, memory), strict=True):
                if percent <= _WHOLE:
                    answers.values[metric] = percent / 100
                else:
                    answers.refuse(metric, percent)
        return code

    return read


_MEMORY = _TOTAL, _USED, _RESERVED = ("gpu.memory_total", "gpu.memory_used", "gpu.memory_reserved")
_VERSION_2 = int(pynvml.nvmlMemory_v2)
_MEMORY_V2 = struct.Struct("@IQQQQ").unpack_from
_SPARE = 3
"""Memory in use above the total by more than its eighth, which no way of counting explains, is no amount."""


def _memory(library: Library) -> Read | None:
    """v2 tells what the driver reserves apart; v1, of old drivers, counts it as used from 510 on."""
    newer, older = library.find("nvmlDeviceGetMemoryInfo_v2"), library.find("nvmlDeviceGetMemoryInfo")
    read_v1 = _memory_v1(older) if older else None
    if newer is None:
        return read_v1
    record = pynvml.c_nvmlMemory_v2_t()
    pointer = byref(record)
    version = c_uint.from_buffer(record)  # nvidia-ml-py's own way to set a field costs more than the call

    older_until, has_answered = 0, False

    def read(handle: Any, answers: DeviceAnswers) -> int:
        nonlocal older_until, has_answered
        if read_v1 is not None and older_until and answers.clock.monotonic() < older_until:
            return read_v1(handle, answers)
        version.value = _VERSION_2
        code = newer(handle, pointer)
        if code == SUCCESS:
            has_answered = True
            __, total, reserved, __, used = _MEMORY_V2(record)
            if 0 < total < MOST_BYTES and used <= (most := total + (total >> _SPARE)) and reserved <= most:
                values = answers.values
                values[_TOTAL], values[_USED], values[_RESERVED] = float(total), float(used), float(reserved)
            else:
                _give_memory(answers, total, used, reserved)
        # Where it has answered before, that is a fault: v1 would count what the driver reserves as used, for that long.
        elif read_v1 is not None and unspoken(code) and not has_answered:
            older_until = answers.clock.monotonic() + round(UNSUPPORTED * SECOND)
            return read_v1(handle, answers)
        return code

    return read


def _memory_v1(function: Function) -> Read:
    record = (c_ulonglong * 3)()

    def read(handle: Any, answers: DeviceAnswers) -> int:
        code = function(handle, record)
        if code == SUCCESS:
            total, __, used = record
            _give_memory(answers, total, used, U64)
        return code

    return read


def _give_memory(answers: DeviceAnswers, *amounts: int) -> None:
    """Total, used and reserved. A total of 0 is of a GPU without memory of its own: nothing is known of the others."""
    total = amounts[0]
    most = total + (total >> _SPARE) if total < MOST_BYTES else MOST_BYTES - 1
    for metric, amount in zip(_MEMORY, amounts, strict=True):
        if total == 0:
            answers.lack(metric, Availability.NOT_SUPPORTED)
        elif amount <= most:
            answers.values[metric] = float(amount)
        else:
            answers.refuse(metric, amount)


def _codec(metric: str, period: float, name: str) -> Call:
    """A row whose call has the shape f(handle, unsigned int *percent, unsigned int *sample period)."""

    def make(library: Library) -> Read | None:
        function = library.find(name)
        if function is None:
            return None
        share, sampled = c_uint(), c_uint()
        pointers = byref(share), byref(sampled)

        def read(handle: Any, answers: DeviceAnswers) -> int:
            code = function(handle, *pointers)
            if code == SUCCESS:
                if share.value <= _WHOLE:
                    answers.values[metric] = share.value / 100
                else:
                    answers.refuse(metric, share.value)
            return code

        return read

    return Call((metric,), period, make, name)


MEMORY_CALL = Call(_MEMORY, EVERY_TICK, _memory, "nvmlDeviceGetMemoryInfo")
CALLS: tuple[Call, ...] = (
    Call(_SHARES, EVERY_TICK, _utilization, "nvmlDeviceGetUtilizationRates"),
    MEMORY_CALL,
    Call(tuple(field.metric for field in fields_for("")[0]), EVERY_TICK, FieldBatch.make, "nvmlDeviceGetFieldValues"),
    _number("gpu.clock_sm", EVERY_TICK, "nvmlDeviceGetClockInfo", scale=1e6, arguments=(pynvml.NVML_CLOCK_SM,)),
    Call(("gpu.temperature",), 3.0, read_temperature, "nvmlDeviceGetTemperature"),
    _number(
        "gpu.event_reasons", 3.0, "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons", wide=True,
    ),
    Call(SLOW_METRICS, 30.0, SlowFields.make, "nvmlDeviceGetFieldValues (faults and links)"),
    _number("gpu.clock_memory", 60.0, "nvmlDeviceGetClockInfo", scale=1e6, arguments=(pynvml.NVML_CLOCK_MEM,)),
    _number("gpu.fan", 30.0, "nvmlDeviceGetFanSpeed", scale=1e-2),
    _number("gpu.performance_state", 30.0, "nvmlDeviceGetPerformanceState"),
    _codec("gpu.encoder_utilization", 60.0, "nvmlDeviceGetEncoderUtilization"),
    _codec("gpu.decoder_utilization", 60.0, "nvmlDeviceGetDecoderUtilization"),
    Call(("gpu.temperature_margin",), 60.0, read_margin, "nvmlDeviceGetMarginTemperature"),
    _codec("gpu.jpeg_utilization", 120.0, "nvmlDeviceGetJpgUtilization"),
    _codec("gpu.optical_flow_utilization", 120.0, "nvmlDeviceGetOfaUtilization"),
    _number("gpu.pcie_generation", 30.0, "nvmlDeviceGetCurrPcieLinkGeneration"),
    _number("gpu.pcie_width", 30.0, "nvmlDeviceGetCurrPcieLinkWidth"),
    _number("gpu.pcie_generation_max", 600.0, "nvmlDeviceGetMaxPcieLinkGeneration"),
    _number("gpu.pcie_width_max", 600.0, "nvmlDeviceGetMaxPcieLinkWidth"),
    _number(
        "gpu.temperature_slowdown", 600.0, "nvmlDeviceGetTemperatureThreshold",
        arguments=(pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,),
    ),
    _number(
        "gpu.temperature_shutdown", 600.0, "nvmlDeviceGetTemperatureThreshold",
        arguments=(pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN,),
    ),
    Call(GPM_METRICS, GPM_EVERY, GpmReading.make, "nvmlGpmSampleGet and nvmlGpmMetricsGet"),
)  # fmt: skip

# What a batch of fields cannot give on an older driver has a call of its own.
FALLBACKS: tuple[Call, ...] = (
    _number("gpu.power", EVERY_TICK, "nvmlDeviceGetPowerUsage", scale=1e-3),
    _number("gpu.power_limit", 10.0, "nvmlDeviceGetEnforcedPowerLimit", scale=1e-3),
)


CHIPS = frozenset(("GB10", "N1X", "Thor", "Orin", "Xavier", "Tegra"))
"""Words of names of such chips. Those with memory of their own beside the host's, as GH200, are none of them."""
MEMORY = ("gpu.memory_total", "gpu.memory_used", "gpu.memory_reserved", "gpu.memory_unattributed")
LINK = frozenset(f"gpu.pcie_{name}" for name in ("generation", "width", "generation_max", "width_max"))
"""Facts of a PCIe link, which the driver of such a chip makes up."""


def shares_host_memory(name: str) -> bool:
    """Whether a device of this name has no memory of its own."""
    return not CHIPS.isdisjoint(re.split(r"\W+", name))


def explained(missing: Mapping[str, Availability]) -> dict[str, Availability]:
    """The reasons of such a device: its driver tells of no memory, because that is the host's."""
    unspoken = Availability.NOT_SUPPORTED
    return {
        name: Availability.SHARED_WITH_HOST if why is unspoken and name in MEMORY else why
        for name, why in missing.items()
    }
