"""The floors of the daemon: loops that make driver calls once a second and do nothing else.

    python -m benchmarks.floor bare '{"nvmlDeviceGetMemoryInfo_v2": 1.0, ...}'
    python -m benchmarks.floor library

`bare` makes the calls that it is given per GPU and second, through ctypes, with handles, arguments
and buffers that are made once, and looks at nothing that comes back. `library` is what a script with
nvidia-ml-py does: eleven readings and the list of processes of each GPU.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable, Mapping
from ctypes import byref, c_uint
from typing import Any

import pynvml

from gpumon.sources.nvml.fields import fields_for_driver

_ROOM = 64
_PLAIN = (
    "nvmlDeviceGetFanSpeed",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetMaxMigDeviceCount",
)
"""Functions of a handle and a place for a number."""
_PAIRS = (
    "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetDecoderUtilization",
    "nvmlDeviceGetJpgUtilization",
    "nvmlDeviceGetOfaUtilization",
    "nvmlDeviceGetMigMode",
)
"""Functions of a handle and places for two numbers."""
_WAITING = ("nvmlEventSetWait", "nvmlGpmSampleGet", "nvmlGpmMetricsGet")
"""Functions that the floor leaves out: one that waits, and those whose samples the driver hands out."""


def arguments(name: str, handle: Any, index: int) -> tuple[Any, ...]:
    """Kept arguments of one call of the driver, as gpumon makes it."""
    number = byref(c_uint())
    match name.removesuffix("_v2").removesuffix("_v3"):
        case "nvmlDeviceGetCount":
            return (number,)
        case "nvmlDeviceGetHandleByIndex":
            return c_uint(index), byref(ctypes.c_void_p())
        case "nvmlDeviceGetClockInfo":
            return handle, c_uint(1), number
        case "nvmlDeviceGetTemperature":
            return handle, c_uint(0), number
        case "nvmlDeviceGetMemoryInfo":
            record = pynvml.c_nvmlMemory_v2_t()
            record.version = pynvml.nvmlMemory_v2
            return handle, byref(record)
        case "nvmlDeviceGetUtilizationRates":
            return handle, (c_uint * 2)()
        case "nvmlDeviceGetTemperatureThreshold" | "nvmlDeviceGetNvLinkState":
            return handle, c_uint(1), number
        case "nvmlDeviceGetMarginTemperature":
            return handle, (c_uint * 2)(0x0100_0008)
        case pair if pair in _PAIRS:
            return handle, number, byref(c_uint())
        case "nvmlDeviceGetCurrentClocksEventReasons" | "nvmlDeviceGetCurrentClocksThrottleReasons":
            return handle, byref(ctypes.c_ulonglong())
        case "nvmlDeviceGetFieldValues":
            fields = fields_for_driver(pynvml.nvmlSystemGetDriverVersion())[0]
            batch = (pynvml.c_nvmlFieldValue_t * (len(fields) + 1))()
            for i, field in enumerate(fields):
                batch[i].fieldId = field.id
            return handle, ctypes.c_int(len(fields)), batch
        case "nvmlDeviceGetComputeRunningProcesses" | "nvmlDeviceGetGraphicsRunningProcesses":
            return handle, byref(c_uint(_ROOM)), ctypes.create_string_buffer(_ROOM * 24)
        case "nvmlDeviceGetProcessUtilization":
            return handle, ctypes.create_string_buffer(_ROOM * 32), byref(c_uint(_ROOM)), ctypes.c_ulonglong(0)
        case "nvmlDeviceGetSamples":
            kind, count = c_uint(pynvml.NVML_GPU_UTILIZATION_SAMPLES), byref(c_uint(_ROOM))
            return handle, kind, ctypes.c_ulonglong(0), number, count, ctypes.create_string_buffer(_ROOM * 16)
        case "nvmlGpmQueryDeviceSupport":
            record = pynvml.c_nvmlGpmSupport_t()
            record.version = pynvml.NVML_GPM_SUPPORT_VERSION
            return handle, byref(record)
        case plain if plain in _PLAIN:
            return handle, number
    raise ValueError(f"the daemon calls {name}: tell benchmarks/floor.py with which arguments")


def bare(rates: Mapping[str, float]) -> Callable[[], None]:
    """One second's calls. What is due less than once a second goes round the GPUs."""
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    each: list[tuple[Callable[..., int], list[tuple[Any, ...]], list[float]]] = []
    for name, rate in rates.items():
        if name.removesuffix("_v2") in _WAITING:
            continue
        kept = [arguments(name, handle, index) for index, handle in enumerate(handles)]
        each.append((getattr(pynvml.nvmlLib, name), kept, [rate * len(handles), 0.0, 0.0]))

    def once() -> None:
        for function, kept, turn in each:
            turn[1] += turn[0]
            while turn[1] >= 0.999:
                turn[1] -= 1
                function(*kept[int(turn[2])])
                turn[2] = (turn[2] + 1) % len(kept)

    return once


def library() -> Callable[[], None]:
    """One second's readings through nvidia-ml-py."""
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]

    def once() -> None:
        for handle in handles:
            used = pynvml.nvmlDeviceGetUtilizationRates(handle)
            held = pynvml.nvmlDeviceGetMemoryInfo(handle)
            _ = used.gpu, used.memory, held.used, held.total
            pynvml.nvmlDeviceGetTemperature(handle, 0)
            pynvml.nvmlDeviceGetPowerUsage(handle)
            pynvml.nvmlDeviceGetEnforcedPowerLimit(handle)
            for clock in (0, 1, 2):
                pynvml.nvmlDeviceGetClockInfo(handle, clock)
            pynvml.nvmlDeviceGetFanSpeed(handle)
            pynvml.nvmlDeviceGetPerformanceState(handle)
            pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
            _ = [
                (process.pid, process.usedGpuMemory) for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            ]

    return once


def main() -> None:
    once = bare(json.loads(sys.argv[2])) if sys.argv[1] == "bare" else library()
    deadline = time.monotonic()
    while True:
        once()
        deadline += 1.0
        time.sleep(max(0.0, deadline - time.monotonic()))


if __name__ == "__main__":
    main()
