"""Lines and cells of CSV: quoted, no formulas, times that spreadsheets know."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from time import gmtime, strftime

from gpumon.model.metrics import Unit

BYTE_ORDER_MARK = "\ufeff"
"""In front of a file for spreadsheets: without it, Excel reads UTF-8 as something else."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A cell of text that begins so is a formula to spreadsheets."""

Cell = str | int | float | None


class _Echo:
    """A file that gives back what is written to it: so `writerow` returns its line."""

    def write(self, text: str) -> str:
        return text


_WRITER = csv.writer(_Echo(), lineterminator="\n")


def csv_line(cells: Sequence[Cell]) -> str:
    """Return one line with its newline; None is an empty cell."""
    line: str = _WRITER.writerow([_harmless(cell) for cell in cells])  # that of our write
    return line


def named(name: str, unit: Unit) -> str:
    """A column's name with its unit at its end: `energy_joules`; `seconds` stays as it is."""
    return name if name.endswith(unit.value) else f"{name}_{unit.value}"


def utc(seconds: float) -> str:
    """A time as a date and a time of day, `2026-01-31 14:03:20`; empty where it is unknown."""
    try:
        return strftime("%Y-%m-%d %H:%M:%S", gmtime(seconds)) if math.isfinite(seconds) else ""
    except (OverflowError, OSError, ValueError):
        return ""  # no day that this machine's calendar has


def _harmless(cell: Cell) -> str | int | float:
    if isinstance(cell, str) and cell.startswith(_FORMULA):
        return f"'{cell}"
    return "" if cell is None else cell
