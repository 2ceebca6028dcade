"""Converts tables of ledger rows to HTML for notebooks, and to pandas or polars data frames.

Each row is a dataclass. A field that contains a mapping becomes one column for each key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from html import escape
from importlib import import_module
from typing import Any, Generic, TypeVar, overload

from gpumon.common.errors import MissingPackage, converts_os_errors
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.columns import EPOCHS
from gpumon.model.metrics import Unit

T = TypeVar("T")
HIDDEN: Mapping[str, bool] = {"hidden": True}
"""Metadata that marks a dataclass field as not to be shown as a column."""
ROWS_SHOWN = 60
"""Maximum number of rows of a table in a notebook. Further rows are left out."""
_COLUMNS_SHOWN = 40
_TIMES = frozenset(("begun", "ended", "started", "time"))
_PREFIXES = {"metrics": "logged.", "usage": ""}
"""For each field name, the prefix for the columns of its mapping. The training chooses the names of logged metrics, so
they get a prefix to prevent conflicts with other columns."""
_UNITS = {column.key: column.unit for column in EPOCHS if column.unit is not None} | {"utilization": Unit.RATIO}
_STYLE = "text-align: left"


class RowTable(Sequence[T], Generic[T]):
    """A sequence of rows of the class `kind`.

    `more` is a function that returns, for a row, the values of additional columns by name.
    """

    def __init__(self, kind: type[T], rows: Sequence[T], more: Callable[[T], Mapping[str, Any]] | None = None) -> None:
        self._kind = kind
        self._rows = tuple(rows)
        self._more = more

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._rows[index] if isinstance(index, int) else RowTable(self._kind, self._rows[index], self._more)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<{len(self)} rows of {self._kind.__name__}>"

    def columns(self) -> dict[str, list[Any]]:
        """Return the cells of each column by column name. A cell is None if its row has no value in this column."""
        cells = [_cells(row, self._more) for row in self._rows]
        names = dict.fromkeys(name for row in cells for name in row) or dict.fromkeys(_names(self._kind))
        return {name: [row.get(name) for row in cells] for name in names}

    @converts_os_errors
    def to_pandas(self) -> Any:
        """Return a pandas DataFrame. Times are dates in UTC. Raises MissingPackage if pandas is not installed."""
        pandas = _package("pandas", "to_pandas")
        columns = {name: _uniform(cells) for name, cells in self.columns().items()}
        result = pandas.DataFrame(columns)
        for name in columns.keys() & _TIMES:
            result[name] = pandas.to_datetime(result[name].astype("float64"), unit="s", utc=True)
        return result

    @converts_os_errors
    def to_polars(self) -> Any:
        """Return a polars DataFrame. Times are dates in UTC, and missing values are null.

        Raises MissingPackage if polars is not installed.
        """
        polars = _package("polars", "to_polars")
        columns = []
        for name, cells in self.columns().items():
            known = [None if isinstance(cell, float) and not is_known(cell) else cell for cell in _uniform(cells)]
            if name in _TIMES:
                micros = [None if cell is None else round(cell * 1e6) for cell in known]
                columns.append(polars.Series(name, micros, polars.Int64).cast(polars.Datetime("us", "UTC")))
            else:
                columns.append(polars.Series(name, known))
        return polars.DataFrame(columns)

    def _repr_html_(self) -> str:
        shown = RowTable(self._kind, self._rows[:ROWS_SHOWN], self._more).columns()
        kept = [name for name, cells in shown.items() if any(_text(name, cell) for cell in cells)][:_COLUMNS_SHOWN]
        head = "".join(f'<th style="{_STYLE}">{escape(name)}</th>' for name in kept)
        rows = (
            "".join(f'<td style="{_STYLE}">{escape(_text(name, shown[name][index]))}</td>' for name in kept)
            for index in range(min(len(self), ROWS_SHOWN))
        )
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        more = f"<p>the first {ROWS_SHOWN} of {units.count(len(self))} rows</p>" if len(self) > ROWS_SHOWN else ""
        more = more if self._rows else "<p>no rows</p>"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def html_of_row(row: Any, more: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """Return one row as an HTML table with one line per column.

    `more`: additional values, as a mapping for each prefix. A value is shown with the name `prefix.name`.
    """
    cells = _cells(row, None)
    for prefix, values in (more or {}).items():
        cells |= {f"{prefix}.{name}": value for name, value in values.items()}
    lines = (
        f'<tr><th style="{_STYLE}">{escape(name)}</th><td style="{_STYLE}">{escape(text)}</td></tr>'
        for name, cell in cells.items()
        if (text := _text(name, cell))
    )
    return f"<table><tbody>{''.join(lines)}</tbody></table>"


def _names(kind: type[Any]) -> Iterator[str]:
    return (field.name for field in fields(kind) if not field.metadata.get("hidden") and field.name not in _PREFIXES)


def _cells(row: Any, more: Callable[[Any], Mapping[str, Any]] | None) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for field in fields(row):
        value = getattr(row, field.name)
        if field.metadata.get("hidden"):
            continue
        if isinstance(value, Mapping):
            prefix = _PREFIXES.get(field.name, f"{field.name}.")
            result |= {f"{prefix}{name}": cell for name, cell in value.items()}
        else:
            result[field.name] = ", ".join(value) if isinstance(value, tuple) else value
    return {**result, **(more(row) if more else {})}


def _uniform(cells: Sequence[Any]) -> list[Any]:
    """Return the cells converted to a single type, as data frames require. Cells of mixed types become text."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds <= {int, float} and len(kinds) > 1:
        return [None if cell is None else float(cell) for cell in cells]
    if len(kinds) > 1:
        return [None if cell is None else str(cell) for cell in cells]
    return list(cells)


def _text(name: str, cell: Any) -> str:
    """Return a cell as text; empty if the cell has no value."""
    if cell is None or (isinstance(cell, float) and not is_known(cell)):
        return ""
    if isinstance(cell, float) and name in _TIMES:
        return units.moment(cell)
    if isinstance(cell, float):
        return units.in_column(cell, _UNITS[name]) if name in _UNITS else units.three_digits(cell)
    return str(cell)


def _package(name: str, what: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingPackage(what, name) from error
