"""The temperature of a GPU, and the margin up to that at which its clocks are lowered."""

from __future__ import annotations

from ctypes import byref, c_int, c_uint
from typing import Any

import pynvml

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.metrics import BY_NAME, Availability
from gpumon.sources.nvml.answers import DeviceAnswers, Read, most_of
from gpumon.sources.nvml.library import NOT_SUPPORTED, SUCCESS, Library, unspoken
from gpumon.sources.nvml.schedule import UNSUPPORTED

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
