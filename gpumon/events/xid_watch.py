"""Events of XID errors, from ticks in their order: a faulty application may cause thousands a second."""

from __future__ import annotations

from collections.abc import Iterator

from gpumon.clock import SECOND
from gpumon.events.event import EventSubject, Occurrence
from gpumon.events.kinds import XID
from gpumon.frame import Tick, XidEvent
from gpumon.xids import xid_of

SAME = 60 * SECOND
"""ns in which reports of one code on one GPU are told as two events: the first at once, and the others when they are
over."""


class _Repeated:
    """Reports of a code on a device since one that was noted."""

    def __init__(self, xid: XidEvent) -> None:
        self.first = xid
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
                self._noted[xid.uuid, xid.code] = _Repeated(xid)
                yield _noted(xid)
            else:
                known.last = xid
                known.times += 1

    def finish(self) -> Iterator[Occurrence]:
        """Yield what was not told yet."""
        noted, self._noted = self._noted, {}
        for one in noted.values():
            yield from _repeats(one)


def _noted(xid: XidEvent, times: int = 0) -> Occurrence:
    details = {"code": xid.code, "meaning": xid_of(xid.code).meaning, **({"times": times} if times else {})}
    return Occurrence(xid.time_ns, XID, EventSubject(xid.uuid, cause=str(xid.code)), details)


def _repeats(one: _Repeated) -> Iterator[Occurrence]:
    if one.times:
        yield _noted(one.last, one.times)
