"""Memory in use as a bar of one row: its parts in tints, the number stands beside it."""

from __future__ import annotations

from math import isfinite

from rich.segment import Segment
from rich.style import Style

from gpumon.analysis.memory import THIS_RUN, breakdown_of, known_parts
from gpumon.model.frame import Sample
from gpumon_tui import palette
from gpumon_tui.renderables.text_width import Line

CELL = "▆"
"""Lower than a cell, so that rows do not touch."""
TINTS = {
    "allocated": palette.tinted("memory", 0.62),
    "cached": palette.tinted("memory", 0.30),
    "context": palette.tinted("memory", 0.18),
    "others": palette.tinted("power", 0.34),
    "free": palette.ink("track"),
    "driver": palette.ink("track"),
}
"""The parts of memory, by the fields of `MemoryBreakdown`."""
WHOLE = palette.tinted("memory", 0.45)
"""Memory of which nobody tells what it is."""


def tint(name: str, title: str, *, alone: bool) -> Style:
    """Return the style of a part; `alone`: nothing is known of any run, so that nobody is another."""
    if title == THIS_RUN or (alone and name == "others"):
        return WHOLE
    return TINTS[name]


def parts_of(sample: Sample) -> list[tuple[float, Style]]:
    """Return bytes and style of what is in use, in the order of the bar; empty where that is unknown."""
    divided = breakdown_of(sample)
    if divided is None:
        return []
    known = [(part, size) for part, size in known_parts(divided) if part.name not in ("free", "driver")]
    alone = len(known) == 1
    return [(size, tint(part.name, part.title, alone=alone)) for part, size in known]


def memory_bar(sample: Sample, cells: int) -> Line:
    """Draw memory in use of the total in `cells` cells; without them nothing is drawn, not even an empty bar."""
    total = sample.value("gpu.memory_total")
    parts = parts_of(sample)
    if not parts or not (isfinite(total) and total > 0):
        return []
    line: Line = []
    at, done = 0.0, 0
    for size, style in parts:
        at += size
        end = min(cells, max(done, round(at * cells / total)))
        if end > done:
            line.append(Segment(CELL * (end - done), style))
            done = end
    if done < cells:
        line.append(Segment(CELL * (cells - done), TINTS["free"]))
    return line
