"""A cell of a process: what it used in a stretch of time."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from gpumon.process_history.measures import MEASURES

Cell = list[float]
"""Seconds in which the process was there; then of each measure the seconds that are known, value times seconds, the
lowest and the highest value."""
PER_MEASURE = 4
LENGTH = 1 + PER_MEASURE * len(MEASURES)
"""Numbers in a cell."""
_EMPTY = [0.0, *[0.0, 0.0, inf, -inf] * len(MEASURES)]


class PlacedCell(NamedTuple):
    """A cell of a process at its place in a block."""

    number: int
    """Of the process, in the file."""
    place: int
    cell: Cell


def empty() -> Cell:
    """Return a cell of no time."""
    return _EMPTY[:]


def hold(cell: Cell, values: Sequence[float], seconds: float) -> None:
    """Add `values`, one for each measure, that held for `seconds`; NaN is not known, and adds nothing."""
    cell[0] += seconds
    at = 1
    for value in values:
        # NaN is not itself; in place, because this is done for each process of each look.
        if value == value:
            cell[at] += seconds
            cell[at + 1] += seconds * value
            if value < cell[at + 2]:
                cell[at + 2] = value
            if value > cell[at + 3]:
                cell[at + 3] = value
        at += PER_MEASURE


def fold(into: Cell, other: Cell) -> None:
    """Add a cell of another time to one."""
    into[0] += other[0]
    for at in range(1, LENGTH, PER_MEASURE):
        if other[at]:
            into[at] += other[at]
            into[at + 1] += other[at + 1]
            if other[at + 2] < into[at + 2]:
                into[at + 2] = other[at + 2]
            if other[at + 3] > into[at + 3]:
                into[at + 3] = other[at + 3]


def share(cell: Cell, part: float) -> Cell:
    """Return the cell of a part (0 to 1) of its time."""
    found = cell[:]
    found[0] *= part
    for at in range(1, LENGTH, PER_MEASURE):
        found[at] *= part
        found[at + 1] *= part
    return found
