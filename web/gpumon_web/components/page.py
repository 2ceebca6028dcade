"""Definition of a page: its address, its Dash layout, and pure functions that compute its values.

Page modules import Dash only inside `layout`, because the worker process imports them too and must stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from gpumon.model import columns
from gpumon.model.columns import Form
from gpumon.model.metrics import Unit

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from gpumon_web.components.machine import Now

Args = Mapping[str, str]
"""Arguments of an address, with the page's defaults filled in."""
Cells = dict[str, Any]
"""JSON values by name, of a page or of a row."""

NUMBER_KINDS = frozenset({
    "count", "percent", "bytes", "watts", "celsius", "gigahertz", "joules", "duration", "span", "elapsed", "lasting",
    "logged",
})  # fmt: skip
"""Kinds of values that are right-aligned, and sorted in descending order first."""
KINDS = NUMBER_KINDS | {
    "text", "mono", "age", "state", "standing", "places", "tag", "person", "link", "bar", "parts", "memory", "rich",
    "notes", "checks", "spark", "strip", "ticks", "choices", "download", "when", "pick", "day", "mine",
    "filters", "tiles", "nodes", "away", "tick", "picked", "asked", "opening",
}  # fmt: skip
"""Kinds of values that the scripts can show (assets/kinds.js)."""


class Column(NamedTuple):
    """A column of a table: its cell, heading and kind."""

    key: str
    title: str
    kind: str = "text"
    help: str = ""
    sort: bool = True
    css: str = ""
    sorts_by: str = ""
    """Another cell of the row to sort by."""
    falls: bool | None = None
    """Whether it sorts in descending order first; None: only if it is a number."""
    is_head: bool = False
    """Whether it is the row heading, also for screen readers."""
    is_number: bool = False
    """Right-aligned even if its kind is not in `NUMBERS`."""
    small_unit: str = ""
    """`unit`: the unit is in a smaller font; `big`: also, the number is in a larger one."""
    most: str = ""
    """Name of the value with the column's maximum, so that all its cells use the same unit."""
    titled: str = ""
    """Name of a value that replaces the heading if it is set."""
    each_of: str = ""
    """Name of a value with a list of names: one column for each, whose cells are in the row's cell by that name."""
    needs: str = ""
    """Name of a value without which the column is hidden."""
    csv_list: str = ""
    """Name of a list in the row that CSV files have as a separate column before this one, joined by semicolons."""
    csv: str = ""
    """Column name in CSV files, with unit (`power_watts`), if these use the cell to sort by."""


_UNIT_KINDS: Mapping[Unit | None, str] = {
    Unit.RATIO: "percent", Unit.BYTES: "bytes", Unit.SECONDS: "duration", Unit.JOULES: "joules", Unit.WATTS: "watts",
    Unit.CELSIUS: "celsius", Unit.HERTZ: "gigahertz", Unit.COUNT: "count",
}  # fmt: skip
"""Kinds of numbers by unit; other units are formatted as text by Python."""
_TEXT_KINDS = ("text", "rich", "memory")
"""Kinds of cells that show a number as formatted text."""
_PRIORITY_CSS = ((85, ""), (70, "c-extra"), (55, "c-rare"))
"""CSS classes by least importance of a column; less important columns are hidden first on narrow screens."""


def table_column(
    column: columns.Column, kind: str = "", *, key: str = "", css: str | None = None, **layout: Any
) -> Column:
    """Create the column of a table from a column of `model.columns`.

    If the cell is a number formatted as text, sorting and CSV files use the number itself. It is in another cell of the
    row, whose key is the column's name in files.
    """
    kind = kind or ("text" if column.form in (Form.FINE, Form.ID, Form.TOTAL) else _UNIT_KINDS.get(column.unit, "text"))
    if css is None:
        css = next((css for least, css in _PRIORITY_CSS if column.keep >= least), "c-less")
    if kind in _TEXT_KINDS and column.unit is not None and "sorts_by" not in layout:
        layout = {"csv": column.file_name, **layout, "sorts_by": column.file_name}
    return Column(
        key or column.key, column.title, kind, column.help, css=css, is_number=column.is_number,
        falls=column.falls, **layout
    )  # fmt: skip


class Rows(list[Cells]):
    """Rows of a table, each with a `key`. A separate type, so that an empty table is recognized as one."""


class StoredSubject(Enum):
    """Subject of the stored values of a page; the value is its name in error messages."""

    RUNS = "the list of runs"
    RUN = "this run"
    """The run of the argument `id`, on the device `gpu`."""
    ACCOUNTS = "this window"
    """Users' GPU time in the window given by `period`, `day` and `zone`."""
    EVENTS = "the events"
    """Events of a window."""
    DAY = "the last 24 hours"
    """Holders of each GPU in the last 24 hours."""


class StoredValues(NamedTuple):
    """Values of a page from the ledger or the history."""

    values: Cells
    """Values by name; `Rows` fill the table of that name. A value from `live` takes precedence unless it is None."""
    figures: Mapping[str, Cells | None] = MappingProxyType({})
    """Charts by name; None: nothing to draw."""
    totals: Mapping[str, int] = MappingProxyType({})
    """Total number of rows of tables that only have the newest rows in `values`."""
    again: float = 10.0
    """Seconds until the page should request them again."""
    unread: str = ""
    """Sentence on why they cannot be read now; the page then keeps what it shows."""


def _no_values(now: Now, args: Args) -> Cells:
    return {}


def _no_series(now: Now, args: Args) -> Mapping[str, tuple[str, str]]:
    return {}


class Page(NamedTuple):
    """One page. `live` returns values by name; `Rows` fill the table of that name."""

    name: str
    """First part of the address after `#/`."""
    title: str
    layout: Callable[[], Component]
    live: Callable[[Now, Args], Cells] = _no_values
    kept: Callable[[Any], StoredValues] | None = None
    """Computes the stored values from what `kept_of` reads; called in the worker process, less often than `live`."""
    rest: Callable[[Cells], StoredValues] | None = None
    """Computes all rows of the tables for which `kept` returns only the newest; requested on demand."""
    kept_of: StoredSubject = StoredSubject.RUNS
    """Subject of the documents for `kept` and `rest`."""
    series: Callable[[Now, Args], Mapping[str, tuple[str, str]]] = _no_series
    """Live chart lines: name -> (UUID of a GPU, metric)."""
    has_past: bool = False
    """Whether its lines begin with the last ten minutes when a viewer opens the page."""
    args: Args = MappingProxyType({})
    """Arguments of its address, with their defaults."""
    kept_args: Args = MappingProxyType({})
    """Further arguments that only affect the stored values."""
    subject: tuple[str, ...] = ("id",)
    """Arguments that select the subject of the page; the others only change the display."""
    tab: str = ""
    """Name of the tab that is highlighted; empty: its own, if `is_tab`."""
    is_tab: bool = True
    needs_id: bool = False
    """Whether an address without an id shows the page of its tab instead."""
    is_dash: bool = False
    """Whether Dash renders the layout, and callbacks fill it, instead of our scripts."""
    without_gpus: str = ""
    """Name of the page that replaces it on a machine without GPUs."""
