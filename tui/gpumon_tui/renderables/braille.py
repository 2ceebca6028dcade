"""Filled areas in braille: two dots across and four up in every cell."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
CELLS = tuple(tuple(chr(0x2800 | left | right) if left | right else " " for right in _RIGHT) for left in _LEFT)
"""The character with so many dots filled from below, by the left and the right number, 0 to 4."""


def area(columns: Sequence[float], height: int, top: float) -> list[str]:
    """`height` rows for dot columns whose full scale is `top`; NaN leaves its column empty.

    A known value has at least one dot: zero is not the same as a gap.

    >>> area([0.0, 1.0, float("nan"), 0.5], 1, 1.0)
    ['⣸⢠']
    """
    most = 4 * height
    scale = most / top if top > 0 else 0.0
    # NaN is not itself; in place, because a call would cost more than the rest of the loop.
    dots = [0 if v != v else most if v * scale >= most else max(1, int(v * scale + 0.5)) for v in columns]
    if len(dots) % 2:
        dots.append(0)
    pairs = [_pair(left, right, height) for left, right in zip(dots[0::2], dots[1::2], strict=True)]
    return ["".join(row) for row in zip(*pairs, strict=True)]


@lru_cache(maxsize=4096)  # a chart has few different ones, and draws most of them again and again
def _pair(left: int, right: int, height: int) -> str:
    """The cells of two columns of dots, from the top down."""
    floors = range(4 * height - 4, -1, -4)
    return "".join([CELLS[max(0, min(4, left - floor))][max(0, min(4, right - floor))] for floor in floors])
