"""Labels below a chart."""

from __future__ import annotations

from math import ceil
from time import localtime

from gpumon.model import units
from gpumon.storage.history.buckets import Grid

STEPS = (
    1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 3 * 3600, 6 * 3600, 12 * 3600, 86400,
    2 * 86400, 5 * 86400,
)  # fmt: skip


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


def lay(labels: list[tuple[int, str]], ground: str) -> str:
    """Labels on a line, as far as they have room there."""
    line = list(ground)
    for cell, text in labels:
        if cell + len(text) <= len(line):
            line[cell : cell + len(text)] = text
    return "".join(line)
