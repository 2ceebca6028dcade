"""Everything judged of one frame: what `gpumon status` shows, and any other view may."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon.analysis.epochs import Epochs
from gpumon.analysis.gpu_state import Activity, GpuState
from gpumon.analysis.gpu_status import GpuStatus, gpu_statuses
from gpumon.analysis.ranks import Ranks, ranks_of
from gpumon.diagnosis.finding import Finding
from gpumon.diagnosis.live import findings
from gpumon.frame import Frame


class Judged(NamedTuple):
    """A frame with what follows from it and from those before."""

    gpus: tuple[GpuStatus, ...]
    """In the order of its samples."""
    runs: list[Ranks]
    epochs: Epochs
    findings: list[Finding]
    """The most severe first."""


def judged(frame: Frame, before: Sequence[Frame] = (), live: bool = True) -> Judged:
    """Judge a frame; `before` are earlier ones as far as they are known, oldest first."""
    earlier = [one for one in before if one.number != frame.number]
    epochs, runs = Epochs(), ranks_of(frame.runs)
    for one in earlier:
        epochs.take(one.boundaries)
    epochs.add(frame)
    statuses = gpu_statuses(frame, runs, None, live)
    if earlier and needs_past(statuses):
        activity = Activity()
        for one in (*earlier, frame):
            activity.add(one)
        statuses = gpu_statuses(frame, runs, activity, live)
    return Judged(statuses, runs, epochs, findings(statuses, runs, epochs, frame.time))


def needs_past(statuses: Sequence[GpuStatus]) -> bool:
    """Return whether frames before this one may change what is judged: a pause is no idleness."""
    return any(status.state is GpuState.HELD for status in statuses)
