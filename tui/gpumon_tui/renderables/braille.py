"""Filled areas in braille: two dots across and four up in every cell."""

from __future__ import annotations

from collections.abc import Sequence

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
    dots = [0 if v != v else max(1, min(most, int(min(v * scale, most) + 0.5))) for v in columns]
    rows = []
    for row in range(height):
        floor = most - 4 * row - 4
        clipped = [0 if n <= floor else min(4, n - floor) for n in dots]
        rows.append("".join([CELLS[a][b] for a, b in zip(clipped[0::2], clipped[1::2], strict=True)]))
    return rows
