"""Low, mean and high of columns in braille, so that one second's stall is seen in a column of hours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

_LEFT, _RIGHT = (0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08)
"""The dots of a cell, from below."""


class EnvelopeRow(NamedTuple):
    """A row of cells."""

    text: str
    faint: Sequence[bool]
    """Whether each of its cells is above the lowest value."""


def envelope(
    low: Sequence[float], mean: Sequence[float], high: Sequence[float], height: int, top: float
) -> list[EnvelopeRow]:
    """`height` rows for columns whose full scale is `top`; NaN leaves its column empty.

    A column is solid up to its lowest value, sparse from there to its mean, and has a dot at its highest.
    Where the three are the same, it is that of `area`.
    """
    lows, means, highs = (_dots(values, height, top) for values in (low, mean, high))
    columns = list(zip(lows, means, highs, strict=True))
    if len(columns) % 2:
        columns.append((0, 0, 0))
    pairs = [_cells(left, right, height) for left, right in zip(columns[0::2], columns[1::2], strict=True)]
    return [
        EnvelopeRow("".join([text for text, _ in row]), [faint for _, faint in row]) for row in zip(*pairs, strict=True)
    ]


def _dots(values: Sequence[float], height: int, top: float) -> list[int]:
    """Dots from below that each value takes: one at least where it is known, none where it is not."""
    most = 4 * height
    scale = most / top if top > 0 else 0.0
    # NaN is not itself; in place, because a call would cost more than the rest of the loop.
    return [0 if v != v else most if v * scale >= most else max(1, int(v * scale + 0.5)) for v in values]


@lru_cache(maxsize=4096)
def _cells(left: tuple[int, int, int], right: tuple[int, int, int], height: int) -> list[tuple[str, bool]]:
    """The cells of two columns, from the top down, and whether each is above the lower of their lowest values."""
    dots = _column(left, 0), _column(right, 1)
    lowest = min((low for low, mean, _ in (left, right) if mean), default=0)
    return [(_cell(dots[0] >> floor, dots[1] >> floor), floor >= lowest) for floor in range(4 * height - 4, -1, -4)]


def _column(of: tuple[int, int, int], shift: int) -> int:
    """Dots as bits, that below everything first; those of two columns side by side are a chessboard where sparse."""
    low, mean, high = of
    if not mean:
        return 0
    sparse = sum(1 << dot for dot in range(low, mean) if (dot + shift) % 2)
    return (1 << low) - 1 | sparse | 1 << mean - 1 | 1 << high - 1


def _cell(left: int, right: int) -> str:
    found = sum(dot for place, dot in enumerate(_LEFT) if left >> place & 1)
    found |= sum(dot for place, dot in enumerate(_RIGHT) if right >> place & 1)
    return chr(0x2800 | found) if found else " "
