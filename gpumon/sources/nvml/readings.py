"""The table of what is read from a GPU: with which call, into which metrics, how often.

How often follows what a call costs the driver and how fast its value moves; the sum stays below 6
calls per GPU and second at 1 Hz. `nvmlDeviceGetPcieThroughput` blocks 20 ms a direction and is not
called: fields 197 and 198 count the same bytes.

To read one more metric: a row in `gpumon.metrics`, and a row here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from ctypes import byref, c_uint, c_ulonglong
from typing import Any, NamedTuple

import pynvml

from gpumon.clock import SECOND
from gpumon.metrics import Availability
from gpumon.sources.base import from_units
from gpumon.sources.nvml.answers import AGAIN, EVERY_TICK, MOST_BYTES, RARELY, SELDOM, SOON, U32, U64, Answers, Read
from gpumon.sources.nvml.field_ids import fields_for
from gpumon.sources.nvml.fields import FieldBatch
from gpumon.sources.nvml.library import SUCCESS, Function, Library, unspoken


class Call(NamedTuple):
    """A row of the table."""

    metrics: tuple[str, ...]
    period: float
    make: Callable[[Library], Read | None]
    """Binds the call to a library, with buffers of its own; None where the driver lacks it."""


def _number(
    metric: str, scale: float, *names: str, arguments: tuple[int, ...] = (), most: int = U32 - 1, wide: bool = False
) -> Callable[[Library], Read | None]:
    """A call of the shape f(handle, [arguments,] unsigned int *value), or of unsigned long long where it is `wide`.

    More than `most` is no value.
    """

    def make(library: Library) -> Read | None:
        function = library.find(*names)
        if function is None:
            return None
        value = c_ulonglong() if wide else c_uint()
        pointer = byref(value)
        extra = tuple(c_uint(argument) for argument in arguments)

        def read(handle: Any, answers: Answers) -> int:
            code = function(handle, *extra, pointer)
            if code == SUCCESS:
                number = value.value
                if number <= most:
                    answers.values[metric] = from_units(number, scale)
                else:
                    answers.lack(metric, Availability.NOT_SUPPORTED)
            return code

        return read

    return make


_WHOLE = 100
_SHARES = ("gpu.utilization", "gpu.memory_utilization")


def _utilization(library: Library) -> Read | None:
    function = library.find("nvmlDeviceGetUtilizationRates")
    if function is None:
        return None
    pair = (c_uint * 2)()

    def read(handle: Any, answers: Answers) -> int:
        code = function(handle, pair)
        if code == SUCCESS:
            for metric, percent in zip(_SHARES, pair, strict=True):
                if percent <= _WHOLE:
                    answers.values[metric] = percent / 100
                else:
                    answers.lack(metric, Availability.NOT_SUPPORTED)
        return code

    return read


_MEMORY = ("gpu.memory_total", "gpu.memory_used", "gpu.memory_reserved")
_MEMORY_V2 = struct.Struct("@IQQQQ")


def _memory(library: Library) -> Read | None:
    """v2 tells what the driver reserves apart; v1, of old drivers, counts it as used from 510 on."""
    newer, older = library.find("nvmlDeviceGetMemoryInfo_v2"), library.find("nvmlDeviceGetMemoryInfo")
    read_v1 = _memory_v1(older) if older else None
    if newer is None:
        return read_v1
    record = pynvml.c_nvmlMemory_v2_t()
    pointer = byref(record)

    older_until = 0

    def read(handle: Any, answers: Answers) -> int:
        nonlocal older_until
        if read_v1 is not None and older_until and answers.clock.monotonic() < older_until:
            return read_v1(handle, answers)
        record.version = pynvml.nvmlMemory_v2
        code = newer(handle, pointer)
        if code == SUCCESS:
            __, total, reserved, __, used = _MEMORY_V2.unpack_from(record)
            _give_memory(answers, total, used, reserved)
        elif read_v1 is not None and unspoken(code):
            older_until = answers.clock.monotonic() + round(AGAIN * SECOND)
            return read_v1(handle, answers)
        return code

    return read


def _memory_v1(function: Function) -> Read:
    record = (c_ulonglong * 3)()

    def read(handle: Any, answers: Answers) -> int:
        code = function(handle, record)
        if code == SUCCESS:
            total, __, used = record
            _give_memory(answers, total, used, U64)
        return code

    return read


def _give_memory(answers: Answers, *amounts: int) -> None:
    for metric, amount in zip(_MEMORY, amounts, strict=True):
        if amount < MOST_BYTES:
            answers.values[metric] = float(amount)
        else:
            answers.lack(metric, Availability.NOT_SUPPORTED)


def _codec(metric: str, name: str) -> Callable[[Library], Read | None]:
    def make(library: Library) -> Read | None:
        function = library.find(name)
        if function is None:
            return None
        share, period = c_uint(), c_uint()
        pointers = byref(share), byref(period)

        def read(handle: Any, answers: Answers) -> int:
            code = function(handle, *pointers)
            if code == SUCCESS:
                if share.value <= _WHOLE:
                    answers.values[metric] = share.value / 100
                else:
                    answers.lack(metric, Availability.NOT_SUPPORTED)
            return code

        return read

    return make


_SLOWEST = 15
"""The last performance state; 32 is "unknown": nvml.h, nvmlPstates_t."""

CALLS: tuple[Call, ...] = (
    Call(("gpu.utilization", "gpu.memory_utilization"), EVERY_TICK, _utilization),
    Call(("gpu.memory_used", "gpu.memory_reserved", "gpu.memory_total"), EVERY_TICK, _memory),
    Call(tuple(field.metric for field in fields_for("")[0]), EVERY_TICK, FieldBatch.make),
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
            most=U64 - 1,
            wide=True,
        ),
    ),
    Call(("gpu.clock_memory",), SELDOM, _number("gpu.clock_memory", 1e6, "nvmlDeviceGetClockInfo", arguments=(2,))),
    Call(("gpu.fan",), SELDOM, _number("gpu.fan", 1e-2, "nvmlDeviceGetFanSpeed")),
    Call(
        ("gpu.performance_state",),
        SELDOM,
        _number("gpu.performance_state", 1.0, "nvmlDeviceGetPerformanceState", most=15),
    ),
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
