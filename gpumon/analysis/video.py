"""Video engines: whether processes use them, so that views give them columns."""

from __future__ import annotations

from collections.abc import Iterable

from gpumon.model.process import Process

TITLES = "Encoder", "Decoder"


def use_video(processes: Iterable[Process]) -> bool:
    """Whether one of them is known to use a video encoder or decoder; trainings seldom do."""
    return any(process.encoder_utilization > 0 or process.decoder_utilization > 0 for process in processes)
