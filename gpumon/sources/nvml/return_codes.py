"""Converts NVML return codes to the availability of a value, and to advice for the user. No other module does this."""

from __future__ import annotations

import pynvml

from gpumon.common.text import clean
from gpumon.model.metrics import Availability
from gpumon.model.remedies import AFTER_LOSS, RESTART_MACHINE

SUCCESS = int(pynvml.NVML_SUCCESS)


UNKNOWN = int(pynvml.NVML_ERROR_UNKNOWN)


INSUFFICIENT_SIZE = int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)


NOT_FOUND = int(pynvml.NVML_ERROR_NOT_FOUND)


GPU_IS_LOST = int(pynvml.NVML_ERROR_GPU_IS_LOST)


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
    GPU_IS_LOST: Availability.LOST,
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
    GPU_IS_LOST: f"the driver lost a GPU: {AFTER_LOSS}",
    int(pynvml.NVML_ERROR_RESET_REQUIRED): "a GPU must be reset: 'gpumon status' says which, and how",
}


def availability(code: int) -> Availability:
    """Convert a return code of the driver to the availability of the value."""
    return _AVAILABILITY.get(code, Availability.FAILED)


def is_unsupported(code: int) -> bool:
    """Return whether a code means that the driver or the GPU lacks this version of a call.

    An older version may work.
    """
    return availability(code) is Availability.NOT_SUPPORTED


def advice(code: int) -> str:
    """Return one line that says why no GPU can be read and what to do."""
    known = _ADVICE.get(code)
    return known or f"the NVIDIA driver does not answer ({clean(str(pynvml.NVMLError(code)))}): try 'nvidia-smi'"
