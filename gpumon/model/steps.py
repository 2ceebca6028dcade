"""Size of the rows into which a training without epochs is divided.

A row has 1, 2 or 5 times a power of ten steps, so that the training has 20 to 50 rows.
"""

from __future__ import annotations

from itertools import cycle

MAX_ROWS = 50
"""Maximum number of rows. A training that would have more gets longer rows."""


def row_size(steps: int) -> int:
    """Return the number of steps per row of a training that has done `steps` steps."""
    size, doubled = 1, cycle((4, 5, 4))
    while steps > MAX_ROWS * size:
        size = size * next(doubled) // 2
    return size


def mark_size(steps: int) -> int:
    """Return the number of steps between the boundaries that a training process records after `steps` steps.

    Boundaries must fit the current row size and every larger one, since rows become longer. So rows of 2 steps have a
    boundary at every step: with one at every second step, rows of 5 could not be formed.
    """
    size = row_size(steps)
    return size // 2 if str(size)[0] == "2" else size
