"""Size of the rows into which a training without epochs is divided.

The number of steps in a row is 1, 2 or 5 times a power of ten, chosen so that the training has 20 to 50 rows.
"""

from __future__ import annotations

from itertools import cycle

MAX_ROWS = 50
"""Maximum number of rows. If a training would have more rows, its rows get longer."""


def row_size(steps: int) -> int:
    """Return the number of steps per row of a training that has done `steps` steps."""
    size, doubled = 1, cycle((4, 5, 4))
    while steps > MAX_ROWS * size:
        size = size * next(doubled) // 2
    return size


def mark_size(steps: int) -> int:
    """Return the number of steps between the boundaries that a training process records after `steps` steps.

    Rows become longer during the training, so boundaries must fit the current row size and all larger row sizes. For
    example, rows of 2 steps need a boundary at every step, because rows of 5 steps could not be formed from boundaries
    at every second step.
    """
    size = row_size(steps)
    return size // 2 if str(size)[0] == "2" else size
