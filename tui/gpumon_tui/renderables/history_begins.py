"""Words on a chart where the history begins within it: what is empty before is neither a gap nor zero."""

from __future__ import annotations

from gpumon.common.numbers import is_known
from gpumon.storage.history.buckets import Grid
from gpumon_tui import theme
from gpumon_tui.renderables.cells import laid
from gpumon_tui.renderables.plot import PlotCurve
from gpumon_tui.renderables.text_width import Line

BEGINS = "history begins here"


def with_begin(line: Line, left: int, grid: Grid, begin: float, curve: PlotCurve) -> Line:
    """Return a line of a chart with the words before `begin` (s since 1970, or NaN), if there is room; else the line.

    `left` is the cell of the first column.
    """
    free = grid.at(begin) if is_known(begin) else 0
    if free <= len(BEGINS) + 1:
        return line
    before = min(free, grid.buckets)
    if any(map(is_known, curve.mean[: 2 * before])):
        return line
    return laid(line, left + before - len(BEGINS) - 1, BEGINS, theme.DIM)
