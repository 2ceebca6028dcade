"""The last ticks of a daemon that was killed: no block has them yet, but the ring of this boot still does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpumon.history.collect import Block, Collector, TickValues, values_of_frame
from gpumon.model.frame import Frame

EarlierFrames = Callable[[int], Iterator[Frame]]
"""Frames of the ring in their order, from one that was taken before a time (ns, CLOCK_MONOTONIC) on."""
_AT_ONCE = 16
"""Frames between two rests: some milliseconds of work."""


def collect_earlier(
    frames: Iterator[Frame], since_ns: int, until_ns: int, write: Callable[[Block], object], rest: Callable[[], object]
) -> None:
    """Collect the frames from `since_ns` to before `until_ns` (CLOCK_MONOTONIC), and hand over all that there is.

    `rest` is called now and then, so that a thread that samples is not held up.
    """
    collector = Collector(write)
    before: TickValues | None = None
    count = 0
    for frame in frames:
        if frame.monotonic_ns >= until_ns:
            break
        values = values_of_frame(frame)
        if frame.monotonic_ns < since_ns:
            before = values
            continue
        if before is not None:
            collector.follow(before)
            before = None
        collector.add(values)
        count += 1
        if count % _AT_ONCE == 0:
            rest()
    if count:
        collector.finish()
