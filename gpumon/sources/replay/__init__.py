"""Recordings of gpumon, and logs that people already have, shown as if they were live."""

from __future__ import annotations

from gpumon.recording.reader import is_recording
from gpumon.sources.base import Request, Source
from gpumon.sources.replay import dmon, query
from gpumon.sources.replay.recording import RecordingSource
from gpumon.sources.replay.source import ReplaySource

__all__ = ["METRICS", "RecordingSource", "ReplaySource", "detect", "make"]

METRICS = frozenset(column.metric for columns in (query.COLUMNS, dmon.COLUMNS) for column in columns.values())


def detect() -> bool:
    """Never: a recording is asked for by name."""
    return False


def make(request: Request) -> Source:
    """The recording or the log that is named. Raises SourceError where it cannot be read."""
    path, speed, clock, playback = request.argument, request.speed, request.clock, request.playback
    if is_recording(path):
        return RecordingSource(path, speed=speed, clock=clock, playback=playback)
    return ReplaySource(path, speed=speed, clock=clock, playback=playback)
