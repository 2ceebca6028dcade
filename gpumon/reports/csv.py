"""Writes CSV and Parquet. In CSV, strings that a spreadsheet would evaluate as a formula are escaped."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from time import gmtime, strftime

from gpumon.common.errors import GpumonError, pip

BYTE_ORDER_MARK = "\ufeff"
"""First character of CSV files for spreadsheets. Without it, Excel does not read the files as UTF-8."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Prefixes of text that spreadsheets evaluate as a formula."""

Cell = str | int | float | None


class _Echo:
    """A file object whose `write` returns its argument, so that `writerow` returns the line."""

    def write(self, text: str) -> str:
        return text


_WRITER = csv.writer(_Echo(), lineterminator="\n")


def csv_line(cells: Sequence[Cell]) -> str:
    """Return one line of CSV with its newline. None becomes an empty cell."""
    line: str = _WRITER.writerow([_escape_formula(cell) for cell in cells])  # the text, from `_Echo.write`
    return line


def utc(seconds: float) -> str:
    """Return a time (s since 1970) as date and time in UTC, such as `2026-01-31 14:03:20`; empty for NaN."""
    try:
        return strftime("%Y-%m-%d %H:%M:%S", gmtime(seconds)) if math.isfinite(seconds) else ""
    except (OverflowError, OSError, ValueError):
        return ""  # outside the range of this machine's calendar


def _escape_formula(cell: Cell) -> str | int | float:
    if isinstance(cell, str) and cell.startswith(_FORMULA):
        return f"'{cell}"
    return "" if cell is None else cell


Column = tuple[type, Sequence[object]]
"""The type of the values (`str`, `int` or `float`), and the values. A missing value is None."""


def parquet_bytes(columns: Mapping[str, Column]) -> bytes:
    """Return the content of a Parquet file. `columns`: the table's columns by name.

    Raises GpumonError if pyarrow is not installed.
    """
    try:
        pyarrow, writer = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise GpumonError(
            f"Parquet requires pyarrow: install it with '{pip('install pyarrow')}', or use --format csv"
        ) from error
    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    arrays = {name: pyarrow.array(values, types[kind]) for name, (kind, values) in columns.items()}
    buffer = io.BytesIO()
    writer.write_table(pyarrow.table(arrays), buffer)
    return buffer.getvalue()
