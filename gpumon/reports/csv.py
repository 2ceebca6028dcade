"""Lines and cells of CSV: quoted, no formulas, times that spreadsheets know."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from time import gmtime, strftime

from gpumon.common.errors import GpumonError, pip

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


Column = tuple[type, Sequence[object]]
"""The type of its values, `str`, `int` or `float`, and the values; None is missing."""


def parquet_bytes(columns: Mapping[str, Column]) -> bytes:
    """Return a table by the names of its columns as Parquet. Raises GpumonError without pyarrow."""
    try:
        pyarrow, writer = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise GpumonError(
            f"Parquet requires pyarrow: install it with '{pip('install pyarrow')}', or use --format csv"
        ) from error
    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    arrays = {name: pyarrow.array(values, types[kind]) for name, (kind, values) in columns.items()}
    out = io.BytesIO()
    writer.write_table(pyarrow.table(arrays), out)
    return out.getvalue()
