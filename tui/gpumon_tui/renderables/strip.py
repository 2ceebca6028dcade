"""The last minutes of a metric in one row: a letter for each column of time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import floor, isfinite

from rich.segment import Segment

from gpumon.history.grid import Grid
from gpumon.history.query import History
from gpumon_tui import palette
from gpumon_tui.renderables.buckets import read
from gpumon_tui.renderables.text_width import Line

LEVELS = "▁▂▃▄▅▆▇"
"""Never a whole block: rows must not touch."""
_MOST = len(LEVELS)
GAP = "·"
QUIET = 0.42
"""Share of the color in all cells but that of now."""
NOTHING = 0.005
"""Below, a cell is drawn as zero."""
STEPS = (
    1.0,
    2.0,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    *(60.0 * many for many in (1, 2, 5, 10, 15, 20, 30, 60, 120, 360, 1440)),
)
"""Seconds that a column may last: round ones."""


def strip_grid(window: float, cells: int, now: float) -> Grid:
    """Return `cells` columns of round length, together about `window` seconds; the last one holds `now`.

    They begin at multiples of their length since 1970, so that no column ever changes but the last.
    """
    wanted = window / cells
    step = min(STEPS, key=lambda one: max(one / wanted, wanted / one))
    return Grid(floor(now / step + 1e-6) - cells + 1, step, cells)


def strip(shares: Sequence[float], role: str = "util") -> Line:
    """Draw shares of the full scale, oldest first; NaN is a gap, and the last one is that of now."""
    gap, nothing, quiet = palette.ink("faint"), palette.ink("rule"), palette.tinted(role, QUIET)
    line: Line = []
    letters, before, last = "", gap, len(shares) - 1
    # In place, because there is one for every GPU and second: a call for each cell cost more than all else.
    for at, share in enumerate(shares):
        if not isfinite(share):
            letter, style = GAP, gap
        elif share < NOTHING:
            letter, style = LEVELS[0], nothing
        else:
            letter = LEVELS[min(_MOST, max(1, round(share * _MOST))) - 1]
            style = quiet if at != last else palette.ink(role)
        if style is not before:
            if letters:
                line.append(Segment(letters, before))
            letters, before = "", style
        letters += letter
    return [*line, Segment(letters, before)] if letters else line


class StripHistory:
    """The columns of strips; a column that is over is asked for once."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[object, Grid, list[float]]] = {}

    def shares(
        self, history: History, subject: str, metric: str, *, grid: Grid, interval: float, known: object
    ) -> list[float]:
        """Return the mean of a metric in each column; `known` is another object when the past has changed."""
        place = subject, metric
        kept = self._kept.get(place)
        values: list[float] = []
        if kept is not None:
            before, of, old = kept
            passed = grid.first - of.first
            if before == known and (of.step, of.buckets) == (grid.step, grid.buckets) and 0 <= passed < grid.buckets:
                values = old[passed:-2]  # a late sample may belong to the column before the last
        rest = Grid(grid.first + len(values), grid.step, grid.buckets - len(values))
        values = values + list(read(history, subject, metric, rest, interval).mean)
        self._kept[place] = known, grid, values
        return values

    def keep(self, subjects: set[str]) -> None:
        """Forget every other subject."""
        self._kept = {place: kept for place, kept in self._kept.items() if place[0] in subjects}  # type: ignore[index]
