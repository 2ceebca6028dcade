"""The margin of a GPU up to the temperature at which its clocks are lowered."""

from __future__ import annotations

from ctypes import byref, c_int, c_uint
from typing import Any

import pynvml

from gpumon.clock import SECOND
from gpumon.metrics import BY_NAME, Availability
from gpumon.sources.nvml.answers import DeviceAnswers, Read
from gpumon.sources.nvml.library import NOT_SUPPORTED, SUCCESS, Library, unspoken
from gpumon.sources.nvml.schedule import UNSUPPORTED

_MOST = BY_NAME["gpu.temperature_margin"].most
_HOTTEST = BY_NAME["gpu.temperature_slowdown"].most
_MARGIN = 0x0100_0008
"""Version 1 of nvmlMarginTemperature_t: the version itself, then the degrees, 4 bytes each."""


def read_margin(library: Library) -> Read | None:
    """Bind the driver's own margin, which came with branch 570 and Ada; elsewhere the degrees up to the slowdown."""
    newer, threshold = library.find("nvmlDeviceGetMarginTemperature"), library.find("nvmlDeviceGetTemperatureThreshold")
    record, slowdown = (c_int * 2)(), c_uint()
    pointer, kind = byref(slowdown), c_uint(pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
    older_until = 0

    def read(handle: Any, answers: DeviceAnswers) -> int:
        nonlocal older_until
        code = NOT_SUPPORTED
        if newer is not None and answers.clock.monotonic() >= older_until:
            record[0] = _MARGIN
            code = newer(handle, record)
            if code == SUCCESS and abs(record[1]) <= _MOST:
                answers.values["gpu.temperature_margin"] = float(record[1])
                return code
            if code != SUCCESS and not unspoken(code):
                return code
            older_until = answers.clock.monotonic() + round(UNSUPPORTED * SECOND)
        if threshold is not None and (code := threshold(handle, kind, pointer)) == SUCCESS:
            now = answers.values.get("gpu.temperature")
            if now is not None and 0 < slowdown.value <= _HOTTEST:
                answers.values["gpu.temperature_margin"] = slowdown.value - now
            else:
                answers.lack("gpu.temperature_margin", Availability.NOT_SUPPORTED)
        return code

    return read
