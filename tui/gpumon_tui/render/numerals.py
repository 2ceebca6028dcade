"""Large numbers, three rows high, made of half blocks."""

from __future__ import annotations

_FONT = {
    "0": "111101101101111", "1": "010110010010111", "2": "111001111100111", "3": "111001111001111",
    "4": "101101111001001", "5": "111100111001111", "6": "111100111101111", "7": "111001001001001",
    "8": "111101111101111", "9": "111101111001111", "–": "000000111000000", ".": "00001",
}  # fmt: skip
"""Pixels of each character, five rows from the top."""
_HALVES = {"00": " ", "10": "▀", "01": "▄", "11": "█"}
ROWS = 3


def numerals(text: str) -> list[str]:
    """Return a number in three rows; characters other than digits, dot and dash are left out."""
    letters = [_letter(_FONT[letter]) for letter in text if letter in _FONT]
    return [" ".join(rows) for rows in zip(*letters, strict=True)] if letters else [""] * ROWS


def _letter(points: str) -> list[str]:
    pixel_columns = len(points) // 5
    rows = [points[index : index + pixel_columns] for index in range(0, len(points), pixel_columns)] + [
        "0" * pixel_columns
    ]
    return [
        "".join(_HALVES[upper + lower] for upper, lower in zip(rows[index], rows[index + 1], strict=True))
        for index in (0, 2, 4)
    ]
