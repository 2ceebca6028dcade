"""The arrangement of GPUs in the room that they have: where some have no room, a line says so."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from gpumon_tui.renderables.gpu_columns import SHORT, SHORT_CELLS

BETWEEN = 2
"""Cells between two GPUs side by side."""
SEVERAL_FROM = 80
"""Cells from which several stand side by side where rows are scarce."""
FEWEST_MARKED = 3
"""Rows from which the count of hidden GPUs has a row of its own; below, it stands at the end of the last."""


class GpuRooms(NamedTuple):
    """The places of GPUs: they read down, then across."""

    across: int
    cells: int
    """Of each."""
    rows: int
    """Of GPUs on screen."""
    down: int
    """Of all GPUs."""
    answer: bool
    """Whether a row says how many are free."""
    heading: bool
    epochs: bool
    """Whether there is a row for the epochs of a run."""

    @property
    def first(self) -> int:
        """The row of the first GPU."""
        return int(self.heading) + 2 * int(self.answer)

    @property
    def has_mark(self) -> bool:
        """Whether some are not on screen."""
        return self.rows < self.down


def gpu_rooms(cells: int, rows: int, gpus: int) -> GpuRooms:
    """Return how `gpus` stand in a room; headings and epochs have what is left."""
    rows = max(1, rows)
    across = 1
    if gpus > rows and cells >= SEVERAL_FROM:
        across = min(ceil(gpus / rows), (cells + BETWEEN) // (SHORT_CELLS + BETWEEN))
    down = ceil(gpus / across)
    each = (cells - BETWEEN * (across - 1)) // across
    spare = rows - down
    answer = each < SHORT and across == 1 and spare >= 2
    heading = each >= SHORT and spare >= 1
    epochs = each >= SHORT and spare >= 2
    shown = down if spare >= 0 else rows - 1 if rows >= FEWEST_MARKED else rows
    return GpuRooms(across, each, shown, down, answer, heading, epochs)
