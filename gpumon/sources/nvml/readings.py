"""The table of driver calls for a GPU, with the metrics and the period of each call.

The period of a call depends on its cost for the driver and on how fast the value changes. In total, there are fewer
than 6 calls per GPU and second at 1 Hz, and two more for GPM. `nvmlDeviceGetPcieThroughput` is not used because it
blocks for 20 ms per direction. Fields 197 and 198 count the same bytes.

To add a metric, add a row to `gpumon.model.metrics` and a row to this table.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from ctypes import byref, c_int, c_uint, c_ulonglong
from dataclasses import dataclass
from typing import Any

import pynvml

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.metrics import BY_NAME, Availability
from gpumon.sources.base import to_base_units
from gpumon.sources.nvml.fields import FieldBatch, fields_for_driver
from gpumon.sources.nvml.gpm import GPM_EVERY, GPM_METRICS, GpmReader
from gpumon.sources.nvml.library import Function, Library
from gpumon.sources.nvml.return_codes import NOT_SUPPORTED, SUCCESS, is_unsupported
from gpumon.sources.nvml.slow_fields import METRICS as SLOW_METRICS
from gpumon.sources.nvml.slow_fields import SlowFields
from gpumon.sources.nvml.values import (
    EVERY_TICK,
    MAX_BYTES,
    RETRY_UNSUPPORTED,
    U32,
    U64,
    DeviceValues,
    Read,
    largest_raw_value,
)

_MAX_MARGIN = BY_NAME["gpu.temperature_margin"].maximum
_MAX_SLOWDOWN = BY_NAME["gpu.temperature_slowdown"].maximum
_MARGIN_VERSION = 0x0100_0008
"""Version 1 of nvmlMarginTemperature_t. The structure contains the version and the degrees (4 bytes each)."""

_TEMPERATURE, _MARGIN = "gpu.temperature", "gpu.temperature_margin"
_MAX_TEMPERATURE = largest_raw_value(_TEMPERATURE, 1.0)
_SMALL_MARGIN, _SMALL_CHANGE, _LARGE_CHANGE = 20, 5, 15
"""Three values in °C. A margin below the first value is read again when the temperature has changed by the second
value. A larger margin matters less, so it is read again when the temperature has changed by the third value. Each read
costs a call."""


def read_temperature(library: Library) -> Read | None:
    """Return a reader of the temperature; None if the driver lacks the function.

    The reader also updates the temperature margin. If the margin is the driver's own value, the reader instead requests
    a new read of the margin.
    """
    function = library.find("nvmlDeviceGetTemperature")
    if function is None:
        return None
    degrees, sensor = c_uint(), c_uint(pynvml.NVML_TEMPERATURE_GPU)
    pointer = byref(degrees)

    def read(handle: Any, device: DeviceValues) -> int:
        code = function(handle, sensor, pointer)
        if code == SUCCESS:
            number, values = degrees.value, device.values
            if number <= _MAX_TEMPERATURE:
                values[_TEMPERATURE] = float(number)
                if _MARGIN not in values:
                    return code
                if device.slowdown:
                    values[_MARGIN] = float(device.slowdown - number)
                elif abs(change := number - device.margin_temperature) >= _SMALL_CHANGE:
                    margin = values[_MARGIN]
                    if min(margin, margin - change) < _SMALL_MARGIN or abs(change) >= _LARGE_CHANGE:
                        device.overdue = _MARGIN
            else:
                device.reject(_TEMPERATURE, number)
        return code

    return read


def read_margin(library: Library) -> Read | None:
    """Return a reader of the temperature margin.

    The margin is the driver's own value (branch 570 or later, Ada or newer), or else the degrees below the slowdown
    threshold.
    """
    newer, threshold = library.find("nvmlDeviceGetMarginTemperature"), library.find("nvmlDeviceGetTemperatureThreshold")
    record, slowdown = (c_int * 2)(), c_uint()
    pointer, kind = byref(slowdown), c_uint(pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
    use_threshold_until = 0

    def read(handle: Any, device: DeviceValues) -> int:
        nonlocal use_threshold_until
        code, device.slowdown = NOT_SUPPORTED, 0
        if newer is not None and device.clock.monotonic() >= use_threshold_until:
            record[0] = _MARGIN_VERSION
            code = newer(handle, record)
            if code == SUCCESS and abs(record[1]) <= _MAX_MARGIN:
                device.values[_MARGIN] = float(record[1])
                device.margin_temperature = device.values.get(_TEMPERATURE, NAN)
                return code
            if code != SUCCESS and not is_unsupported(code):
                return code
            use_threshold_until = device.clock.monotonic() + round(RETRY_UNSUPPORTED * SECOND)
        if threshold is not None and (code := threshold(handle, kind, pointer)) == SUCCESS:
            temperature = device.values.get(_TEMPERATURE)
            if temperature is not None and 0 < slowdown.value <= _MAX_SLOWDOWN:
                device.values[_MARGIN], device.slowdown = slowdown.value - temperature, slowdown.value
            else:
                device.set_missing(_MARGIN, Availability.NOT_SUPPORTED)
        return code

    return read


@dataclass(frozen=True, slots=True)
class Call:
    """A driver call, with the metrics that it returns and its period."""

    metrics: tuple[str, ...]
    period: float
    """Seconds between two reads."""
    bind: Callable[[Library], Read | None]
    """Function that returns a reader for the call, with its own buffers. It returns None if the driver lacks the
    function."""
    function: str
    """Newest name of the driver's function. Its cost is shown under this name."""


