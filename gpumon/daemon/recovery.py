"""Recovers data that a killed daemon had sampled but not yet written to its files, from the frames in its ring.

This is possible only until the machine reboots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from gpumon.analysis.holders import HolderWatch
from gpumon.analysis.thresholds import PAUSE
from gpumon.common.clock import SECOND
from gpumon.common.errors import RingError
from gpumon.common.procfs import boot_id
from gpumon.model.frame import Frame, Tick
from gpumon.ring.reader import RingReader
from gpumon.ring.takeover import tick_from_frame
from gpumon.storage.events.log import EventBatch, EventBook
from gpumon.storage.usage.hours import AccountBook

_BATCH_FRAMES = 64
"""Number of frames that are read at a time, so that an hour of frames is never in memory at once."""


def newest_frames(path: str, limit: int, now: int) -> list[Frame]:
    """Return up to `limit` of the newest frames of a ring. Empty if the ring was written before the last reboot.

    Frames after `now` (ns, CLOCK_MONOTONIC) are left out.
    """
    try:
        with closing(RingReader.open(path)) as reader:
            newest = reader.newest()
            if newest is None or reader.written_by.boot_id != boot_id():
                return []
            frames = reader.since(newest.number - limit, limit)
    except (OSError, RingError):
        return []
    return [frame for frame in frames if frame.monotonic_ns <= now]


def frames_since(path: str, since_ns: int) -> Iterator[Frame]:
    """Yield the frames of a ring in order, starting at `since_ns` (CLOCK_MONOTONIC) or shortly before.

    If the ring becomes unreadable, stop early.
    """
    try:
        with closing(RingReader.open(path)) as reader:
            newest = reader.newest()
            if newest is None:
                return
            first = begin = max(1, newest.number - reader.layout.frames + 1)
            for number in range(newest.number, first, -_BATCH_FRAMES):
                if any(frame.monotonic_ns < since_ns for frame in reader.frames([number])):
                    begin = number
                    break
            for number in range(begin, newest.number + 1, _BATCH_FRAMES):
                yield from reader.frames(range(number, min(number + _BATCH_FRAMES, newest.number + 1)))
    except (OSError, RingError):
        return


_SAME_TICK_NS = SECOND // 1000
"""Tolerance for the time of a tick that is read back from the ring, because the ring stores seconds as a float."""
EarlierTicks = Callable[[int], Iterable[Tick]]
"""Function that returns the ticks of a ring in order, starting several ticks before a time (ns since 1970)."""


@dataclass(frozen=True, slots=True)
class UnwrittenActivity:
    """Accounts and events of ticks that were not written to the history file."""

    accounts: AccountBook
    events: EventBatch


def ticks_since(path: str, since_ns: int) -> Iterator[Tick]:
    """Yield the ticks of a ring that are not older than `since_ns` (ns since 1970).

    Several earlier ticks come first, because they show for how long GPUs had already been idle. Frames whose process
    list was overwritten are left out, because accounts cannot be computed from them.
    """
    at_ns = _monotonic_time_of(path, since_ns)
    if at_ns is None:
        at_ns = time.monotonic_ns() - (time.time_ns() - since_ns)
    try:
        with closing(RingReader.open(path)) as reader:
            directory = reader.directory()
    except (OSError, RingError):
        return
    for frame in frames_since(path, at_ns - round(PAUSE * SECOND)):
        if frame.is_full:
            yield tick_from_frame(frame, directory)


def _monotonic_time_of(path: str, time_ns: int) -> int | None:
    """Return the monotonic time (ns) of the newest frame with the wall-clock time `time_ns` (ns since 1970), or None.

    The current offset between the two clocks cannot be used, because the wall clock may have been set since.
    """
    monotonic_ns = None
    for frame in frames_since(path, 0):
        if _is_same_tick(frame.time * SECOND, time_ns):
            monotonic_ns = frame.monotonic_ns
    return monotonic_ns


def _is_same_tick(time_ns: float, other_ns: float) -> bool:
    return abs(time_ns - other_ns) <= _SAME_TICK_NS


def unwritten_activity(ticks: Iterable[Tick], written_ns: int, until_ns: int) -> UnwrittenActivity | None:
    """Return the accounts and events of the ticks between two times, or None if there are no such ticks.

    `ticks`: ticks in order, including several earlier ticks, which only show the state of each GPU and user.
    `written_ns`: time of the last tick that was written (ns since 1970). `until_ns`: only ticks before this time are
    used (ns of CLOCK_MONOTONIC).

    All ticks that follow the tick at `written_ns` count, even if their wall-clock time is earlier, because the clock
    may have been set. Wall-clock times are compared only if this tick is missing.
    """
    holders, accounts, events = HolderWatch(), AccountBook(), EventBook()
    count, is_past_written = 0, False
    for tick in ticks:
        if tick.monotonic_ns >= until_ns:
            break
        if _is_same_tick(tick.time_ns, written_ns):
            count, is_past_written = 0, True
        elif is_past_written or tick.time_ns > written_ns:
            if not count:  # data of earlier ticks is already in the file
                accounts.drain()
                events.drain()
            count += 1
        judged = holders.judged(tick)
        accounts.add(tick, judged)
        events.add(tick, judged)
    return UnwrittenActivity(accounts.drain(), events.drain()) if count else None
