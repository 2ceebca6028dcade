"""Values that are not known: NaN, which is never 0, and the model of a GPU."""

from __future__ import annotations

NAN = float("nan")
LARGEST = 2.0**65
"""More bytes, joules or nanoseconds than any machine has: such a value of a file is missing."""
UNKNOWN_MODEL = "unknown model"
"""The name of a GPU whose model nobody has told."""


def is_known(value: float) -> bool:
    """Whether `value` is a number, infinite ones included.

    >>> is_known(0.0), is_known(NAN)
    (True, False)
    """
    return value == value
