"""Lengths of the cells in a window: those that decide how long its buckets are, and those that are longer than these.

Cells of an older past are long. Where newer samples fill a good part of the window, too, these keep their own buckets:
an outage of half a minute would vanish in a mean of five. The long cells then stand in many buckets each, and the
answer says from when to when.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.history.query import CoarseCells
from gpumon.history.watched import TimeSlice

_SHORT = 0.1
"""The share of a window below which its cells do not decide how long buckets are."""
_NEAR = 3.0
"""Times the buckets that are asked for that cells may last, to decide where there are finer ones, too."""


def deciding(spans: Sequence[TimeSlice], wanted: float) -> set[float]:
    """Return the lengths of cells that buckets hold whole; `wanted` is the length of buckets that are asked for (s)."""
    seconds: dict[float, float] = {}
    for span in spans:
        if span.is_watched:
            seconds[span.step] = seconds.get(span.step, 0.0) + span.end - span.begin
    least = _SHORT * (spans[-1].end - spans[0].begin) if spans else 0.0
    finer, found = 0.0, set[float]()
    for step in sorted(seconds):
        if step and seconds[step] > least and (step <= _NEAR * wanted or finer <= least):
            found.add(step)
        finer += seconds[step]
    return found


def coarse(spans: Sequence[TimeSlice], step: float) -> list[CoarseCells]:
    """Return the stretches with cells longer than buckets of `step` seconds, in the order of time."""
    found: list[CoarseCells] = []
    for span in spans:
        if span.step <= step:
            continue
        if found and found[-1].end == span.begin and found[-1].step == span.step:
            found[-1] = found[-1]._replace(end=span.end)
        else:
            found.append(CoarseCells(span.begin, span.end, span.step))
    return found
