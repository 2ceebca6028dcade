"""Plays recordings of gpumon and logs of nvidia-smi as if they were live."""

from __future__ import annotations

from gpumon.recording.reader import is_recording
from gpumon.sources.base import Request, Source
from gpumon.sources.replay import nvidia_smi_csv, nvidia_smi_dmon
from gpumon.sources.replay.log_replay import ReplaySource
from gpumon.sources.replay.recording import RecordingSource

__all__ = ["METRICS", "RecordingSource", "ReplaySource", "detect", "make"]

METRICS = frozenset(
    column.metric for columns in (nvidia_smi_csv.COLUMNS, nvidia_smi_dmon.COLUMNS) for column in columns.values()
)


def detect() -> bool:
    """Return False, because a recording is used only if `--source` names it."""
    return False


def make(request: Request) -> Source:
    """Open the named recording or log. Raises SourceError if it cannot be read."""
    path, speed, clock, playback = request.argument, request.speed, request.clock, request.playback
    if is_recording(path):
        return RecordingSource(path, speed=speed, clock=clock, playback=playback)
    return ReplaySource(path, speed=speed, clock=clock, playback=playback)
