"""Numbers as JSON says them: a loss that is NaN or infinite is a fact and needs a word, because null means unknown.

JSON has no word of its own for such a number; these are the ones of JavaScript, which Python's `float` reads too.
"""

from __future__ import annotations

import math
from typing import Any

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


_WORDS = {"NaN": NAN, "Infinity": math.inf, "-Infinity": -math.inf}

_DIGITS = 5
_EXACT = 2**53
"""Whole numbers below it are exact in a float."""


def shown(value: float) -> float | None:
    """A number as JSON has it: whole ones such as bytes exactly, others with as many digits as a screen shows.

    >>> shown(629145600.0), shown(312.456789), shown(float("nan"))
    (629145600, 312.46, None)
    """
    if not math.isfinite(value):
        return None
    if value == int(value) and abs(value) < _EXACT:
        return int(value)
    return float(f"{value:.{_DIGITS}g}")


def exact(value: float, digits: int = 0) -> float | None:
    """A number for a file, with so many digits behind the point; None for what is missing.

    >>> exact(2678400.25), exact(6047.4049, 2), exact(float("nan"))
    (2678400, 6047.4, None)
    """
    if not math.isfinite(value):
        return None
    return round(value, digits) if digits else round(value)


def logged(value: float) -> float | int | str:
    """Return a number that a training logged: whole numbers without a dot, and words for NaN and the infinities."""
    if not is_known(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return int(value) if value == int(value) and abs(value) < _EXACT else value


def parse_logged(cell: Any) -> float | None:
    """Return the number that `logged` wrote; None for anything else, as null, a truth value or another text."""
    if isinstance(cell, str):
        return _WORDS.get(cell)
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return None
    try:
        return float(cell)
    except OverflowError:  # a whole number beyond every float
        return None