_FULL = 100
"""The value that a driver returns for 100 percent."""


def _number(
    metric: str, period: float, *names: str, scale: float = 1.0, arguments: tuple[int, ...] = (), wide: bool = False,
    has_period: bool = False,
) -> Call:  # fmt: skip
    """Return a row for f(handle, [arguments,] unsigned int *value).

    `names`: the names of the function, newest first. A number above the metric's `maximum` is rejected. `wide`: the
    value is an unsigned long long. `has_period`: the value is in percent, and the function also returns the period of
    its samples, which is not used.
    """
    maximum = _FULL if has_period else largest_raw_value(metric, scale, U64 if wide else U32)

    def bind(library: Library) -> Read | None:
        function = library.find(*names)
        if function is None:
            return None
        value = c_ulonglong() if wide else c_uint()
        given = [c_uint(argument) for argument in arguments]
        pointers = [byref(value), byref(c_uint())] if has_period else [byref(value)]

        def read(handle: Any, device: DeviceValues) -> int:
            code = function(handle, *given, *pointers)
            if code == SUCCESS:
                if value.value <= maximum:
                    device.values[metric] = to_base_units(value.value, scale)
                else:
                    device.reject(metric, value.value)
            return code

        return read

    return Call((metric,), period, bind, names[0])


_UTILIZATIONS = ("gpu.utilization", "gpu.memory_utilization")


def _utilization(library: Library) -> Read | None:
    function = library.find("nvmlDeviceGetUtilizationRates")
    if function is None:
        return None
    pair = (c_uint * 2)()

    def read(handle: Any, device: DeviceValues) -> int:
        code = function(handle, pair)
        if code == SUCCESS:
            for metric, percent in zip(_UTILIZATIONS, pair, strict=True):
                if percent <= _FULL:
                    device.values[metric] = percent / 100
                else:
                    device.reject(metric, percent)
        return code

    return read


_MEMORY = ("gpu.memory_total", "gpu.memory_used", "gpu.memory_reserved")
_VERSION_2 = int(pynvml.nvmlMemory_v2)
_MEMORY_V2 = struct.Struct("@IQQQQ").unpack_from
_SLACK_SHIFT = 3
"""Used memory may exceed the total by up to 1/8 (a shift by 3 bits), because drivers count differently. More is an
error."""


def _memory(library: Library) -> Read | None:
    """Return a reader of the device memory.

    Version 2 of the function returns the memory that the driver reserves separately. Version 1 is for old drivers.
    Since 510, it counts the reserved memory as used.
    """
    newer, older = library.find("nvmlDeviceGetMemoryInfo_v2"), library.find("nvmlDeviceGetMemoryInfo")
    read_v1 = _memory_v1(older) if older else None
    if newer is None:
        return read_v1
    record = pynvml.c_nvmlMemory_v2_t()
    pointer = byref(record)
    version = c_uint.from_buffer(record)  # setting a field through nvidia-ml-py takes longer than the call

    use_v1_until, has_succeeded = 0, False

    def read(handle: Any, device: DeviceValues) -> int:
        nonlocal use_v1_until, has_succeeded
        if read_v1 is not None and use_v1_until and device.clock.monotonic() < use_v1_until:
            return read_v1(handle, device)
        version.value = _VERSION_2
        code = newer(handle, pointer)
        if code == SUCCESS:
            has_succeeded = True
            __, total, reserved, __, used = _MEMORY_V2(record)
            _set_memory(device, total, used, reserved)
        # If v2 has succeeded before, this is a fault. During the fault, v1 would count the reserved memory as used.
        elif read_v1 is not None and is_unsupported(code) and not has_succeeded:
            use_v1_until = device.clock.monotonic() + round(RETRY_UNSUPPORTED * SECOND)
            return read_v1(handle, device)
        return code

    return read


def _memory_v1(function: Function) -> Read:
    record = (c_ulonglong * 3)()

    def read(handle: Any, device: DeviceValues) -> int:
        code = function(handle, record)
        if code == SUCCESS:
            total, __, used = record
            _set_memory(device, total, used, U64)
        return code

    return read


