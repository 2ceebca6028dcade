"""Frames of the ring from before this daemon: it has taken them over from one of the same boot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import NamedTuple

from gpumon.analysis.holders import HolderWatch
from gpumon.analysis.thresholds import PAUSE
from gpumon.common.clock import SECOND
from gpumon.common.errors import RingError
from gpumon.common.procfs import boot_id
from gpumon.model.frame import Frame, Tick
from gpumon.ring.reader import RingReader
from gpumon.ring.takeover import tick_of
from gpumon.storage.events.log import EventBatch, EventBook
from gpumon.storage.usage.hours import AccountBook

_AT_ONCE = 64
"""Frames that are read together, so that an hour of them is never in memory."""


def newest_frames(path: str, most: int, now: int) -> list[Frame]:
    """Return the newest frames of a ring of this boot that are not of the future; none where there is no ring.

    `now`: ns, CLOCK_MONOTONIC.
    """
    try:
        with closing(RingReader.open(path)) as reader:
            newest = reader.newest()
            if newest is None or reader.written_by.boot_id != boot_id():
                return []
            frames = reader.since(newest.number - most, most)
    except (OSError, RingError):
        return []
    return [frame for frame in frames if frame.monotonic_ns <= now]


def frames_since(path: str, since_ns: int) -> Iterator[Frame]:
    """Yield the frames of a ring in their order, from one before `since_ns` (CLOCK_MONOTONIC) on, as far as it has any.

    A ring that cannot be read ends here: what it had is lost.
    """
    try:
        with closing(RingReader.open(path)) as reader:
            newest = reader.newest()
            if newest is None:
                return
            first = begin = max(1, newest.number - reader.layout.frames + 1)
            for number in range(newest.number, first, -_AT_ONCE):
                if any(frame.monotonic_ns < since_ns for frame in reader.frames([number])):
                    begin = number
                    break
            for number in range(begin, newest.number + 1, _AT_ONCE):
                yield from reader.frames(range(number, min(number + _AT_ONCE, newest.number + 1)))
    except (OSError, RingError):
        return


_SAME = SECOND // 1000
"""ns by which the time of a tick in the ring may differ from what it was: the ring has seconds as a float."""
EarlierTicks = Callable[[int], Iterable[Tick]]
"""Ticks of the ring in their order, from some before the one of a time (ns since 1970) on."""


class Unwritten(NamedTuple):
    """Sums and events of ticks that the file does not have."""

    accounts: AccountBook
    events: EventBatch


def ticks_since(path: str, since_ns: int) -> Iterator[Tick]:
    """Yield ticks of a ring from `since_ns` (ns since 1970) on, and before it those by which a GPU is judged there.

    Those of which the ring has no processes any more are left out: they say nothing of people.
    """
    at_ns = _taken_at(path, since_ns)
    if at_ns is None:
        at_ns = time.monotonic_ns() - (time.time_ns() - since_ns)
    try:
        with closing(RingReader.open(path)) as reader:
            known = reader.directory()
    except (OSError, RingError):
        return
    for frame in frames_since(path, at_ns - round(PAUSE * SECOND)):
        if frame.is_full:
            yield tick_of(frame, known)


def _taken_at(path: str, time_ns: int) -> int | None:
    """When (ns, CLOCK_MONOTONIC) the newest frame of a time (ns since 1970) was taken; None where there is none.

    The clock that this time is of may have been set since.
    """
    taken_at = None
    for frame in frames_since(path, 0):
        if _is_same(frame.time * SECOND, time_ns):
            taken_at = frame.monotonic_ns
    return taken_at


def _is_same(time_ns: float, other_ns: float) -> bool:
    return abs(time_ns - other_ns) <= _SAME


def unwritten(ticks: Iterable[Tick], written_ns: int, until_ns: int) -> Unwritten | None:
    """Return what ticks after `written_ns` (ns since 1970) and before `until_ns` (CLOCK_MONOTONIC) say; None: no tick.

    Ticks before these tell in which state everything was. All that follow the tick of `written_ns` are after it,
    whatever the clock says: it may have been set. Where that tick is missing, the clock alone tells.
    """
    holders, accounts, events = HolderWatch(), AccountBook(), EventBook()
    count, is_past_written = 0, False
    for tick in ticks:
        if tick.monotonic_ns >= until_ns:
            break
        if _is_same(tick.time_ns, written_ns):
            count, is_past_written = 0, True
        elif is_past_written or tick.time_ns > written_ns:
            if not count:  # all so far is in the file
                accounts.take()
                events.take()
            count += 1
        judged = holders.judged(tick)
        accounts.add(tick, judged)
        events.add(tick, judged)
    return Unwritten(accounts.take(), events.take()) if count else None
