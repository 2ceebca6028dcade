"""NVIDIA GPUs through the driver's own library. No NVML error leaves this package."""

from __future__ import annotations

from functools import partial

from gpumon.sources.base import Request
from gpumon.sources.nvml.device import ASKED
from gpumon.sources.nvml.gpm import GPM_OFF
from gpumon.sources.nvml.library import Library
from gpumon.sources.nvml.loader import SHARED
from gpumon.sources.nvml.source import NvmlSource, patience

__all__ = ["METRICS", "NvmlSource", "detect", "make"]

METRICS = ASKED


def detect() -> bool:
    """Whether the driver's library is installed."""
    try:
        return SHARED.current is not None
    except OSError:
        return False


def make(request: Request) -> NvmlSource:
    """All NVIDIA GPUs of this machine, also where none can be read yet: see `NvmlSource`."""
    open_library = partial(Library, {} if request.gpm else GPM_OFF)
    return NvmlSource(request.clock, request.describe, open_library, patience(request.interval))