def _set_memory(device: DeviceValues, *amounts: int) -> None:
    """Store total, used and reserved memory (bytes). If the total is 0, the device has no memory of its own."""
    total = amounts[0]
    maximum = total + (total >> _SLACK_SHIFT) if total < MAX_BYTES else MAX_BYTES - 1
    for metric, amount in zip(_MEMORY, amounts, strict=True):
        if total == 0:
            device.set_missing(metric, Availability.NOT_SUPPORTED)
        elif amount <= maximum:
            device.values[metric] = float(amount)
        else:
            device.reject(metric, amount)


MEMORY_CALL = Call(_MEMORY, EVERY_TICK, _memory, "nvmlDeviceGetMemoryInfo")
CALLS: tuple[Call, ...] = (
    Call(_UTILIZATIONS, EVERY_TICK, _utilization, "nvmlDeviceGetUtilizationRates"),
    MEMORY_CALL,
    Call(
        tuple(field.metric for field in fields_for_driver("")[0]), EVERY_TICK, FieldBatch.from_library,
        "nvmlDeviceGetFieldValues",
    ),
    _number("gpu.clock_sm", EVERY_TICK, "nvmlDeviceGetClockInfo", scale=1e6, arguments=(pynvml.NVML_CLOCK_SM,)),
    Call(("gpu.temperature",), 3.0, read_temperature, "nvmlDeviceGetTemperature"),
    _number(
        "gpu.event_reasons", 3.0, "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons", wide=True,
    ),
    Call(SLOW_METRICS, 30.0, SlowFields.from_library, "nvmlDeviceGetFieldValues (faults and links)"),
    _number("gpu.clock_memory", 60.0, "nvmlDeviceGetClockInfo", scale=1e6, arguments=(pynvml.NVML_CLOCK_MEM,)),
    _number("gpu.fan", 30.0, "nvmlDeviceGetFanSpeed", scale=1e-2),
    _number("gpu.performance_state", 30.0, "nvmlDeviceGetPerformanceState"),
    _number("gpu.encoder_utilization", 60.0, "nvmlDeviceGetEncoderUtilization", scale=1e-2, has_period=True),
    _number("gpu.decoder_utilization", 60.0, "nvmlDeviceGetDecoderUtilization", scale=1e-2, has_period=True),
    Call(("gpu.temperature_margin",), 60.0, read_margin, "nvmlDeviceGetMarginTemperature"),
    _number("gpu.jpeg_utilization", 120.0, "nvmlDeviceGetJpgUtilization", scale=1e-2, has_period=True),
    _number("gpu.optical_flow_utilization", 120.0, "nvmlDeviceGetOfaUtilization", scale=1e-2, has_period=True),
    _number("gpu.pcie_generation", 30.0, "nvmlDeviceGetCurrPcieLinkGeneration"),
    _number("gpu.pcie_width", 30.0, "nvmlDeviceGetCurrPcieLinkWidth"),
    _number(
        "gpu.clock_sm_max", 600.0, "nvmlDeviceGetMaxClockInfo", scale=1e6, arguments=(pynvml.NVML_CLOCK_SM,),
    ),
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
    Call(GPM_METRICS, GPM_EVERY, GpmReader.from_library, "nvmlGpmSampleGet and nvmlGpmMetricsGet"),
)  # fmt: skip

# Calls for metrics that older drivers do not return with the batch of fields.
FALLBACKS: tuple[Call, ...] = (
    _number("gpu.power", EVERY_TICK, "nvmlDeviceGetPowerUsage", scale=1e-3),
    _number("gpu.power_limit", 10.0, "nvmlDeviceGetEnforcedPowerLimit", scale=1e-3),
)


SHARED_MEMORY_CHIPS = frozenset(("GB10", "N1X", "Thor", "Orin", "Xavier", "Tegra"))
"""Words in the names of chips that use the host's memory. Chips with memory of their own, such as GH200, are not
listed."""
MEMORY = ("gpu.memory_total", "gpu.memory_used", "gpu.memory_reserved", "gpu.memory_unattributed")
LINK = frozenset(f"gpu.pcie_{name}" for name in ("generation", "width", "generation_max", "width_max"))
"""Metrics of the PCIe link. For a chip with shared memory, the driver makes these values up."""


def shares_host_memory(name: str) -> bool:
    """Return whether a device with this name uses the memory of the machine and has none of its own."""
    return not SHARED_MEMORY_CHIPS.isdisjoint(re.split(r"\W+", name))


def explain_shared_memory(missing: Mapping[str, Availability]) -> dict[str, Availability]:
    """Return the reasons for missing metrics of a chip that uses the host's memory.

    For memory metrics that the driver does not report, the reason becomes SHARED_WITH_HOST.
    """
    return {
        name: Availability.SHARED_WITH_HOST if why is Availability.NOT_SUPPORTED and name in MEMORY else why
        for name, why in missing.items()
    }
