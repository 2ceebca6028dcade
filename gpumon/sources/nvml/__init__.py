"""NVIDIA GPUs through the driver's own library. No NVML error leaves this package."""

from __future__ import annotations

import ctypes

from gpumon.sources.base import Request
from gpumon.sources.nvml.device import ASKED
from gpumon.sources.nvml.source import NvmlSource

__all__ = ["METRICS", "NvmlSource", "detect", "make"]

METRICS = ASKED


def detect() -> bool:
    """Whether the driver's library is installed."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def make(request: Request) -> NvmlSource:
    """All NVIDIA GPUs of this machine, also where none can be read yet: see `NvmlSource`."""
    return NvmlSource(request.clock, request.describe)
