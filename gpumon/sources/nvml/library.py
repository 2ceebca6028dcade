"""The driver's library, and the one place where its return codes become availabilities.

nvidia-ml-py names its structures and constants. Calls go to the library through prototypes and buffers
that are made once: nvidia-ml-py builds a Python object for every process and calls twice for every
list, which costs ten times the driver's own time.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pynvml

from gpumon.common.errors import SourceError
from gpumon.common.text import clean
from gpumon.model.metrics import Availability
from gpumon.model.origin import Driver
from gpumon.model.remedies import RESTART_MACHINE
from gpumon.model.vendors import NVIDIA
from gpumon.sources.nvml.bus import gpus_may_be_there
from gpumon.sources.nvml.gpm_samples import GpmSamples
from gpumon.sources.nvml.loader import SHARED, is_absent

Function = Callable[..., int]
"""Takes ctypes values and pointers to buffers, and gives a return code. Nothing checks them against the C signature but
`tests/unit/test_nvml_memory.py`: a function that is called anew needs its row in `tests/nvml/signatures.py`."""

SUCCESS = int(pynvml.NVML_SUCCESS)
UNKNOWN = int(pynvml.NVML_ERROR_UNKNOWN)
INSUFFICIENT_SIZE = int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
NOT_FOUND = int(pynvml.NVML_ERROR_NOT_FOUND)
LIBRARY_NOT_FOUND = int(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
VERSION_MISMATCH = int(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
NOT_SUPPORTED = int(pynvml.NVML_ERROR_NOT_SUPPORTED)
FUNCTION_NOT_FOUND = int(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

_AVAILABILITY: dict[int, Availability] = {
    SUCCESS: Availability.OK,
    int(pynvml.NVML_ERROR_NOT_SUPPORTED): Availability.NOT_SUPPORTED,
    int(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND): Availability.NOT_SUPPORTED,
    int(pynvml.NVML_ERROR_INVALID_ARGUMENT): Availability.NOT_SUPPORTED,
    int(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH): Availability.NOT_SUPPORTED,
    int(pynvml.NVML_ERROR_NO_PERMISSION): Availability.NO_PERMISSION,
    int(pynvml.NVML_ERROR_GPU_IS_LOST): Availability.LOST,
    int(pynvml.NVML_ERROR_UNINITIALIZED): Availability.NO_DRIVER,
    int(pynvml.NVML_ERROR_DRIVER_NOT_LOADED): Availability.NO_DRIVER,
    int(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND): Availability.NO_DRIVER,
    int(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH): Availability.NO_DRIVER,
    int(pynvml.NVML_ERROR_RESET_REQUIRED): Availability.RESET_REQUIRED,
}

_ADVICE: dict[int, str] = {
    LIBRARY_NOT_FOUND: "the NVIDIA driver is not installed (libnvidia-ml.so.1 was not found)",
    int(pynvml.NVML_ERROR_DRIVER_NOT_LOADED): "the NVIDIA driver is installed but not loaded: try 'nvidia-smi', "
    "or 'sudo modprobe nvidia'",
    int(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH): "the NVIDIA driver was updated without restarting the machine "
    f"(library and kernel module differ): {RESTART_MACHINE}",
    int(pynvml.NVML_ERROR_NO_PERMISSION): "no permission to use the NVIDIA driver: check the mode of /dev/nvidia*",
    int(pynvml.NVML_ERROR_GPU_IS_LOST): f"the driver lost a GPU: check 'dmesg', then {RESTART_MACHINE}",
    int(pynvml.NVML_ERROR_RESET_REQUIRED): "a GPU must be reset: 'gpumon status' says which, and how",
}


_PCI_ADDRESS = struct.Struct("=16s20x32s")
"""nvmlPciInfo_t: the address in 16 bytes, five numbers, the address in 32 bytes."""


def availability(code: int) -> Availability:
    """Return the availability of a value after a return code."""
    return _AVAILABILITY.get(code, Availability.FAILED)


def unspoken(code: int) -> bool:
    """Whether a driver says so of a version of a call that it does not have, or not for this GPU: an older may do."""
    return availability(code) is Availability.NOT_SUPPORTED


class Library:
    """The driver's library, started. One for a process; `close` stops it, and so no call may be under way then.

    After an upgrade of the driver a new one goes through the new library: see `loader`.

    `find` may be called from several threads: whoever comes second writes the same function again.
    """

    def __init__(self, withheld: Mapping[str, Availability] = MappingProxyType({})) -> None:
        """`withheld`: metrics that must not be asked for, and why.

        Raises SourceError, with what to do, when there is no driver that answers.
        """
        self.withheld = withheld
        self._copy = _started()
        self._functions: dict[str, Function] = {}
        self.gpm_samples = GpmSamples(self.find)
        self.driver = self._versions()

    def find(self, *names: str) -> Function | None:
        """The first of these functions that this driver has, newest name first."""
        for name in names:
            if name not in self._functions:
                try:
                    function = getattr(self._copy, name)
                except AttributeError:
                    continue
                function.restype = ctypes.c_int
                self._functions[name] = function
            return self._functions[name]
        return None

    def count(self) -> tuple[int, int]:
        """Return code and number of devices."""
        number = ctypes.c_uint()
        function = self.find("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")
        return (function(ctypes.byref(number)) if function else -1), number.value

    def handle(self, index: int) -> tuple[int, Any]:
        """Return code and handle of the device with this index."""
        handle = ctypes.c_void_p()
        function = self.find("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex")
        return (function(ctypes.c_uint(index), ctypes.byref(handle)) if function else -1), handle

    def text(self, name: str, handle: Any) -> tuple[int, str]:
        """Return code, and the text of a function such as nvmlDeviceGetName, made harmless; empty when it fails."""
        function = self.find(name)
        buffer = ctypes.create_string_buffer(256)
        code = function(handle, buffer, ctypes.c_uint(256)) if function else FUNCTION_NOT_FOUND
        return code, clean(buffer.value.decode("utf-8", "replace")) if code == SUCCESS else ""

    def minor(self, handle: Any) -> int:
        """The number of the device file of a GPU; -1 where the driver does not give it."""
        number = ctypes.c_uint()
        function = self.find("nvmlDeviceGetMinorNumber")
        return number.value if function and function(handle, ctypes.byref(number)) == SUCCESS else -1

    def bus_address(self, handle: Any) -> str:
        """The PCI address of a device, such as 00000000:65:00.0; empty where the driver does not give it."""
        info = pynvml.nvmlPciInfo_t()
        function = self.find("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo")
        if function is None or function(handle, ctypes.byref(info)) != SUCCESS:
            return ""
        # The second, longer copy of the address came with v3; before, nothing is written there.
        copies = (_PCI_ADDRESS.unpack_from(info)[1], _PCI_ADDRESS.unpack_from(info)[0])
        found = next((text for copy in copies if (text := copy.partition(b"\0")[0])), b"")
        return clean(found.decode("ascii", "replace"))

    def _versions(self) -> Driver:
        buffer = ctypes.create_string_buffer(96)
        function = self.find("nvmlSystemGetDriverVersion")
        version = ""
        if function is not None and function(buffer, ctypes.c_uint(96)) == SUCCESS:
            version = clean(buffer.value.decode("utf-8", "replace"))
        number = ctypes.c_int()
        function = self.find("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion")
        if function is None or function(ctypes.byref(number)) != SUCCESS:
            return Driver(version)
        # 1000 * major + 10 * minor: nvml.h, NVML_CUDA_DRIVER_VERSION_MAJOR and _MINOR.
        return Driver(version, f"{NVIDIA.runtime} {number.value // 1000}.{number.value % 1000 // 10}")

    def close(self) -> None:
        """Stop the library. Never raises: a driver that is gone needs no goodbye."""
        self.gpm_samples.free()
        function = self.find("nvmlShutdown")
        if function is not None:
            function()


def _started() -> ctypes.CDLL:
    """The library that the kernel's part of the driver takes. Raises SourceError."""
    try:
        copy = SHARED.current
    except OSError as error:
        if is_absent(error):
            no_gpu = "" if gpus_may_be_there() else "no NVIDIA GPU is on the PCI bus, and "
            raise SourceError(no_gpu + advice(LIBRARY_NOT_FOUND)) from error
        raise SourceError(f"the NVIDIA driver's library cannot be loaded ({clean(str(error))})") from error
    code = _start(copy)
    if code == VERSION_MISMATCH and (newer := SHARED.on_disk()) is not None:
        code = _start(newer)
        if code == SUCCESS:
            SHARED.use(newer)
            return newer
    if code != SUCCESS:
        raise SourceError(advice(code))
    return copy


def _start(copy: ctypes.CDLL) -> int:
    function = getattr(copy, "nvmlInitWithFlags", None)
    return int(function(ctypes.c_uint(0)) if function is not None else copy.nvmlInit_v2())


def advice(code: int) -> str:
    """One line on why no GPU can be read, and what to do."""
    known = _ADVICE.get(code)
    return known or f"the NVIDIA driver does not answer ({clean(str(pynvml.NVMLError(code)))}): try 'nvidia-smi'"
