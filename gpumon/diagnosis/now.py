"""Everything judged of one frame: what `gpumon status` shows, and any other view may."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpumon.analysis.gpu_state import Activity, GpuState
from gpumon.analysis.gpu_status import GpuStatus, gpu_statuses
from gpumon.analysis.ranks import ranks_of
from gpumon.diagnosis.finding import Finding
from gpumon.frame import Frame

if TYPE_CHECKING:
    from gpumon.analysis.epochs import Epochs
    from gpumon.analysis.progress import Progress
    from gpumon.analysis.ranks import Ranks


class Judged:
    """A frame with what follows from it and from `before`, earlier frames as far as they are known, oldest first.

    What only concerns runs is imported once there is one: `gpumon status` is to be quick.
    """

    def __init__(self, frame: Frame, before: Sequence[Frame] = (), live: bool = True) -> None:
        self._frame = frame
        self._before = [one for one in before if one.number < frame.number]
        self._epochs: Epochs | None = None
        self.runs = ranks_of(frame.runs)
        self.gpus: tuple[GpuStatus, ...] = gpu_statuses(frame, self.runs, None, live)
        """In the order of its samples."""
        if self._before and needs_past(self.gpus):
            activity = Activity()
            for one in (*self._before, frame):
                activity.add(one)
            self.gpus = gpu_statuses(frame, self.runs, activity, live)

    @property
    def epochs(self) -> Epochs:
        """The epochs of its runs."""
        if self._epochs is None:
            from gpumon.analysis.epochs import Epochs

            self._epochs = Epochs()
            for one in self._before:
                self._epochs.take(one.boundaries)
            self._epochs.add(self._frame)
        return self._epochs

    def progress(self, ranks: Ranks) -> Progress:
        """Return how far one of its runs is."""
        from gpumon.analysis.progress import progress

        return progress(ranks, self.epochs, self._frame.time)

    def findings(self) -> list[Finding]:
        """Return what a person should know, the most severe first."""
        from gpumon.diagnosis.gpu_rules import THERMAL
        from gpumon.diagnosis.live import findings
        from gpumon.history.rates import rates_between

        frame, names = self._frame, [metric.name for metric in THERMAL]
        rates = rates_between(self._before[-1], frame, names) if self._before else {}
        epochs, now = self.epochs if self.runs else None, frame.monotonic_ns
        return findings(self.gpus, self.runs, epochs, frame.time, rates=rates, monotonic_ns=now)


def needs_past(statuses: Sequence[GpuStatus]) -> bool:
    """Return whether frames before this one may change what is judged: one alone cannot tell a pause from idleness."""
    return any(status.state is GpuState.ALLOCATED for status in statuses)
