"""NaN as the missing value, and numbers in JSON.

A logged loss that is NaN or infinite needs a word in JSON, because null means unknown and JSON has no such numbers. The
words are those of JavaScript, which Python's `float` parses, too.
"""

from __future__ import annotations

import math
from typing import Any

NAN = float("nan")
LARGEST = 2.0**65
"""More bytes, joules or nanoseconds than any machine has: a larger value in a file counts as missing."""
UNKNOWN_MODEL = "unknown model"
"""Name of a GPU whose model is unknown."""


def is_known(value: float) -> bool:
    """Return whether `value` is a number, which may be infinite.

    >>> is_known(0.0), is_known(NAN)
    (True, False)
    """
    return value == value


_WORDS = {"NaN": NAN, "Infinity": math.inf, "-Infinity": -math.inf}

_DIGITS = 5
_EXACT = 2**53
"""Integers below it are exact in a float."""


def shown(value: float) -> float | None:
    """Return a number for JSON: integers such as bytes exactly, others rounded to the digits that a screen shows.

    >>> shown(629145600.0), shown(312.456789), shown(float("nan"))
    (629145600, 312.46, None)
    """
    if not math.isfinite(value):
        return None
    if value == int(value) and abs(value) < _EXACT:
        return int(value)
    return float(f"{value:.{_DIGITS}g}")


def exact(value: float, digits: int = 0) -> float | None:
    """Return a number for a file with `digits` decimals; None if it is missing.

    >>> exact(2678400.25), exact(6047.4049, 2), exact(float("nan"))
    (2678400, 6047.4, None)
    """
    if not math.isfinite(value):
        return None
    return round(value, digits) if digits else round(value)


def logged(value: float) -> float | int | str:
    """Return a logged number for JSON: integers without a decimal point, and words for NaN and the infinities."""
    if not is_known(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return int(value) if value == int(value) and abs(value) < _EXACT else value


def parse_logged(cell: Any) -> float | None:
    """Return the number from which `logged` made this JSON value; None for any other value."""
    if isinstance(cell, str):
        return _WORDS.get(cell)
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return None
    try:
        return float(cell)
    except OverflowError:  # an integer beyond the range of floats
        return None
