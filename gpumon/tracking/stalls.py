"""Decides whether a training process is stalled, by the times at which it wrote its board.

A process is stalled if its current step takes longer than 60 s and 10 times its median step. Work that is known to take
long is judged by its own history instead: a phase such as validation or checkpoint may take 3 times as long as its
longest earlier occurrence. A phase that occurs for the first time, and the work before the first steps, have fixed
limits. All views use this one rule, because its result is in each frame (`RunFacts.stalled_since`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.model.frame import TRAINING
from gpumon.model.run import PAUSED


@dataclass(frozen=True, slots=True)
class StallLimits:
    """Limits of the rule. All times are in seconds."""

    step: float = 60.0
    """A step may always take this long, and so may a phase that has occurred before."""
    steps: float = 10.0
    """A step may take this many times the median step."""
    start: float = 600.0
    """The work before the first epoch, and each of the first `_MIN_STEPS` steps, may take this long, because models are
    loaded and compiled, and ranks wait for each other."""
    phase: float = 1800.0
    """A phase other than training that occurs for the first time, or in which steps are made, may take this long. This
    also applies to the work after the last batch of an epoch, and to trainings that do not count their steps."""
    phases: float = 3.0
    """A phase may take this many times as long as its longest earlier occurrence."""

    @property
    def least(self) -> float:
        """No work is stalled before this many seconds."""
        return min(self.step, self.start, self.phase)


LIMITS = StallLimits()
_MIN_STEPS = 3
"""Number of step times that are needed for a median."""
_STEPS = 100
"""The median is computed from this many of the newest step times."""
_GAPS = 16
"""Number of newest pauses of a training that are remembered. See `StallDetector._usual_gap`."""
_MAX_PHASES = 16


class Progress(NamedTuple):
    """The progress of a process when it last wrote its board."""

    written_ns: int
    """Time at which it was written, in ns of a monotonic clock."""
    step: int
    phase: str
    is_between: bool = False
    """Whether the loop over the batches is over, so that no step is expected."""

    @property
    def is_in_steps(self) -> bool:
        """Whether the next step is expected."""
        return self.phase == TRAINING and not self.is_between

    @property
    def activity(self) -> tuple[str, bool]:
        """The phase, or the work after the last batch of a phase. Its duration is compared with earlier ones."""
        return self.phase, self.is_between


class StallDetector:
    """Detects whether one process is stalled."""

    def __init__(self, limits: StallLimits = LIMITS) -> None:
        self._limits = limits
        self._last: Progress | None = None
        self._begin = Progress(0, 0, "")
        """The progress when the current activity began."""
        self._step_seconds: deque[float] = deque(maxlen=_STEPS)
        self._longest: dict[tuple[str, bool], float] = {}
        """Longest seconds of an ended occurrence of each activity."""
        self._gaps: deque[float] = deque(maxlen=_GAPS)
        """Pauses between two steps that were longer than allowed, in seconds."""

    def update(self, progress: Progress, now_ns: int) -> int:
        """Return the time (ns) since which the process has been stalled; 0 if it is not stalled.

        Must be called with each state that is read from the board. `now_ns`: current time by the same clock.
        """
        last, self._last = self._last, progress
        if last is None or progress.activity != last.activity or progress.step < last.step:
            self._begin_activity(last, progress)
        elif progress.written_ns > last.written_ns and progress.is_in_steps:
            self._add_steps(last, progress)
        if progress.phase == PAUSED:
            return 0
        is_counting = not progress.is_in_steps and progress.step > self._begin.step
        since = self._begin.written_ns if is_counting else progress.written_ns
        seconds = (now_ns - since) / SECOND
        if seconds <= self._limits.least:
            return 0  # while steps come, no limit needs to be computed
        return since if seconds > self._limit(progress) else 0

    def _begin_activity(self, last: Progress | None, progress: Progress) -> None:
        if last is not None and (last.activity in self._longest or len(self._longest) < _MAX_PHASES):
            seconds = (progress.written_ns - self._begin.written_ns) / SECOND
            self._longest[last.activity] = max(self._longest.get(last.activity, 0.0), seconds)
        self._begin = progress

    def _add_steps(self, last: Progress, progress: Progress) -> None:
        seconds, steps = (progress.written_ns - last.written_ns) / SECOND, progress.step - last.step
        if seconds > self._limits.least and seconds > self._step_limit():
            self._gaps.append(seconds)
        if steps > 0:
            self._step_seconds.append(seconds / steps)

    def _limit(self, progress: Progress) -> float:
        """Return the seconds without progress after which the process counts as stalled."""
        limits, has_occurred = self._limits, progress.activity in self._longest
        if progress.is_in_steps:
            return max(self._step_limit(), self._usual_gap()) if progress.step else limits.phase
        if not progress.phase:
            limit = limits.phase if progress.step and not has_occurred else limits.start
        elif has_occurred and progress.is_between:
            limit = limits.start
        elif has_occurred and progress.step == self._begin.step:
            limit = limits.step
        else:
            limit = limits.phase
        return max(limit, limits.phases * self._longest.get(progress.activity, 0.0))

    def _step_limit(self) -> float:
        if len(self._step_seconds) < _MIN_STEPS:
            return self._limits.start
        return max(self._limits.step, self._limits.steps * median(self._step_seconds))

    def _usual_gap(self) -> float:
        """Return the seconds that a pause between two steps may take because such pauses have occurred before.

        Some trainings validate or save without reporting a phase. A single long pause is not sufficient, because it may
        have been a stall that ended.
        """
        return self._limits.phases * sorted(self._gaps)[-2] if len(self._gaps) > 1 else 0.0
