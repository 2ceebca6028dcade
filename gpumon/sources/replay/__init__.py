"""Logs that people already have, shown as if they were live."""

from gpumon.sources.replay.source import ReplaySource

__all__ = ["ReplaySource"]
