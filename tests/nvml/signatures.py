"""The functions of nvml.h that gpumon calls, argument by argument, and a library that checks each call against them.

ctypes passes what it is given: a buffer that is shorter than what the driver writes is memory of somebody else. The
structures are those of nvidia-ml-py, NVIDIA's own; of the older version of a process it has none any more.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_char, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any, NamedTuple

import pynvml

from gpumon.model.metrics import Availability
from gpumon.model.origin import Driver
from gpumon.sources.nvml.library import GpmSamples


class Value(NamedTuple):
    """An argument passed by value; an enumeration is an unsigned or a signed int."""

    kinds: tuple[type, ...]


class Written(NamedTuple):
    """A pointer to what the driver writes, once, or as often as the argument at `counted` says."""

    kind: type
    counted: int = -1
    may_be_null: bool = False


class ProcessInfoV1(ctypes.Structure):
    """nvmlProcessInfo_v1_t."""

    _fields_ = (("pid", c_uint), ("usedGpuMemory", c_ulonglong))


class EventDataV1(ctypes.Structure):
    """nvmlEventData_t before instances of MIG came into it."""

    _fields_ = (("device", c_void_p), ("eventType", c_ulonglong), ("eventData", c_ulonglong))


UINT = Value((c_uint, c_int))
HANDLE = Value((c_void_p,))
ULL = Value((c_ulonglong,))
_GPM_SAMPLE = Value((c_void_p, pynvml.c_nvmlGpmSample_t))
_NUMBER = (HANDLE, Written(c_uint))
_WIDE = (HANDLE, Written(c_ulonglong))
_PAIR = (HANDLE, Written(c_uint), Written(c_uint))
_LIST_V1 = (HANDLE, Written(c_uint), Written(ProcessInfoV1, counted=1, may_be_null=True))
_LIST_V2 = (HANDLE, Written(c_uint), Written(pynvml.c_nvmlProcessInfo_v2_t, counted=1, may_be_null=True))
_LIST_V3 = (HANDLE, Written(c_uint), Written(pynvml.c_nvmlProcessInfo_v3_t, counted=1, may_be_null=True))

SIGNATURES: dict[str, tuple[Value | Written, ...]] = {
    "nvmlInitWithFlags": (UINT,),
    "nvmlInit_v2": (),
    "nvmlShutdown": (),
    "nvmlSystemGetDriverVersion": (Written(c_char, counted=1), UINT),
    "nvmlSystemGetCudaDriverVersion": (Written(c_int),),
    "nvmlSystemGetCudaDriverVersion_v2": (Written(c_int),),
    "nvmlDeviceGetCount": (Written(c_uint),),
    "nvmlDeviceGetCount_v2": (Written(c_uint),),
    "nvmlDeviceGetHandleByIndex": (UINT, Written(c_void_p)),
    "nvmlDeviceGetHandleByIndex_v2": (UINT, Written(c_void_p)),
    "nvmlDeviceGetName": (HANDLE, Written(c_char, counted=2), UINT),
    "nvmlDeviceGetMinorNumber": _NUMBER,
    "nvmlDeviceGetUUID": (HANDLE, Written(c_char, counted=2), UINT),
    "nvmlDeviceGetPciInfo": (HANDLE, Written(pynvml.nvmlPciInfo_t)),
    "nvmlDeviceGetPciInfo_v2": (HANDLE, Written(pynvml.nvmlPciInfo_t)),
    "nvmlDeviceGetPciInfo_v3": (HANDLE, Written(pynvml.nvmlPciInfo_t)),
    "nvmlDeviceGetUtilizationRates": (HANDLE, Written(pynvml.c_nvmlUtilization_t)),
    "nvmlDeviceGetMemoryInfo": (HANDLE, Written(pynvml.c_nvmlMemory_t)),
    "nvmlDeviceGetMemoryInfo_v2": (HANDLE, Written(pynvml.c_nvmlMemory_v2_t)),
    "nvmlDeviceGetFieldValues": (HANDLE, Value((c_int,)), Written(pynvml.c_nvmlFieldValue_t, counted=1)),
    "nvmlDeviceGetTemperatureThreshold": (HANDLE, UINT, Written(c_uint)),
    "nvmlDeviceGetMarginTemperature": (HANDLE, Written(pynvml.c_nvmlMarginTemperature_v1_t)),
    "nvmlDeviceGetNvLinkState": (HANDLE, UINT, Written(c_uint)),
    "nvmlDeviceGetClockInfo": (HANDLE, UINT, Written(c_uint)),
    "nvmlDeviceGetMaxClockInfo": (HANDLE, UINT, Written(c_uint)),
    "nvmlDeviceGetTemperature": (HANDLE, UINT, Written(c_uint)),
    "nvmlDeviceGetCurrentClocksEventReasons": _WIDE,
    "nvmlDeviceGetCurrentClocksThrottleReasons": _WIDE,
    "nvmlDeviceGetFanSpeed": _NUMBER,
    "nvmlDeviceGetPerformanceState": _NUMBER,
    "nvmlDeviceGetPowerUsage": _NUMBER,
    "nvmlDeviceGetEnforcedPowerLimit": _NUMBER,
    "nvmlDeviceGetEncoderUtilization": _PAIR,
    "nvmlDeviceGetDecoderUtilization": _PAIR,
    "nvmlDeviceGetJpgUtilization": _PAIR,
    "nvmlDeviceGetOfaUtilization": _PAIR,
    "nvmlDeviceGetCurrPcieLinkGeneration": _NUMBER,
    "nvmlDeviceGetCurrPcieLinkWidth": _NUMBER,
    "nvmlDeviceGetMaxPcieLinkGeneration": _NUMBER,
    "nvmlDeviceGetMaxPcieLinkWidth": _NUMBER,
    "nvmlDeviceGetComputeRunningProcesses": _LIST_V1,
    "nvmlDeviceGetComputeRunningProcesses_v2": _LIST_V2,
    "nvmlDeviceGetComputeRunningProcesses_v3": _LIST_V3,
    "nvmlDeviceGetGraphicsRunningProcesses": _LIST_V1,
    "nvmlDeviceGetGraphicsRunningProcesses_v2": _LIST_V2,
    "nvmlDeviceGetGraphicsRunningProcesses_v3": _LIST_V3,
    "nvmlDeviceGetProcessUtilization": (
        HANDLE, Written(pynvml.c_nvmlProcessUtilizationSample_t, counted=2, may_be_null=True), Written(c_uint), ULL,
    ),
    "nvmlDeviceGetMigMode": _PAIR,
    "nvmlDeviceGetGpuInstanceId": _NUMBER,
    "nvmlDeviceGetMaxMigDeviceCount": _NUMBER,
    "nvmlDeviceGetMigDeviceHandleByIndex": (HANDLE, UINT, Written(c_void_p)),
    "nvmlDeviceGetSupportedEventTypes": _WIDE,
    "nvmlDeviceRegisterEvents": (HANDLE, ULL, HANDLE),
    "nvmlEventSetCreate": (Written(c_void_p),),
    "nvmlEventSetWait": (HANDLE, Written(EventDataV1), UINT),
    "nvmlEventSetWait_v2": (HANDLE, Written(pynvml.c_nvmlEventData_t), UINT),
    "nvmlEventSetFree": (HANDLE,),
    "nvmlGpmQueryDeviceSupport": (HANDLE, Written(pynvml.c_nvmlGpmSupport_t)),
    "nvmlGpmSampleAlloc": (Written(c_void_p),),
    "nvmlGpmSampleFree": (_GPM_SAMPLE,),
    "nvmlGpmSampleGet": (HANDLE, _GPM_SAMPLE),
    "nvmlGpmMigSampleGet": (HANDLE, UINT, _GPM_SAMPLE),
    "nvmlGpmMetricsGet": (Written(pynvml.c_nvmlGpmMetricsGet_t),),
    "nvmlDeviceGetSamples": (
        HANDLE, UINT, ULL, Written(c_int), Written(c_uint), Written(pynvml.c_nvmlSample_t, counted=4, may_be_null=True),
    ),
}  # fmt: skip
"""What nvml.h declares. `Written` is what the driver writes: its type, and how many of them."""

Answer = Callable[..., int]


def buffer_of(argument: Any) -> Any:
    """The ctypes object behind a pointer argument."""
    return argument._obj if hasattr(argument, "_obj") else argument


def check(name: str, arguments: tuple[Any, ...]) -> None:
    """Raise AssertionError unless a call of `name` passes what nvml.h declares, with room for all that is written."""
    signature = SIGNATURES[name]
    assert len(arguments) == len(signature), f"{name} takes {len(signature)} arguments"
    for place, (declared, given) in enumerate(zip(signature, arguments, strict=True)):
        where = f"{name}, argument {place}"
        if isinstance(declared, Value):
            assert isinstance(given, declared.kinds), f"{where}: {type(given)} by value"
            continue
        if given is None:
            assert declared.may_be_null, where
            continue
        by_reference = hasattr(given, "_obj")
        assert by_reference or isinstance(given, ctypes.Array), f"{where}: a structure is passed by value"
        times = buffer_of(arguments[declared.counted]).value if declared.counted >= 0 else 1
        room, written = ctypes.sizeof(buffer_of(given)), ctypes.sizeof(declared.kind) * times
        assert room >= written, f"{where}: the driver writes {written} bytes into {room}"


def _has_gpm(_: Any, support: Any) -> int:
    support._obj.isSupportedDevice = 1
    return 0


class CheckedLibrary:
    """Stands for a started `Library`: every call is checked, then answered by the test's own function."""

    def __init__(
        self, answers: dict[str, Answer | int] | None = None, version: str = "615.71.05", only: str = ""
    ) -> None:
        self.driver = Driver(version)
        self.withheld: dict[str, Availability] = {}
        self.gpm_samples = GpmSamples(self.find)
        self.answers = {"nvmlGpmQueryDeviceSupport": _has_gpm, **(answers or {})}
        """By function: what answers it, or the code that it answers with.

        The others succeed and write nothing, but that each GPU has GPM.
        """
        self.calls: list[str] = []
        self._only = only
        """Of the versions that a caller knows, the one whose name ends like this."""

    def find(self, *names: str) -> Answer | None:
        """The first of the functions that this driver has, as `Library.find`."""
        for name in names:
            if not self._only or name.endswith(self._only):
                return self._function(name)
        return None

    def _function(self, name: str) -> Answer:
        def call(*arguments: Any) -> int:
            check(name, arguments)
            self.calls.append(name)
            answer = self.answers.get(name, 0)
            return answer if isinstance(answer, int) else answer(*arguments)

        assert name in SIGNATURES, f"{name} is called, and has no signature in tests/nvml/signatures.py"
        return call
