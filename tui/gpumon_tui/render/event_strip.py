"""A one-row timeline of events: counts per time interval, unobserved time, and time not played yet."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor
from typing import NamedTuple

from rich.segment import Segment

from gpumon.common.numbers import is_known
from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.query import HOST, History
from gpumon_tui import palette
from gpumon_tui.render.axis import clock_labels, lay
from gpumon_tui.render.event_rows import EventRow
from gpumon_tui.render.strip import GAP, LEVELS
from gpumon_tui.render.text_width import Line, fit
from gpumon_tui.render.time_columns import column_words, read, step_of

DAY = 86400.0
STRIP_FROM = 80
"""Width from which it is drawn."""
_LABELED = 18
"""Cells at the left for its label."""
_TELLING = ("gpu.utilization", "gpu.memory_used", "gpu.power")
"""GPU metrics of which nearly every source has at least one."""
_ROLES = ("run", "warn", "crit")
_SEVERITIES = ("info", "warning", "critical")
_DIM, _FAINT, _TRACK = palette.ink("dim"), palette.ink("faint"), palette.ink("rule")


class StripSpan(NamedTuple):
    """The time interval that is drawn."""

    title: str
    grid: Grid
    now: float
    """Current time (s since 1970); later columns are in the future or not played yet."""
    ends_now: bool


def strip_cells(cells: int, side: int) -> int:
    """Return the number of cells for events in a line of `cells`."""
    return cells - 2 * side - _LABELED


def last_day(now: float, cells: int) -> StripSpan:
    """Return the last 24 hours, in at most `cells` columns."""
    step = step_of(DAY, cells)
    count = int(DAY / step)
    return StripSpan("24 hours", Grid(floor(now / step) - count + 1, step, count), now, True)


def recorded(begin: float, end: float, now: float, cells: int) -> StripSpan:
    """Return the duration of a recording in `cells` columns; `begin` or `end` may be NaN if not known yet."""
    until = max(now, end) if is_known(end) else now
    begin = min(begin, now) if is_known(begin) else now
    step = step_of(max(until - begin, 1.0) + 1e-3, cells)
    first = floor(begin / step)
    if ceil(until / step + 1e-6) - first > cells:  # the start lies within a column
        step = step_of(step * (cells + 1), cells)
        first = floor(begin / step)
    return StripSpan("recording", Grid(first, step, max(1, floor(until / step) - first + 1)), now, False)


def watched(history: History, gpus: Sequence[str], grid: Grid, interval: float) -> list[bool]:
    """Return for each column whether there were samples, of the host or, if those are missing, of the GPUs."""
    host = _known(history, HOST, ("host.cpu_utilization", "host.memory_used"), grid, interval)
    if any(host) or not gpus:
        return host
    each = [_known(history, gpu, _TELLING, grid, interval) for gpu in gpus]
    return [any(known) for known in zip(*each, strict=True)]


def _known(history: History, subject: str, metrics: Sequence[str], grid: Grid, interval: float) -> list[bool]:
    metric = next((one for one in metrics if history.has(subject, one)), None)
    if metric is None:
        return [False] * grid.buckets
    return [is_known(value) for value in read(history, subject, metric, grid, interval).mean]


def event_strip(
    rows: Sequence[EventRow], span: StripSpan, seen: Sequence[bool], cells: int, side: int, *, is_read: bool = True
) -> list[Line]:
    """Return the strip and its time axis; the color of a column shows its most severe event.

    Until all history `is_read`, columns without data are blank, not marked as unobserved.
    """
    grid = span.grid
    counts, worst = [0] * grid.buckets, [0] * grid.buckets
    for row in rows:  # newest first
        place = grid.at(row.time)
        if place < 0:
            break
        if place < grid.buckets:
            counts[place] += 1
            worst[place] = max(worst[place], _SEVERITIES.index(row.severity))
    most = max([*counts, 1])
    left = max(side + _LABELED, cells - side - grid.buckets)
    strip: Line = [Segment(fit(" " * side + span.title, left), _DIM)]
    last = grid.at(span.now)
    for place, (number, how) in enumerate(zip(counts, worst, strict=True)):
        if number:
            step = max(1, min(len(LEVELS) - 1, round((len(LEVELS) - 1) * number / most)))
            strip.append(Segment(LEVELS[step], palette.ink(_ROLES[how])))
        elif place > last:
            strip.append(Segment(" "))
        else:
            strip.append(Segment(LEVELS[0], _TRACK) if seen[place] else Segment(GAP if is_read else " ", _FAINT))
    labels = clock_labels(grid, grid.buckets)
    if span.ends_now:
        labels = [(at, text) for at, text in labels if at + len(text) + 1 < grid.buckets - 3]
        labels.append((grid.buckets - 3, "now"))
    said = f"{column_words(grid.step)} a cell"
    times = lay(labels, " " * grid.buckets)
    return [strip, [Segment(fit(" " * side + said, left), _FAINT), Segment(times, _FAINT)]]
