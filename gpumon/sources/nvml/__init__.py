"""Reads NVIDIA GPUs through the driver's own library. No NVML error leaves this package."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpumon.sources.base import Request, timeout_for
from gpumon.sources.nvml.device import METRICS
from gpumon.sources.nvml.gpm import GPM_OFF
from gpumon.sources.nvml.library import SHARED, Library
from gpumon.sources.nvml.source import NvmlSource

if TYPE_CHECKING:
    from gpumon.common.check_result import Check

__all__ = ["METRICS", "NvmlSource", "detect", "examine", "make"]


def detect() -> bool:
    """Return whether the driver's library is installed."""
    try:
        return SHARED.current is not None
    except OSError:
        return False


def examine(gpu_count: int) -> Sequence[Check]:
    """Check the files of the driver without calling it. `gpu_count`: number of GPUs that were just read."""
    from gpumon.sources.nvml.installation import check_installation, find_installation  # not needed for sampling

    return check_installation(find_installation(), gpu_count)


def make(request: Request) -> NvmlSource:
    """Return the source for all NVIDIA GPUs of this machine, even if no GPU can be read yet. See `NvmlSource`."""
    open_library = partial(Library, {} if request.gpm else GPM_OFF)
    return NvmlSource(request.clock, request.describe, open_library, timeout_for(request.interval))
