"""Size of the rows of a training without epochs: 1, 2 or 5 times a power of ten steps, for 20 to 50 rows."""

from __future__ import annotations

from itertools import cycle

MAX_ROWS = 50
"""With more rows than this, rows become longer."""


def row_size(steps: int) -> int:
    """Return the number of steps per row of a training that has made `steps`."""
    size, doubled = 1, cycle((4, 5, 4))
    while steps > MAX_ROWS * size:
        size = size * next(doubled) // 2
    return size


def mark_size(steps: int) -> int:
    """Return the number of steps between the boundaries of a training, so that they add up to rows of any size.

    Boundaries every 2 steps do not add up to rows of 5, so they are set at every step.
    """
    size = row_size(steps)
    return size // 2 if str(size)[0] == "2" else size
