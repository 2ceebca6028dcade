"""MIG: how many instances a GPU is divided into. They have no rows of their own yet, and are to be seen as such."""

from __future__ import annotations

from ctypes import byref, c_uint, c_void_p
from typing import Any

from gpumon.sources.nvml.answers import DeviceAnswers, Read
from gpumon.sources.nvml.library import NOT_FOUND, SUCCESS, Library

INSTANCES = "gpu.mig_instances"
_MOST = 64
"""Places that are looked at: a GPU of today has 7."""


def read_instances(library: Library) -> Read | None:
    """Bind the count of instances to a library; None where the driver is older than MIG."""
    mode, places = library.find("nvmlDeviceGetMigMode"), library.find("nvmlDeviceGetMaxMigDeviceCount")
    by_index = library.find("nvmlDeviceGetMigDeviceHandleByIndex")
    if mode is None or places is None or by_index is None:
        return None
    current, pending, most, instance = c_uint(), c_uint(), c_uint(), c_void_p()

    def read(handle: Any, answers: DeviceAnswers) -> int:
        code = mode(handle, byref(current), byref(pending))
        if code != SUCCESS:
            return code
        found = 0
        if current.value:
            code = places(handle, byref(most))
            for place in range(min(most.value, _MOST)) if code == SUCCESS else ():
                code = by_index(handle, c_uint(place), byref(instance))
                if code not in (SUCCESS, NOT_FOUND):
                    break
                found += code == SUCCESS
            if code not in (SUCCESS, NOT_FOUND):
                return code
        answers.values[INSTANCES] = float(found)
        return SUCCESS

    return read
