"""Quantities that repeat, with their integrals."""

from __future__ import annotations

from collections.abc import Sequence

CELL = 0.1
"""Seconds in which a quantity does not change."""


class Curve:
    """A quantity that repeats: constant over cells of 0.1 s. Times are seconds, not negative."""

    def __init__(self, cells: Sequence[float]) -> None:
        self.cells = tuple(cells)
        self._sums = [0.0]
        for cell in cells:
            self._sums.append(self._sums[-1] + cell * CELL)

    def at(self, time: float) -> float:
        """The quantity at `time`."""
        return self.cells[int(time / CELL) % len(self.cells)]

    def until(self, time: float) -> float:
        """Its integral from 0 to `time`."""
        periods, cells = divmod(time / CELL, len(self.cells))
        cell = min(int(cells), len(self.cells) - 1)
        return periods * self._sums[-1] + self._sums[cell] + (cells - cell) * CELL * self.cells[cell]
