"""Frames of the ring from before this daemon: it has taken them over from one of the same boot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from gpumon.common.errors import RingError
from gpumon.common.procfs import boot_id
from gpumon.model.frame import Frame
from gpumon.ring.reader import RingReader

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
