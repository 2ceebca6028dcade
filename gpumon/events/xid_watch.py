"""Events of XID errors, from ticks in their order: a faulty application may cause thousands a second."""

from __future__ import annotations

from collections.abc import Iterator

from gpumon.common.clock import SECOND
from gpumon.model.events import XID, EventSubject, Occurrence
from gpumon.model.frame import Run, RunState, Tick, XidEvent
from gpumon.model.xids import xid_of

SAME = 60 * SECOND
"""ns in which reports of one code on one GPU are told as two events: the first at once, and the others when they are
over."""


ENDED = 10.0
"""Seconds for which an error is also one of a run that has ended just before: it is what most of them end by."""


class _Repeated:
    """Reports of a code on a device since one that was noted."""

    def __init__(self, xid: XidEvent, of: EventSubject) -> None:
        self.first = xid
        self.of = of
        self.last = xid
        self.times = 0


class XidWatch:
    """Remembers which errors were noted lately."""

    def __init__(self) -> None:
        self._noted: dict[tuple[str, int], _Repeated] = {}

    def add(self, tick: Tick) -> Iterator[Occurrence]:
        """Yield what happened since the tick before."""
        for key, one in list(self._noted.items()):
            if tick.monotonic_ns - one.first.monotonic_ns >= SAME:
                del self._noted[key]
                yield from _repeats(one)
        for xid in tick.xids:
            known = self._noted.get((xid.uuid, xid.code))
            if known is None:
                of = _subject(xid, tick)
                self._noted[xid.uuid, xid.code] = _Repeated(xid, of)
                yield _noted(xid, of)
            else:
                known.last = xid
                known.times += 1

    def finish(self) -> Iterator[Occurrence]:
        """Yield what was not told yet."""
        noted, self._noted = self._noted, {}
        for one in noted.values():
            yield from _repeats(one)


def _noted(xid: XidEvent, of: EventSubject, times: int = 0) -> Occurrence:
    details = {"code": xid.code, "meaning": xid_of(xid.code).meaning, **({"times": times} if times else {})}
    return Occurrence(xid.time_ns, XID, of, details)


def _repeats(one: _Repeated) -> Iterator[Occurrence]:
    if one.times:
        yield _noted(one.last, one.of, one.times)


def _subject(xid: XidEvent, tick: Tick) -> EventSubject:
    """The GPU and the run on it; no run where there are several, as the driver tells none of them."""
    runs = {(run.user, run.id or run.key) for run in tick.runs if xid.uuid in run.gpus and _is_hit(run, xid)}
    user, run = runs.pop() if len(runs) == 1 else ("", "")
    return EventSubject(xid.uuid, user, run, str(xid.code))


def _is_hit(run: Run, xid: XidEvent) -> bool:
    time = xid.time_ns / SECOND
    return run.state is RunState.RUNNING or run.started <= time <= run.updated + ENDED
