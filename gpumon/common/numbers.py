"""NaN as the missing value, and numbers in JSON.

JSON has no NaN and no infinity, and null means that a value is missing. A logged loss that is NaN or infinite is
therefore written as a word. The words are the same as in JavaScript, and Python's `float` can parse them.
"""

from __future__ import annotations

import math
from typing import Any

NAN = float("nan")
LARGEST = 2.0**65
"""Largest plausible value in a file. A larger one counts as missing: no machine has so many bytes, joules or
nanoseconds."""
UNKNOWN_MODEL = "unknown model"
"""Name of a GPU if the driver reports no model."""


def is_known(value: float) -> bool:
    """Return whether `value` is a number, which may be infinite.

    >>> is_known(0.0), is_known(NAN)
    (True, False)
    """
    return value == value


_WORDS = {"NaN": NAN, "Infinity": math.inf, "-Infinity": -math.inf}

_DIGITS = 5
_EXACT = 2**53
"""Integers below this limit are exact in a float."""


def shown(value: float) -> float | None:
    """Return a number for JSON; None if it is NaN. Integers are exact. Other numbers are rounded as on the screen.

    >>> shown(629145600.0), shown(312.456789), shown(float("nan"))
    (629145600, 312.46, None)
    """
    if not math.isfinite(value):
        return None
    if value == int(value) and abs(value) < _EXACT:
        return int(value)
    return float(f"{value:.{_DIGITS}g}")


def exact(value: float, digits: int = 0) -> float | None:
    """Round a number to `digits` decimals, for a file. Return None if it is NaN.

    >>> exact(2678400.25), exact(6047.4049, 2), exact(float("nan"))
    (2678400, 6047.4, None)
    """
    if not math.isfinite(value):
        return None
    return round(value, digits) if digits else round(value)


def logged(value: float) -> float | int | str:
    """Convert a logged number to JSON. Integers have no decimal point; NaN and the infinities become words."""
    if not is_known(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return int(value) if value == int(value) and abs(value) < _EXACT else value


def parse_logged(cell: Any) -> float | None:
    """Return the number that `logged` converted to this JSON value; None for any other value."""
    if isinstance(cell, str):
        return _WORDS.get(cell)
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return None
    try:
        return float(cell)
    except OverflowError:  # an integer beyond the range of floats
        return None
