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
from gpumon_tui.render.axis import clock_labels, place_labels
from gpumon_tui.render.event_rows import EventRow
from gpumon_tui.render.strip import GAP, LEVELS
from gpumon_tui.render.text_width import Line, fit
from gpumon_tui.render.time_columns import column_text, read, step_of

DAY = 86400.0
STRIP_FROM = 80
"""Minimum width, in columns, at which the strip is drawn."""
_LABEL_CELLS = 18
"""Cells at the left for its label."""
_COMMON_METRICS = ("gpu.utilization", "gpu.memory_used", "gpu.power")
"""GPU metrics; nearly every source has at least one of them."""
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
    return cells - 2 * side - _LABEL_CELLS


def last_day_span(now: float, cells: int) -> StripSpan:
    """Return the last 24 hours, in at most `cells` columns."""
    step = step_of(DAY, cells)
    count = int(DAY / step)
    return StripSpan("24 hours", Grid(floor(now / step) - count + 1, step, count), now, True)


def recording_span(begin: float, end: float, now: float, cells: int) -> StripSpan:
    """Return the duration of a recording in `cells` columns; `begin` or `end` may be NaN if not read yet."""
    last_time = max(now, end) if is_known(end) else now
    begin = min(begin, now) if is_known(begin) else now
    step = step_of(max(last_time - begin, 1.0) + 1e-3, cells)
    first = floor(begin / step)
    if ceil(last_time / step + 1e-6) - first > cells:  # the start lies within a column
        step = step_of(step * (cells + 1), cells)
        first = floor(begin / step)
    return StripSpan("recording", Grid(first, step, max(1, floor(last_time / step) - first + 1)), now, False)


def observed_columns(history: History, gpus: Sequence[str], grid: Grid, interval: float) -> list[bool]:
    """Return for each column whether there were samples, of the host or, if those are missing, of the GPUs."""
    host = _has_values(history, HOST, ("host.cpu_utilization", "host.memory_used"), grid, interval)
    if any(host) or not gpus:
        return host
    gpu_columns = [_has_values(history, gpu, _COMMON_METRICS, grid, interval) for gpu in gpus]
    return [any(has_values) for has_values in zip(*gpu_columns, strict=True)]


def _has_values(history: History, subject: str, metrics: Sequence[str], grid: Grid, interval: float) -> list[bool]:
    metric = next((name for name in metrics if history.has(subject, name)), None)
    if metric is None:
        return [False] * grid.buckets
    return [is_known(value) for value in read(history, subject, metric, grid, interval).mean]


def event_strip(
    rows: Sequence[EventRow],
    span: StripSpan,
    observed: Sequence[bool],
    cells: int,
    left_margin: int,
    *,
    is_read: bool = True,
) -> list[Line]:
    """Return the strip and its time axis; the color of a column shows its most severe event.

    Until all history `is_read`, columns without data are blank, not marked as unobserved.
    """
    grid = span.grid
    counts, severities = [0] * grid.buckets, [0] * grid.buckets
    for row in rows:  # newest first
        column = grid.at(row.time)
        if column < 0:
            break
        if column < grid.buckets:
            counts[column] += 1
            severities[column] = max(severities[column], _SEVERITIES.index(row.severity))
    max_count = max([*counts, 1])
    label_cells = max(left_margin + _LABEL_CELLS, cells - left_margin - grid.buckets)
    strip: Line = [Segment(fit(" " * left_margin + span.title, label_cells), _DIM)]
    last = grid.at(span.now)
    for column, (count, severity) in enumerate(zip(counts, severities, strict=True)):
        if count:
            step = max(1, min(len(LEVELS) - 1, round((len(LEVELS) - 1) * count / max_count)))
            strip.append(Segment(LEVELS[step], palette.ink(_ROLES[severity])))
        elif column > last:
            strip.append(Segment(" "))
        else:
            strip.append(Segment(LEVELS[0], _TRACK) if observed[column] else Segment(GAP if is_read else " ", _FAINT))
    labels = clock_labels(grid, grid.buckets)
    if span.ends_now:
        labels = [(cell, text) for cell, text in labels if cell + len(text) + 1 < grid.buckets - 3]
        labels.append((grid.buckets - 3, "now"))
    resolution = f"{column_text(grid.step)} a cell"
    times = place_labels(labels, " " * grid.buckets)
    return [strip, [Segment(fit(" " * left_margin + resolution, label_cells), _FAINT), Segment(times, _FAINT)]]
