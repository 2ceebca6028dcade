"""Everything judged of one frame: what `gpumon status` shows, and any other view may."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

from gpumon.analysis.gpu_state import Activity, GpuState, Load
from gpumon.analysis.gpu_status import GpuStatus, gpu_statuses
from gpumon.analysis.ranks import ranks_of
from gpumon.analysis.thresholds import PAUSE
from gpumon.diagnosis.context import LoadedLink, has_slow_link
from gpumon.diagnosis.finding import Finding
from gpumon.model.frame import ENDED_BADLY, Frame, RunState

if TYPE_CHECKING:
    from gpumon.analysis.epochs import Epochs
    from gpumon.analysis.progress import Progress
    from gpumon.analysis.ranks import Ranks
    from gpumon.live import Live

LOOK_BACK = 605
"""Frames that are looked through for what befell a run, and for how long a GPU is idle: ten minutes at one a second,
and a few more, so that "at least 10 min" is reached."""
_RATE_OF = 2
"""Frames between which a counter grows: the newest and the one before."""
_SPARE = 3
"""More frames than a minute has: a tick may be early."""


class Judged:
    """A frame with what follows from it and from `before`, earlier frames as far as they are known, oldest first.

    What only concerns runs is imported once there is one: `gpumon status` is to be quick.
    """

    def __init__(
        self, frame: Frame, before: Sequence[Frame] = (), live: bool = True, epochs: Epochs | None = None
    ) -> None:
        """Judge a frame; `epochs` know boundaries of its runs, also those from before `before`."""
        self._frame = frame
        self._before = [one for one in before if one.number < frame.number]
        self._epochs: Epochs | None = None
        self._known_epochs = epochs
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

            self._epochs = self._known_epochs or Epochs()
            for one in self._before:
                self._epochs.take(one.boundaries)
            self._epochs.add(self._frame)
        return self._epochs

    def progress(self, ranks: Ranks) -> Progress:
        """Return how far one of its runs is."""
        from gpumon.analysis.progress import progress

        return progress(ranks, self.epochs, self._frame.time, self._frame.monotonic_ns)

    def findings(self) -> list[Finding]:
        """Return what a person should know, the most severe first."""
        from gpumon.diagnosis.gpu_rules import THERMAL
        from gpumon.diagnosis.live import findings
        from gpumon.storage.history.counters import rates_between

        frame, names = self._frame, [metric.name for metric in THERMAL]
        rates = rates_between(self._before[-1], frame, names) if self._before else {}
        epochs, now = self.epochs if self.runs else None, frame.monotonic_ns
        loaded = self._loaded_links()
        return findings(self.gpus, self.runs, epochs, frame.time, rates=rates, loaded=loaded, monotonic_ns=now)

    def _loaded_links(self) -> dict[str, LoadedLink]:
        """The links that are slow now, when they were last under load."""
        slow = [status.sample.device.uuid for status in self.gpus if has_slow_link(status)]
        if not slow or not self._before:
            return {}
        from gpumon.diagnosis.loaded_link import course_of_frames, last_loaded

        frames, now = (*self._before, self._frame), self._frame.time
        return {uuid: last_loaded(course_of_frames(frames, uuid), now) for uuid in slow}


def needs_past(statuses: Sequence[GpuStatus]) -> bool:
    """Return whether frames before this one may change what is judged, or the word for it.

    One alone cannot tell a pause from idleness, nor a sample between two steps from a light load.
    """
    return any(
        status.state is GpuState.ALLOCATED or (status.state is GpuState.BUSY and status.load is not Load.BUSY)
        for status in statuses
    )


def earlier_frames(live: Live, newest: Frame) -> list[Frame]:
    """Return the frames of the last while, where they may change what is reported: a look is to be quick.

    One of them tells how fast counters grow, a minute a pause from idleness; of what is idle, more of them tell for
    how long, and of a slow link whether it was loaded.
    """
    ended_badly = any(run.memory.ooms > 0 or run.state in ENDED_BADLY for run in newest.runs)
    statuses = gpu_statuses(newest, ranks_of(newest.runs))
    if not ended_badly and not any(map(has_slow_link, statuses)):
        if not needs_past(statuses):
            return live.since(max(0, newest.number - _RATE_OF))
        few = min(LOOK_BACK, ceil(PAUSE / max(newest.interval, 0.01)) + _SPARE)
        minute = live.since(max(0, newest.number - few))
        if not any(status.state is GpuState.HELD for status in Judged(newest, minute).gpus):
            return minute
    return live.since(max(0, newest.number - LOOK_BACK))


def kept_epochs(live: Live, newest: Frame) -> Epochs | None:
    """Return the epochs by every boundary that is kept, where a run has any: what is left of it hangs on the last ones.

    So it is the time that a view tells, which has all frames. None without such a run.
    """
    if not any(run.state is RunState.RUNNING and run.epoch >= 0 for run in newest.runs):
        return None
    from gpumon.analysis.epochs import Epochs

    found = Epochs()
    found.take(live.boundaries())
    return found
