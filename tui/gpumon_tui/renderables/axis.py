"""Labels beside and below a chart."""

from __future__ import annotations

from math import ceil, floor, isfinite, log2, log10
from time import localtime

from gpumon import units
from gpumon.history.grid import Grid
from gpumon.metrics import Metric, Unit
from gpumon_tui.freshness import NOW

STEPS = (
    1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 3 * 3600, 6 * 3600, 12 * 3600, 86400,
    2 * 86400, 5 * 86400,
)  # fmt: skip


def time_labels(columns: Grid, cells: int, now: float, edge: str = NOW, apart: int = 12) -> list[tuple[int, str]]:
    """Cell and text of the marks `-10m … now`, far enough from each other; `edge` is the last, and always there."""
    span = columns.step * columns.buckets
    step = next((s for s in STEPS if cells * s / span >= apart), STEPS[-1])
    labels: list[tuple[int, str]] = []
    seconds = 0
    while seconds <= now - columns.begin:
        text = units.ago(seconds) if seconds else edge
        cell = round(cells * (now - seconds - columns.begin) / span)
        begin = max(0, min(cells - len(text), cell - len(text) // 2))
        if not labels or begin + len(text) < labels[-1][0]:
            labels.append((begin, text))
        seconds += step
    return labels[::-1]


def clock_labels(columns: Grid, cells: int, apart: int = 12) -> list[tuple[int, str]]:
    """Cell and text of times of day and dates in the viewer's time zone, for a window in the past."""
    span = columns.step * columns.buckets
    step = next((s for s in STEPS if cells * s / span >= apart), STEPS[-1])
    labels: list[tuple[int, str]] = []
    zone = localtime(columns.begin).tm_gmtoff
    at = ceil((columns.begin + zone) / step) * step - zone
    while at < columns.end:
        text = units.moment(at)
        text = text[5:10] if text.endswith("00:00:00") else text[11:] if step < 60 else text[11:16]
        begin = max(0, min(cells - len(text), round(cells * (at - columns.begin) / span) - len(text) // 2))
        if not labels or begin > labels[-1][0] + len(labels[-1][1]):
            labels.append((begin, text))
        at += step
    return labels


def between(begin: float, end: float) -> str:
    """`2026-01-31 14:03:20 – 14:13:20`: two times as the viewer's time zone has them; over days without seconds."""
    first, last = units.moment(begin), units.moment(end)
    if end - begin >= 86400:
        first, last = first[:16], last[:16]
    return f"{first} – {last[11:] if first[:10] == last[:10] else last}"


def lay(labels: list[tuple[int, str]], ground: str) -> str:
    """Labels on a line, as far as they have room there."""
    line = list(ground)
    for cell, text in labels:
        if cell + len(text) <= len(line):
            line[cell : cell + len(text)] = text
    return "".join(line)


def value_labels(metric: Metric, top: float, rows: int) -> dict[int, str]:
    """Text beside the rows of a chart: full scale above, nothing below, a half where it fits."""
    if rows < 1 or not isfinite(top):
        return {}
    labels = {rows - 1: units.metric(0.0, metric), 0: units.metric(top, metric)}
    if rows >= 7:
        labels[rows // 2] = units.metric(top / 2, metric)
    return labels


def scale_top(largest: float, unit: Unit) -> float:
    """A full scale just above `largest` that reads well: 1, 2, 5, 10 …; powers of 2 for bytes."""
    if not largest > 0:
        return 1.0
    if unit is Unit.BYTES:
        return 2.0 ** -floor(-log2(largest))
    decade = 10.0 ** floor(log10(largest))
    return next(n * decade for n in (1, 2, 2.5, 5, 10) if n * decade >= largest)
