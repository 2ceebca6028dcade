"""Columns of numbers as the file has them: little-endian, and each number's first bytes before the second ones."""

from __future__ import annotations

import sys
from array import array
from typing import Any

_BIG = sys.byteorder == "big"


def shuffled(column: array[Any]) -> bytes:
    """Return the bytes of a column, those of one place in a number together: they compress better."""
    data, size = little(column).tobytes(), column.itemsize
    return b"".join(data[first::size] for first in range(size))


def unshuffled(data: bytes, size: int) -> bytes:
    """Return the bytes of numbers of `size` bytes in their own order."""
    found, length = bytearray(len(data)), len(data) // size
    for first in range(size):
        found[first::size] = data[first * length : (first + 1) * length]
    return bytes(found)


def little(column: array[Any]) -> array[Any]:
    """Return a column in the byte order of the file, or one of the file in that of the machine."""
    if _BIG:
        column = column[:]
        column.byteswap()
    return column
