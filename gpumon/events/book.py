"""Events of a daemon until they are written, and what goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpumon.analysis.holders import HeldDevice
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.events.clock_watch import ClockWatch
from gpumon.events.device_watch import DeviceWatch
from gpumon.events.process_watch import ProcessWatch
from gpumon.events.run_watch import RunWatch
from gpumon.events.xid_watch import XidWatch
from gpumon.model.events import BY_NAME, Key, Occurrence
from gpumon.model.frame import Tick

_MOST = 10_000
"""Events that wait while the file cannot be written; the oldest go first."""
SETTLED = 30.0
"""Seconds after which every run of an earlier daemon that goes on has been seen."""


class EventBatch(NamedTuple):
    """Events and states to write."""

    events: Sequence[Occurrence]
    going_on: Sequence[Key]
    seen_ns: int
    """ns since 1970 of the newest tick."""
    is_settled: bool
    """Whether runs that an earlier daemon left open, and that are not among `going_on`, are not seen any more."""
    first_ns: int = 0
    """ns since 1970 of the first tick."""
    interval: float = NAN
    """Seconds between ticks."""


class EventBook:
    """Takes ticks, and notes what happened."""

    def __init__(self) -> None:
        self._devices = DeviceWatch()
        self._runs = RunWatch()
        self._xids = XidWatch()
        self._processes = ProcessWatch()
        self._clock = ClockWatch()
        self._events: deque[Occurrence] = deque(maxlen=_MOST)
        self._going_on: dict[Key, None] = {}
        self._first: Tick | None = None
        self._last: Tick | None = None

    def add(self, tick: Tick, judged: Sequence[HeldDevice]) -> None:
        """Take a tick; they come in order."""
        if self._first is None:
            self._first = tick
            self._note([Occurrence(tick.time_ns, "daemon_started", details={"source": tick.origin.source})])
        self._last = tick
        self._note(self._clock.add(tick))
        self._note(self._devices.add(tick, judged))
        self._note(self._runs.add(tick))
        self._note(self._xids.add(tick))
        self._note(self._processes.add(tick))

    def finish(self, time_ns: int) -> None:
        """Note that the daemon stops at `time_ns` (ns since 1970)."""
        if self._first is None or self._last is None:
            return
        self._note(self._devices.finish())
        self._note(self._xids.finish())
        lasted = (self._last.monotonic_ns - self._first.monotonic_ns) / SECOND
        self._note([Occurrence(time_ns, "daemon_stopped", lasted=lasted)])

    def take(self) -> EventBatch:
        """Return what is to be written."""
        first, last = self._first, self._last
        settled = first is not None and last is not None and last.monotonic_ns - first.monotonic_ns >= SETTLED * SECOND
        batch = EventBatch(
            events=tuple(self._events),
            going_on=tuple(self._going_on),
            seen_ns=last.time_ns if last else 0,
            is_settled=settled,
            first_ns=first.time_ns if first else 0,
            interval=first.interval_ns / SECOND if first else NAN,
        )
        self._events.clear()
        return batch

    def give_back(self, batch: EventBatch) -> None:
        """Keep events that could not be written."""
        self._events.extendleft(reversed(batch.events))

    def going_on(self) -> Sequence[Key]:
        """Return kind and subject of what has begun and not ended."""
        return tuple(self._going_on)

    def _note(self, events: Iterable[Occurrence]) -> None:
        for event in events:
            self._events.append(event)
            ended = str(event.details.get("of") or BY_NAME[event.kind].ends)
            if ended:
                self._going_on.pop((ended, event.of), None)
            if BY_NAME[event.kind].unseen:
                self._going_on[event.kind, event.of] = None
