"""NVIDIA GPUs through the driver's own library. No NVML error leaves this package."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpumon.sources.base import Request
from gpumon.sources.nvml.device import ASKED
from gpumon.sources.nvml.gpm import GPM_OFF
from gpumon.sources.nvml.library import SHARED, Library
from gpumon.sources.nvml.source import NvmlSource, patience

if TYPE_CHECKING:
    from gpumon.common.checkup import Check

__all__ = ["METRICS", "NvmlSource", "detect", "examine", "make"]

METRICS = ASKED


def detect() -> bool:
    """Whether the driver's library is installed."""
    try:
        return SHARED.current is not None
    except OSError:
        return False


def examine(read: int) -> Sequence[Check]:
    """The parts of the driver, by their files alone; `read`: number of GPUs that it showed just now."""
    from gpumon.sources.nvml.installation import checks, installation  # who samples needs none of it

    return checks(installation(), read)


def make(request: Request) -> NvmlSource:
    """All NVIDIA GPUs of this machine, also where none can be read yet: see `NvmlSource`."""
    open_library = partial(Library, {} if request.gpm else GPM_OFF)
    return NvmlSource(request.clock, request.describe, open_library, patience(request.interval))
