"""Sizes of the rows of a training without epochs: 1, 2 or 5 times a power of ten steps, so that there are 20 to 50."""

from __future__ import annotations

from itertools import cycle

MOST_ROWS = 50
"""With more of them, rows become longer."""


def row_size(steps: int) -> int:
    """Return the number of steps of each row of a training that has made `steps`."""
    size, doubled = 1, cycle((4, 5, 4))
    while steps > MOST_ROWS * size:
        size = size * next(doubled) // 2
    return size


def mark_size(steps: int) -> int:
    """Return the number of steps after which a training marks the end of one: rows of it add up to rows of any size.

    Rows of 2 steps add up to none of 5, so that these are marked by 1.
    """
    size = row_size(steps)
    return size // 2 if str(size)[0] == "2" else size
