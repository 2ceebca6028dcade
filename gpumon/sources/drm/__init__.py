"""Reads AMD and Intel GPUs from the files of their kernel drivers. No library of a vendor is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpumon.sources.base import Request, timeout_for
from gpumon.sources.drm.cards import relevant_cards
from gpumon.sources.drm.device import METRICS
from gpumon.sources.drm.source import DrmSource

if TYPE_CHECKING:
    from gpumon.common.check_result import Check

__all__ = ["METRICS", "DrmSource", "detect", "examine", "make"]


def detect() -> bool:
    """Return whether this machine has an AMD or Intel GPU to show."""
    return bool(relevant_cards())


def examine(gpu_count: int) -> Sequence[Check]:
    """Check the files of the drivers. `gpu_count`: number of GPUs that were just read."""
    from gpumon.sources.drm.installation import check_installation, find_installation  # not needed for sampling

    return check_installation(find_installation(), gpu_count)


def make(request: Request) -> DrmSource:
    """Return the source for all AMD and Intel GPUs of this machine."""
    return DrmSource(request.clock, request.describe, timeout_for(request.interval))
