"""Logs that people already have, shown as if they were live."""

from __future__ import annotations

from gpumon.sources.base import Request
from gpumon.sources.replay import dmon, query
from gpumon.sources.replay.source import ReplaySource

__all__ = ["METRICS", "ReplaySource", "detect", "make"]

METRICS = frozenset(column.metric for columns in (query.COLUMNS, dmon.COLUMNS) for column in columns.values())


def detect() -> bool:
    """Never: a recording is asked for by name."""
    return False


def make(request: Request) -> ReplaySource:
    """The log that is named. Raises SourceError where it cannot be read."""
    return ReplaySource(request.argument, speed=request.speed, clock=request.clock)
